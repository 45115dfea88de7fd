"""One batch at a time, from intake to what its commit means: the same for the worker and a task.

Under a backlog the batch after it is taken as well, so that its claim travels meanwhile. It is
dropped whenever the one before it is not done as a whole: both are read again, in their order, and
the claims that were made name the coordinates of those very records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hapax.core.batch_result import BatchResult
    from hapax.core.begun import Begun
    from hapax.core.errors import HapaxError
    from hapax.core.interrupt import Interrupt
    from hapax.core.limits import Pace
    from hapax.core.ports import Core, Source
    from hapax.core.records import Coordinates, Progress, TopicPartition
    from hapax.core.retry_policy import RetryPolicy
    from hapax.core.transform import Failure
    from hapax.engines.idle_offsets import Bounds
    from hapax.engines.suspects import Suspects
    from hapax.engines.watchdog import Watchdog


class Sizing(msgspec.Struct, frozen=True):
    """What decides how much one batch holds, how long it may take, and how many there are.

    ahead  whether the batch after the one in work is taken: it pays where claims travel
    """

    pace: Pace
    retry: RetryPolicy
    bounds: Bounds
    cut_after_s: float
    ahead: bool = False


class Taken(msgspec.Struct):
    """A batch that was taken.

    full      it holds as much as it could: more is likely to be there
    begun  what was done for it before its turn
    """

    batch: Batch
    full: bool = False
    begun: Begun | None = None


class BatchRunner:
    """Takes batches and runs them. ``batch`` is what a failure would put back."""

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
        self._current = Taken(Batch([], {}, {}))
        self._ahead: Taken | None = None

    @property
    def batch(self) -> Batch:
        """The records in work, and the places of all that was taken and is not done."""
        return _together(self._current.batch, self._ahead, ())

    @property
    def waiting(self) -> bool:
        """Whether a batch that was taken ahead waits for its turn."""
        return self._ahead is not None

    @property
    def busy(self) -> bool:
        """Whether records are in work between two batches: here none are."""
        return False

    def inside(self) -> Progress:
        """Return by partition the first record in work that is of an earlier intake: here none."""
        return {}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is in work of partitions that moved: here nothing is."""

    def drain(self) -> None:
        """Begin nothing new, because the process is to stop: here nothing is in work."""

    def take(self, wait_s: float, *, more: bool = True) -> Batch:  # noqa: ARG002 - see busy
        """Return the batch that waits, or the next one of no more records than limits allow.

        ``more`` False: take nothing, attend to what is in work.
        """
        taken, self._ahead = self._ahead, None
        if taken is None:
            sizing = self.sizing
            records_max = sizing.bounds.limit(sizing.retry.limit(self._pace.records))
            batch = self.source.take(records_max, wait_s)
            taken = Taken(batch, len(batch.records) >= records_max)
        self._current = taken
        return taken.batch

    def look_ahead(self) -> bool:
        """Take the batch after this one if it is there, and let its claim travel.

        Only after a full batch: without a backlog, records that are still to arrive would wait for
        one batch more. And not while a batch is tried again. Return whether the source was asked:
        what it brought may have moved the partitions of the batch in work (``give_up``).
        """
        current, sizing = self._current, self.sizing
        if not (sizing.ahead and current.full and sizing.retry.calm):
            return False
        count = len(current.batch.records)
        records_max = sizing.bounds.limit(count + self._pace.records) - count
        if records_max <= 0:
            return False
        if current.begun is None:  # it was read first: it asks first
            current.begun = self._core.ask(current.batch)
        batch = self.source.take(records_max, 0.0)
        if batch.next:
            self._ahead = ahead = Taken(batch, len(batch.records) >= records_max)
            if batch.records:
                ahead.begun = self._core.ask(batch)
        return True

    def drop(self) -> None:
        """From here on nothing may put the batch in work back: what fails later is not it."""
        self._current = Taken(Batch([], {}, {}))

    def give_up(self, moved: Collection[TopicPartition] = ()) -> Batch:
        """Let go of all that was taken; return it, to be put back.

        ``moved``: partitions that were assigned again since the batch in work was taken. Where
        reading goes on in them is not for us to say: another member may have come further.
        """
        together = _together(self._current.batch, self._ahead, moved)
        for taken in (self._current, self._ahead):
            if taken is not None and taken.begun is not None:
                taken.begun.drop()
        self._ahead = None
        self.drop()
        return together

    def run(
        self,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        *,
        stopping: Callable[[], bool] = bool,
    ) -> BatchResult | None:
        """Give the batch its effects; while ``stopping``, as few of them as possible.

        None: nothing had finished, and nothing was committed.
        """
        self._interrupt.due = False
        if stopping():  # asked after it: a signal in between sets it, too
            self._interrupt.due = True
        self._watchdog.alarm(self.sizing.cut_after_s, self._interrupt)
        current = self._current
        result = self._core.run(current.batch, rejected, attempt, current.begun)
        self.drop()
        return result

    def settle(self, batch: Batch, result: BatchResult) -> None:
        """Take note of what was committed, and read again what was not."""
        progress = result.progress
        self.source.mark_processed(progress)
        self.suspects.record_progress(progress, batch)
        if result.records < len(batch.records):
            later = self.give_up()
            self.source.rewind({**later.next, **later.first, **batch.first, **progress})
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
        return self._pace.fail(len(self._current.batch.records), error.transaction_s)


def _together(batch: Batch, ahead: Taken | None, moved: Collection[TopicPartition]) -> Batch:
    """Return the records of ``batch``, and the places of both: where each was read first.

    Of ``moved`` partitions only what was taken ahead counts: it was read where they are now.
    """
    if ahead is None and not moved:
        return batch
    later = Batch([], {}, {}) if ahead is None else ahead.batch
    first = {where: offset for where, offset in batch.first.items() if where not in moved}
    ends = {where: offset for where, offset in batch.next.items() if where not in moved}
    return Batch(batch.records, {**later.first, **first}, {**ends, **later.next})
