"""Strikes at the group: members come and go (G1, G3)."""

import time

from hapax.core.errors import ExitCode
from tests.fault.members import Member
from tests.fault.scene import Scene

LEAVES_S, CUT_OFF_S = 20.0, 40.0
"""How long a stop may take, and how long it is waited for: by then the watchdog has said why."""
STILL_LOADING = -15


def churn(scene: Scene, seconds: float, gap_s: tuple[float, float] = (1.0, 3.0)) -> None:
    """Let a further member join and leave, again and again."""
    until_s = time.time() + seconds
    guest = scene.stage.guest()
    scene.target = guest.instance
    while time.time() < until_s:
        guest.start()
        time.sleep(scene.rng.uniform(*gap_s))
        scene.mark("last leave")
        _stop(scene, guest, STILL_LOADING)
    scene.heal()


def _stop(scene: Scene, member: Member, *allowed: int) -> None:
    """Stop by SIGTERM; what the watchdog had to end is no stop."""
    began_s = time.monotonic()
    code = member.terminate(CUT_OFF_S)
    took_s = time.monotonic() - began_s
    scene.hit()
    known = {ExitCode.DRAINED, *allowed}
    scene.demand(code in known, f"SIGTERM of {member.instance} ended in {code}")
    scene.demand(took_s <= LEAVES_S, f"SIGTERM of {member.instance} took {took_s:.0f} s")


def scale(scene: Scene) -> None:
    """Scale down to one member by SIGTERM, and up again."""
    stage = scene.stage
    scene.target = f"{len(stage.members)} to 1 to {len(stage.members)}"
    slowest_s = 0.0
    for member in stage.members[1:]:
        scene.mark("SIGTERM, to another instance")
        _stop(scene, member)
        slowest_s = max(slowest_s, scene.await_recovery() or 0.0)
    scene.note(f"slowest handover {slowest_s:.2f} s")
    since_s, since = scene.since_s, scene.since
    for member in stage.members[1:]:
        scene.mark("start of a member")
        member.start()
        scene.hit()
        scene.await_recovery()
    scene.heal()
    scene.since_s, scene.since = since_s, since
