"""One Spark job for each plan: one task, one row, one report."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types

from hapax.core.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from pyspark import SparkContext

    from hapax.engines.spark.plan import RangePlan, RangeReport

CLOSE_TIMEOUT_S = 5.0


class SparkJobs:
    """Runs plans side by side: a job of one lane waits for no other lane.

    ``run`` is what executors import; it gets the plans of a Spark partition.
    """

    def __init__(
        self,
        context: SparkContext,
        run: Callable[[Iterable[RangePlan]], Iterator[RangeReport]],
        *,
        lanes: int | None,
    ) -> None:
        self._context = context
        self._run = run
        self.lanes = lanes or max(1, context.defaultParallelism)
        self._threads = ThreadPoolExecutor(self.lanes, thread_name_prefix="lane")

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        """Start a job; its future raises what Spark says when the task did not report."""
        return self._threads.submit(self._job, plan)

    def call(self, function: Callable[[], None]) -> Future[None]:
        """Run something else beside the jobs, on the driver."""
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
            process.kill()  # a JVM that hangs would keep our threads, and us, for ever
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _stop(self) -> None:
        with suppress(Exception):  # the JVM may be gone already
            self._context.cancelAllJobs()
            self._context.stop()

    def _job(self, plan: RangePlan) -> RangeReport:
        context = self._context
        context.setJobGroup(_group(plan.lane), f"lane {plan.lane}", interruptOnCancel=True)
        (report,) = context.parallelize([plan], 1).mapPartitions(self._run).collect()
        return report


def _group(lane: int) -> str:
    return f"hapax-lane-{lane}"
