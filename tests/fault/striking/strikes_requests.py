"""Strikes at the requests of one member: late, slow, lost, cut off (S-K1, N, G4)."""

import contextlib
import time
from typing import Literal

from tests.fault.scene import Scene
from tests.fault.striking.strikes_brokers import broker_of
from tests.kit.faults import ALWAYS, Rule

ILLEGAL_GENERATION = 22
INVALID_PRODUCER_EPOCH = 47
WINDOW_MS = 400
"""How long the next transaction's AddOffsetsToTxn is kept: the late request comes meanwhile."""


def late(
    scene: Scene, api: str, *, commits: bool | None = None, crash: Literal["", "behind"] = ""
) -> None:
    """Hold a request until its repetition has passed and the next transaction is open; release.

    ``commits`` False: an EndTxn that aborts, which a changed answer to the offsets provokes.
    ``crash`` behind: kill the worker right after the release.
    """
    victim = scene.proxied
    if commits is False:
        scene.arm(Rule("TxnOffsetCommit", "refuse", code=ILLEGAL_GENERATION, after="EndTxn"))
    rule = scene.arm(Rule(api, "hold", commits=commits))
    scene.await_hit(rule)
    scene.mark("held")
    again = scene.arm(Rule(api, "watch"))
    slow = scene.arm(Rule("AddOffsetsToTxn", "delay", delay_ms=WINDOW_MS, after="EndTxn"))
    scene.stage.proxy.cut()  # the client loses patience at once, and sends it again
    scene.await_answered(again)
    slow.hit.wait(10)
    rule.release()
    code = rule.wait_answered()
    scene.hit(rule.hits)
    scene.note(f"answer to the late request {code}")
    if crash:
        scene.mark("kill, same instance at once")
        victim.restart()


def cut(scene: Scene, seconds: float, *, one: bool) -> None:
    """Reset all connections of a member, to one broker or to all, for so long."""
    scene.target = scene.proxied.instance
    port = None
    if one:
        broker = scene.rng.choice(scene.stage.cluster.brokers)
        port = broker.proxy_target_port
        scene.target += f", broker {broker.node_id}"
    rule = scene.arm(Rule("*", "watch", port=port, times=ALWAYS))
    scene.hit(scene.stage.proxy.cut(port=port))
    with scene.stage.proxy.offline(port):
        time.sleep(seconds)
    scene.stage.proxy.remove(rule)
    scene.heal()
    scene.mark("heal")


def silence(scene: Scene, seconds: float, way: Literal["drop", "mute_after"]) -> None:
    """Lose all that goes one way between a member and one broker: requests, or answers."""
    broker = broker_of(scene, "output")  # it is sent to in every transaction
    scene.target += f", {scene.proxied.instance}"
    rule = scene.arm(Rule("*", way, port=broker.proxy_target_port, times=ALWAYS))
    scene.await_hit(rule)
    time.sleep(seconds)
    scene.stage.proxy.remove(rule)
    scene.stage.proxy.cut(port=broker.proxy_target_port)
    scene.hit(rule.hits)
    scene.heal()
    scene.mark("heal")


def slow_network(scene: Scene, seconds: float, resets: int = 0) -> None:
    """Delay each request by 200 ms, give or take 50; reset all connections now and then."""
    scene.target = scene.proxied.instance
    rule = scene.arm(Rule("*", "delay", delay_ms=200, jitter_ms=50, times=ALWAYS))
    for _ in range(resets + 1):
        time.sleep(seconds / (resets + 1))
        if resets:
            scene.stage.proxy.cut()
    scene.stage.proxy.remove(rule)
    scene.hit(rule.hits)
    scene.heal()
    scene.mark("heal")


def rebalance_during(scene: Scene, api: str, held_ms: int = 1500) -> None:
    """Let a member join while a request of a transaction is held, and leave again."""
    victim = scene.proxied
    guest = scene.stage.guest()
    rule = scene.arm(Rule(api, "delay", delay_ms=held_ms, times=3, after=None))
    scene.await_hit(rule)
    scene.mark("join")
    guest.start()
    time.sleep(2 * held_ms / 1000)
    scene.hit(rule.hits)
    scene.target = f"{victim.instance}, {guest.instance} joins"
    scene.await_recovery()
    with contextlib.suppress(TimeoutError):
        code = guest.terminate(15)
        scene.demand(code == 0, f"SIGTERM of {guest.instance} ended in {code}")
    scene.heal()
    scene.since = "join of another member"
