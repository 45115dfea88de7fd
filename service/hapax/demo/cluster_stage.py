"""The stage with a Spark cluster on it: a master, two workers, and an executor of each."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from hapax.demo.child import DemoError
from hapax.demo.processes import of_session, send
from hapax.demo.spark_stage import SPARK, SparkStage
from hapax.sandbox.spark_cluster import driver_properties

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hapax.demo.child import Child
    from hapax.demo.screen import DemoScreen
    from hapax.sandbox.spark_cluster import SparkDaemon
    from hapax.sandbox.watchdog import ChildWatchdog

WORKERS = 2
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class ClusterStage(SparkStage):
    """The driver begins, and stays; what is around it is killed.

    executors  those of the cluster, one of each worker
    """

    def __init__(self, screen: DemoScreen, *, seed: int, rate: int) -> None:
        super().__init__(screen, seed=seed, rate=rate)
        self.sandbox.with_spark(WORKERS)

    def exports(self) -> dict[str, str]:
        """Return the variables of a driver of this cluster."""
        cluster = {
            "HAPAX_SPARK__MASTER": self.sandbox.spark.url,
            "HAPAX_SPARK__PROPERTIES": json.dumps(driver_properties()),
            "HAPAX_SPARK__EXECUTOR_TIMEOUT": f"{self.patience_s:.0f}s",
        }
        return {**super().exports(), **SPARK, **cluster}

    def _cast(self, folder: Path, watchdog: ChildWatchdog) -> list[Child]:
        self.executors = ClusterExecutors(self.sandbox.spark.workers, watchdog)
        return super()._cast(folder, watchdog)


class ClusterExecutors:
    """The executors of some workers, of which one is frozen at a time: each freeze takes another.

    A worker's session holds its executor and the Python processes of that, and nothing else.
    """

    def __init__(self, daemons: Sequence[SparkDaemon], watchdog: ChildWatchdog) -> None:
        self.name = "an executor"
        self._daemons = daemons
        self._watchdog = watchdog
        self._turn = 0
        self._frozen: list[int] = []

    @property
    def complete(self) -> bool:
        """Whether each worker has an executor."""
        return all(
            any(_EXECUTOR in process.command for process in of_session(daemon.pid))
            for daemon in self._daemons
        )

    def freeze(self) -> None:
        """Stop the next one in its tracks, with its Python processes."""
        self._turn += 1
        daemon = self._daemons[self._turn % len(self._daemons)]
        self._frozen = [each.pid for each in of_session(daemon.pid) if each.pid != daemon.pid]
        for pid in self._frozen:
            # It would not see that its worker is gone: if the demo dies, it is ended by its id.
            self._watchdog.watch(pid)
            send(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it."""
        self._end(signal.SIGCONT)

    def kill(self) -> None:
        """End the frozen one by SIGKILL; raise DemoError when nothing of it was left."""
        if not self._end(signal.SIGKILL):
            raise DemoError("an executor ended by itself before it could be killed.")

    def _end(self, number: signal.Signals) -> int:
        reached = sum(send(pid, number) for pid in self._frozen)
        for pid in self._frozen:
            self._watchdog.forget(pid)
        self._frozen = []
        return reached
