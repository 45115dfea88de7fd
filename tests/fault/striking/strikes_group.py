"""Strikes at the group: members come and go (G1, G3)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fault.scene import Scene

LEAVES_S = 20.0


def churn(scene: Scene, seconds: float, gap_s: tuple[float, float] = (1.0, 3.0)) -> None:
    """Let a further member join and leave, again and again."""
    until_s = time.time() + seconds
    guest = scene.stage.guest()
    scene.target = guest.instance
    while time.time() < until_s:
        guest.start()
        time.sleep(scene.rng.uniform(*gap_s))
        scene.mark("last leave")
        code = guest.terminate(LEAVES_S)
        scene.hit()
        scene.demand(code in {0, -15}, f"SIGTERM ended in {code}")  # -15: still being loaded
    scene.heal()


def scale(scene: Scene) -> None:
    """Scale down to one member by SIGTERM, and up again."""
    stage = scene.stage
    scene.target = f"{len(stage.members)} to 1 to {len(stage.members)}"
    slowest_s = 0.0
    for member in stage.members[1:]:
        scene.mark("SIGTERM, to another instance")
        code = member.terminate(LEAVES_S)
        scene.hit()
        scene.demand(code == 0, f"SIGTERM of {member.instance} ended in {code}")
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
