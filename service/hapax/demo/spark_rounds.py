"""What happens to Spark while orders are published: kills, and two hand-overs in mid-stream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.demo import spark_faults
from hapax.demo.damage import Damage

if TYPE_CHECKING:
    from hapax.demo.spark_stage import SparkStage

_ROUND_S = 30.0
"""What one round takes: another one begins only when there is time for it."""
_START = "5 to 8 s until its first commit on a quiet machine"


def break_spark(stage: SparkStage, until_s: float) -> Damage:
    """Start Spark; kill parts of it, hand over and back, again and again until the time is up."""
    stage.screen.phase(f"Publishing; Spark and an ordinary loop start. Spark needs {_START}")
    stage.screen.note(f"Spark commits {stage.begin():.1f} s after its start")
    damage = Damage()
    _round(stage, damage)
    while until_s - time.monotonic() > _ROUND_S:
        _round(stage, damage)
    return damage


def _round(stage: SparkStage, damage: Damage) -> None:
    phase = stage.screen.phase
    phase("kill -9 a Python worker in the middle of its range, and the ordinary loop")
    damage.faults += stage.tell(*spark_faults.kill_python_worker(stage))
    phase(f"kill -9 Spark as a whole, and the ordinary loop. It starts again: {_START}")
    damage.faults += stage.tell(*spark_faults.kill_spark(stage))
    phase("Hand-over under load: SIGTERM to Spark, then a worker of the same name")
    damage.hand_overs += stage.tell(spark_faults.hand_over(stage, stage.worker))
    phase(f"Hand-over back: SIGTERM to the worker, then Spark starts: {_START}")
    damage.hand_overs += stage.tell(spark_faults.hand_over(stage, stage.application))
