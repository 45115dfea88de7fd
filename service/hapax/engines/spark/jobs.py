"""One Spark job for each plan: one task, one row, one report."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types
from pyspark import SparkFiles

from hapax.core.errors import ConfigurationError, StopError
from hapax.engines.spark.executors import packed
from hapax.engines.spark.gate import LACKS
from hapax.engines.spark.jvm import finish
from hapax.engines.spark.plan import RangeReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from pyspark import SparkContext

    from hapax.engines.spark.executors import Executors
    from hapax.engines.spark.plan import RangePlan

CLOSE_TIMEOUT_S = 5.0
THREADS_MAX = 10_000
"""As many as there can be lanes; a thread begins with the first job that finds none idle."""


class SparkJobs:
    """Runs plans side by side: a job of one lane waits for no other lane.

    ``run`` is what executors import; it gets the plans of a Spark partition. ``executors``: of a
    cluster, which are asked first whether they can run it; None: everything is in this container.
    """

    def __init__(
        self,
        context: SparkContext,
        run: Callable[[Iterable[RangePlan]], Iterator[RangeReport]],
        *,
        lanes: int | None,
        executors: Executors | None = None,
    ) -> None:
        self._context = context
        self._executors = executors
        self._run: Callable[..., Any] = run if executors is None else executors.before(run)
        self._lanes = lanes
        local = (context.master or "").startswith("local")
        # Spark deletes this folder when it ends, however the driver ended.
        self._recall = Path(SparkFiles.getRootDirectory(), "recall") if local else None
        self._recalled = False
        self._slots = self.lanes
        self._task_cores = int(context.getConf().get("spark.task.cpus", "1"))
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lane")

    @property
    def lanes(self) -> int:
        """As many as asked for, else as Spark has cores now; 1 when it does not answer."""
        cores = 1
        with suppress(Py4JError, OSError):
            cores = self._lanes or self._context.defaultParallelism
        return max(1, cores)

    @property
    def slots(self) -> int:
        """How many tasks run at once: cores, as Spark counts them now."""
        with suppress(Py4JError, OSError):  # a JVM that is gone is noticed by the next job
            self._slots = self._context.defaultParallelism // self._task_cores
        return self._slots

    def recall(self, *, wanted: bool) -> None:
        """Ask running tasks to end with the batch in work, or no longer.

        It reaches those that share a file system with the driver; others end when their time is
        over.
        """
        if self._recall is None or wanted == self._recalled:
            return
        with suppress(OSError):  # the folder went with Spark; the tasks, too
            if wanted:
                self._recall.touch()
            else:
                self._recall.unlink(missing_ok=True)
        self._recalled = wanted

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        """Start a job; its future raises what Spark says when the task did not report."""
        recall = None if self._recall is None else str(self._recall)
        return self._threads.submit(self._job, msgspec.structs.replace(plan, recall=recall))

    def call(self, function: Callable[[], None]) -> Future[None]:
        """Run something else alongside the jobs, on the driver."""
        return self._threads.submit(function)

    def cancel(self, lane: int) -> None:
        """End the running task of a lane: frozen, or in business code that does not return."""
        with suppress(Py4JError, OSError):
            self._context.cancelJobGroup(_group(lane))

    def check(self) -> None:
        """Raise StopError when Spark itself is gone: no job can ever succeed."""
        try:
            java = self._context._jsc
            gone = java is None or java.sc().isStopped()
        except (Py4JError, OSError):
            gone = True
        if gone:
            raise StopError("Spark's JVM is gone: a restart begins at the committed offsets")

    def close(self) -> None:
        """End what runs, and Spark. What was not committed is aborted by the brokers."""
        stopping = threading.Thread(target=self._stop, daemon=True)
        stopping.start()
        stopping.join(CLOSE_TIMEOUT_S)
        process = getattr(self._context._gateway, "proc", None)
        if process is not None:
            process.kill()  # a JVM that hangs would keep the threads, and the process
        finish(process)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _stop(self) -> None:
        with suppress(Exception):  # the JVM may be gone already
            self._context.cancelAllJobs()
            self._context.stop()

    def _job(self, plan: RangePlan) -> RangeReport:
        context = self._context
        context.setJobGroup(_group(plan.lane), f"lane {plan.lane}", interruptOnCancel=True)
        row = plan if self._executors is None else packed(plan)
        (answer,) = context.parallelize([row], 1).mapPartitions(self._run).collect()
        if not isinstance(answer, tuple):
            report: RangeReport = answer
            return report
        word, text = answer
        if word == LACKS and self._executors is not None:
            self._executors.ship_ours(context)
            return RangeReport(lane=plan.lane, pace=plan.pace)  # nothing was done: plan it again
        return RangeReport(lane=plan.lane, pace=plan.pace, error=ConfigurationError(text))


def _group(lane: int) -> str:
    return f"hapax-lane-{lane}"
