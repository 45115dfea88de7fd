"""What happens to two workers while orders are published, in its order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.demo import faults
from hapax.demo.damage import Damage
from hapax.demo.stage import SESSION_TIMEOUT_S

if TYPE_CHECKING:
    from hapax.demo.child import Child
    from hapax.demo.damage import DemoFault
    from hapax.demo.stage import Stage

_ROUND_S = 18.0
"""What one round of faults takes: another one begins only when there is time for it."""


def break_workers(stage: Stage, until_s: float) -> Damage:
    """Start two workers, and kill and freeze them, again and again until the time is up."""
    stage.screen.phase("Publishing; two workers and an ordinary loop start")
    stage.begin()
    struck = _round(stage, *stage.workers)
    while until_s - time.monotonic() > _ROUND_S:
        struck += _round(stage, *reversed(stage.workers))
    return Damage(struck)


def _round(stage: Stage, first: Child, second: Child) -> list[DemoFault]:
    stage.screen.phase(f"kill -9 {first.name}, and the ordinary loop")
    struck = stage.tell(*faults.kill_inside(stage, first))
    stage.screen.phase(f"Freezing {second.name} for more than {SESSION_TIMEOUT_S} s")
    struck += stage.tell(faults.freeze(stage, second))
    stage.screen.phase("kill -9 both workers at once, and the ordinary loop")
    struck += stage.tell(*faults.kill(stage, first, second))
    return struck
