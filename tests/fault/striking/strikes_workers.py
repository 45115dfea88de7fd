"""Strikes at members: killed, frozen and stopped at chosen moments (P, Z, T4)."""

import sys
import time

from tests.fault.members import Member, await_exit
from tests.fault.reporting.matrix import Moment
from tests.fault.scene import Scene
from tests.fault.striking.crash import EXIT
from tests.kit.faults import Action, Rule

_ACTIONS: dict[Moment, Action] = {
    "not delivered": "hold",
    "answer lost": "mute_after",
    "answer delivered": "watch",
}
LEAVES_S = 15.0


def kill_at(scene: Scene, api: str, moment: Moment, *, nth: int = 1, away: bool = False) -> None:
    """Kill a worker at the n-th such request of a transaction; ``away``: others take over."""
    victim = scene.proxied
    after = None if api == "InitProducerId" else "EndTxn"
    rule = scene.arm(Rule(api, _ACTIONS[moment], nth=nth, after=after))
    if api == "InitProducerId":
        victim.restart()
    (scene.await_hit if moment == "not delivered" else scene.await_answered)(rule)
    scene.mark("kill")
    victim.kill()
    rule.discard()
    scene.stage.proxy.remove(rule)
    scene.hit(rule.hits)
    if away:
        scene.await_recovery()
    scene.since = "kill, to another instance" if away else "kill, same instance at once"
    victim.start()


def crash_at(scene: Scene, point: str, *, nth: int = 5) -> None:
    """Let a worker die at a named point of its n-th batch."""
    victim = scene.worker
    victim.kill()
    victim.start(
        (sys.executable, "-m", "tests.fault.striking.crash", point, "run"),
        [EXIT],
        CRASH_NTH=str(nth),
    )
    code = await_exit(victim, 30)
    scene.mark("crash, same instance at once")
    scene.demand(code == EXIT, f"{victim.instance} left with {code}, not by the crash")
    if code == EXIT:
        victim.kills += 1
        scene.hit()
    if not victim.running:
        victim.start()


def kill_often(scene: Scene, seconds: float, gap_s: tuple[float, float] = (1.0, 2.0)) -> None:
    """Kill some member every second or two; each comes back at once."""
    until_s = time.time() + seconds
    while time.time() < until_s:
        time.sleep(scene.rng.uniform(*gap_s))
        victim = scene.anybody
        scene.mark("last kill, same instance at once")
        victim.restart()
        scene.hit()
    scene.target = "all"


def freeze(scene: Scene, seconds: float) -> None:
    victim = scene.anybody
    scene.mark("freeze")
    victim.freeze()
    scene.hit()
    time.sleep(seconds)
    victim.thaw()
    scene.heal()


def freeze_within_session(scene: Scene, seconds: float, session: str) -> None:
    """Freeze a member inside a transaction, past its timeout, but within the session."""
    victim = scene.proxied
    victim.kill()
    victim.start(HAPAX_GROUP__SESSION_TIMEOUT=session)
    _freeze_inside(scene, victim, seconds)
    scene.since = "thaw"
    noticed = scene.events("producer_died") + scene.events("batch_aborted")
    scene.demand(noticed, "nobody noticed that the transaction was over")


def _freeze_inside(scene: Scene, victim: Member, seconds: float) -> None:
    rule = scene.arm(Rule("TxnOffsetCommit", "hold_answer", after="EndTxn"))
    scene.await_hit(rule)
    victim.freeze()
    scene.hit()
    rule.release()
    time.sleep(seconds)
    victim.thaw()
    scene.thawed()
    scene.await_recovery()


def freeze_in_commit(scene: Scene, seconds: float) -> None:
    """Freeze a worker between its commit and the answer."""
    victim = scene.proxied
    rule = scene.arm(Rule("EndTxn", "hold_answer"))
    scene.await_hit(rule)
    scene.mark("freeze")
    victim.freeze()
    scene.hit(rule.hits)
    rule.release()
    time.sleep(seconds)
    victim.thaw()
    scene.thawed()


def stop_at(scene: Scene, api: str, held_s: float = 0.5) -> None:
    """SIGTERM while a request of the worker is held; it must leave with 0 all the same."""
    victim = scene.proxied
    rule = scene.arm(Rule(api, "delay", delay_ms=int(held_s * 1000)))
    scene.await_hit(rule)
    scene.mark("SIGTERM, same instance at once")
    code = victim.terminate(LEAVES_S)
    scene.hit(rule.hits)
    scene.demand(code == 0, f"SIGTERM ended in {code}")
    victim.start()


def hand_over(scene: Scene) -> None:
    """SIGTERM: the others take over; it comes back when they have."""
    victim = scene.anybody
    scene.mark("SIGTERM, to another instance")
    code = victim.terminate(LEAVES_S)
    scene.hit()
    scene.demand(code in {0, -15}, f"SIGTERM ended in {code}")  # -15: still being loaded
    scene.await_recovery()
    victim.start()
