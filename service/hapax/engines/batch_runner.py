"""One batch at a time, from intake to what its commit means: the same for the worker and a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.batch_result import BatchResult
    from hapax.core.errors import HapaxError
    from hapax.core.interrupt import Interrupt
    from hapax.core.limits import Pace
    from hapax.core.ports import Core, Source
    from hapax.core.records import Coordinates, Progress
    from hapax.core.retry_policy import RetryPolicy
    from hapax.core.transform import Failure
    from hapax.engines.idle_offsets import Bounds
    from hapax.engines.suspects import Suspects
    from hapax.engines.watchdog import Watchdog


class Sizing(msgspec.Struct, frozen=True):
    """What decides how much one batch holds, and how long it may take."""

    pace: Pace
    retry: RetryPolicy
    bounds: Bounds
    cut_after_s: float


class BatchRunner:
    """Takes batches and runs them. ``batch`` is the one that a failure would put back."""

    def __init__(
        self,
        core: Core,
        source: Source,
        suspects: Suspects,
        sizing: Sizing,
        *,
        interrupt: Interrupt,
        watchdog: Watchdog,
    ) -> None:
        self._core = core
        self.source = source
        self.suspects = suspects
        self.sizing = sizing
        self._pace = sizing.pace
        self._interrupt = interrupt
        self._watchdog = watchdog
        self.batch = Batch([], {}, {})

    def take(self, wait_s: float) -> Batch:
        """Return the next batch, of no more records than all limits allow."""
        sizing = self.sizing
        records_max = sizing.bounds.limit(sizing.retry.limit(self._pace.records))
        self.batch = batch = self.source.take(records_max, wait_s)
        return batch

    def drop(self) -> None:
        """From here on nothing may put the batch back: what fails later is not it."""
        self.batch = Batch([], {}, {})

    def run(
        self,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        *,
        stopping: Callable[[], bool] = bool,
    ) -> BatchResult:
        """Give the batch its effects; while ``stopping``, as few of them as possible."""
        self._interrupt.due = False
        if stopping():  # asked after it: a signal in between sets it, too
            self._interrupt.due = True
        self._watchdog.alarm(self.sizing.cut_after_s, self._interrupt)
        result = self._core.run(self.batch, rejected, attempt)
        self.drop()
        return result

    def settle(self, batch: Batch, result: BatchResult) -> None:
        """Take note of what was committed, and read again what was not."""
        progress = result.progress
        self.source.mark_processed(progress)
        self.suspects.record_progress(progress, batch)
        if result.records < len(batch.records):
            self.source.rewind({**batch.first, **progress})
        self.sizing.bounds.count(result.records)
        self._pace.record_commit(
            result.records, result.working_s, result.bytes_in, result.transaction_s
        )

    def end(self, progress: Progress) -> None:
        """Commit what lies behind the last records."""
        self._core.end(progress)
        self.source.mark_processed(progress)
        self.suspects.record_progress(progress)

    def fail(self, error: HapaxError) -> bool:
        """Take note that the batch did not go through; return whether the next one is smaller."""
        self.suspects.fail()
        return self._pace.fail(len(self.batch.records), error.transaction_s)
