"""What happens to a Spark cluster while orders are published, and the proof that it struck."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.demo.damage import Damage, DemoFault
from hapax.demo.moments import await_commit, freeze_in_range, freeze_uncommitted
from hapax.demo.processes import of_session
from hapax.demo.spark_faults import INSIDE, executors_listed, lane_is_back

if TYPE_CHECKING:
    from hapax.demo.cluster_stage import ClusterStage
    from hapax.sandbox.spark_cluster import SparkDaemon

_ROUND_S = 30.0
"""What one round takes: another one begins only when there is time for it."""


def break_cluster(stage: ClusterStage, until_s: float) -> Damage:
    """Start the driver; kill executors, a worker and the master until the time is up."""
    screen = stage.screen
    screen.phase("Publishing; Spark's driver and an ordinary loop start. It needs 10 to 15 s")
    screen.note(f"Spark commits {stage.begin():.1f} s after its start")
    damage = Damage()
    _round(stage, damage)
    while until_s - time.monotonic() > _ROUND_S:
        _round(stage, damage)
    return damage


def _round(stage: ClusterStage, damage: Damage) -> None:
    phase, spark = stage.screen.phase, stage.sandbox.spark
    phase("kill -9 an executor in the middle of its range, and the ordinary loop")
    damage.faults += stage.tell(*kill_executor(stage))
    phase("kill -9 a worker of the cluster: its executor ends with it. It starts again")
    damage.faults += stage.tell(kill_daemon(stage, spark.workers[0]))
    phase("kill -9 the cluster's master. Executors work without it, and it starts again")
    damage.faults += stage.tell(kill_master(stage))


def kill_executor(stage: ClusterStage) -> list[DemoFault]:
    """Kill an executor inside a transaction, and the ordinary loop.

    Returns when the driver has logged that a task is lost, its lane has committed again, and the
    executor was replaced.
    """
    spark = stage.application
    _await_executors(stage, 0, "each worker has an executor")
    other = freeze_uncommitted(stage)
    freeze_in_range(stage, stage.executors)
    since = spark.position()
    stage.executors.kill()
    stage.kill(stage.ordinary)
    killed_s = time.monotonic()
    stage.start(stage.ordinary)
    stage.wait(lambda: lane_is_back(spark.events(since)), "the lane of the lost task commits again")
    stage.struck += 1
    fault = DemoFault("executor kill", "an executor", INSIDE, _since(killed_s))
    _await_executors(stage, since, "the executor is replaced")
    return [fault, other]


def kill_daemon(stage: ClusterStage, daemon: SparkDaemon) -> DemoFault:
    """Kill a worker of the cluster, and start it again; return when it has an executor again.

    In between its executor has ended, and Spark has committed without it.
    """
    session = daemon.pid
    daemon.kill()
    killed_s = time.monotonic()
    stage.struck += 1
    stage.wait(lambda: not of_session(session), "the executor notices that its worker is gone")
    await_commit(stage, stage.application, stage.application.position())
    back_after_s = _since(killed_s)
    since = stage.application.position()
    daemon.start()
    _await_executors(stage, since, f"{daemon.name} has an executor again")
    return DemoFault("worker kill", daemon.name, "with its executor", back_after_s)


def kill_master(stage: ClusterStage) -> DemoFault:
    """Kill the master; return when Spark has committed without it, and it knows all workers."""
    spark = stage.sandbox.spark
    spark.master.kill()
    killed_s = time.monotonic()
    stage.struck += 1
    await_commit(stage, stage.application, stage.application.position())
    back_after_s = _since(killed_s)
    spark.master.start()
    known = len(spark.workers)
    stage.wait(lambda: spark.state().get("aliveworkers") == known, "the master knows its workers")
    return DemoFault("master kill", spark.master.name, "while ranges were worked on", back_after_s)


def _await_executors(stage: ClusterStage, since: int, what: str) -> None:
    """Wait until each worker has an executor that the driver has listed after byte ``since``.

    An executor watches its worker once it runs: one whose worker dies while the executor's JVM
    starts never notices that, and stays (its ``WorkerWatcher`` connects once, and does not try
    again). So a process alone is not enough.
    """
    spark, all_ = stage.application, len(stage.sandbox.spark.workers)
    stage.wait(
        lambda: stage.executors.complete and executors_listed(spark.events(since)) == all_, what
    )


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 1)
