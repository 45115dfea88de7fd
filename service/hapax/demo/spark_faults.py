"""What is done to Spark, and the proof that it struck while a range was worked on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.demo.child import DemoError
from hapax.demo.damage import DemoFault, HandOver
from hapax.demo.moments import await_commit, freeze_in_range, freeze_uncommitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.demo.application import Application
    from hapax.demo.child import Child
    from hapax.demo.spark_stage import SparkStage

INSIDE = "inside a transaction of a range"


class PythonWorker:
    """One Python worker of Spark at a time: each freeze takes the next one."""

    def __init__(self, application: Application) -> None:
        self.name = "a Python worker"
        self._application = application
        self._turn = 0
        self._pid = 0

    def freeze(self) -> None:
        """Stop the next one in its tracks."""
        found = self._application.python_workers()
        if not found:
            raise DemoError("Spark has no Python worker although it has committed.")
        self._turn += 1
        self._pid = found[self._turn % len(found)]
        self._application.freeze_one(self._pid)

    def thaw(self) -> None:
        """Resume it."""
        self._application.thaw()

    def kill(self) -> None:
        """End the frozen one by SIGKILL."""
        if not self._application.kill_one(self._pid):
            raise DemoError("a Python worker ended by itself before it could be killed.")
        self._application.thaw()


def kill_python_worker(stage: SparkStage) -> list[DemoFault]:
    """Kill one Python worker inside a transaction, and the ordinary loop.

    Returns when Spark has logged that the worker's task is lost, and its lane has committed again.
    """
    spark = stage.application
    other = freeze_uncommitted(stage)
    victim = PythonWorker(spark)
    freeze_in_range(stage, victim)
    since = spark.position()
    victim.kill()
    stage.kill(stage.ordinary)
    killed_s = time.monotonic()
    stage.start(stage.ordinary)
    stage.wait(lambda: lane_is_back(spark.events(since)), "the lane of the lost task commits again")
    stage.struck += 1
    back_after_s = round(time.monotonic() - killed_s, 1)
    return [DemoFault("Python worker kill", spark.name, INSIDE, back_after_s), other]


def kill_spark(stage: SparkStage) -> list[DemoFault]:
    """Kill driver, JVM and Python workers inside a transaction, and the ordinary loop.

    Both are started again at once. Returns when Spark has committed again.
    """
    spark = stage.application
    other = freeze_uncommitted(stage)
    freeze_in_range(stage, spark)
    for child in (spark, stage.ordinary):
        stage.kill(child)
    killed_s = time.monotonic()
    stage.struck += 1
    since = spark.position()
    for child in (spark, stage.ordinary):
        stage.start(child)
    await_commit(stage, spark, since)
    back_after_s = round(time.monotonic() - killed_s, 1)
    return [DemoFault("driver kill", spark.name, INSIDE, back_after_s), other]


def hand_over(stage: SparkStage, successor: Child) -> HandOver:
    """Ask the one that works to leave, and let the other one continue under its name.

    One after the other: two members of one name would take the partitions from each other.
    Returns when the successor has committed; it is the one that works then.
    """
    (predecessor,) = stage.workers
    await_commit(stage, predecessor, since=predecessor.position())
    published, asked_s = stage.publisher.published, time.monotonic()
    exit_code = stage.leave(predecessor)
    left_after_s = round(time.monotonic() - asked_s, 1)
    since = successor.position()
    stage.workers = [successor]
    stage.start(successor)
    await_commit(stage, successor, since)
    return HandOver(
        predecessor=predecessor.name,
        successor=successor.name,
        left_after_s=left_after_s,
        commits_after_s=round(time.monotonic() - asked_s, 1),
        published=stage.publisher.published - published,
        exit_code=exit_code,
    )


def lane_is_back(lines: Iterable[Mapping[str, object]]) -> bool:
    """Return whether a task was lost, and its lane has committed after it."""
    lost: set[object] = set()
    for line in lines:
        match line.get("event"):
            case "task_lost":
                lost.add(line.get("lane"))
            case "range_completed" if line.get("lane") in lost and line.get("transactions"):
                return True
    return False


def executors_listed(lines: Iterable[Mapping[str, object]]) -> int:
    """Return how many executors the driver listed last; 0 when they did not change."""
    last: object = None
    for line in lines:
        if line.get("event") == "executors_changed":
            last = line.get("executors")
    return len(last) if isinstance(last, dict) else 0
