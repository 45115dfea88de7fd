"""One batch at a time, from intake to what its commit means: the same for the worker and a task.

Under a backlog the batch after it is taken as well, so that its claim travels meanwhile. It is
dropped whenever the one before it is not done as a whole: both are read again, in their order, and
the claims that were made name the coordinates of those very records.

With calls that overlap (``Windowing``) the intake fills a window (processing/call_window.py), and
what has finished is committed, batch after batch, by the same steps. Between two of them the source
is asked for more, so that the membership never waits for a call.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.record_path import Batch, Identified
from hapax.processing.batch_result import Begun
from hapax.processing.crash_markers import size_of_results
from hapax.processing.deduplicate import Claimed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from hapax.core.errors import HapaxError
    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import Source
    from hapax.core.records import Coordinates, Progress, TopicPartition
    from hapax.core.results import Failure
    from hapax.engines.idle_offsets import Bounds
    from hapax.engines.overlapping_calls import SlotCalls
    from hapax.engines.suspects import Suspects
    from hapax.engines.watchdog import Watchdog
    from hapax.processing.batch_result import BatchResult, Core
    from hapax.processing.call_window import Call, Window
    from hapax.processing.crash_markers import Isolation
    from hapax.processing.limits import Pace, RetryPolicy

WAIT_S = 0.005
"""Longest wait for a call to end, before the source is asked again: records that arrive meanwhile
wait for it."""
SHARE = 2
"""A partition may take this part of the window divided by the partitions: one whose first record
takes long must leave room for the others. Of bytes it may take all, divided by the partitions."""


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
        return self._ahead is not None

    @property
    def busy(self) -> int:
        """How many records are in work between two batches: here none."""
        return 0

    def inside(self) -> Progress:
        """Return by partition the first record in work that is of an earlier intake: here none."""
        return {}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop what is in work of partitions that moved: here nothing is."""

    def drain(self) -> None:
        """Begin nothing new, because the process is to stop: here nothing is in work."""

    def take(self, wait_s: float, *, more: bool = True) -> Batch:  # noqa: ARG002 - see busy
        """Return the waiting batch or the next; ``more`` False: attend to what is in work alone."""
        taken, self._ahead = self._ahead, None
        if taken is None:
            sizing = self.sizing
            records_max = sizing.bounds.limit(sizing.retry.limit(self._pace.records))
            batch = self.source.take(records_max, wait_s)
            taken = Taken(batch, len(batch.records) >= records_max)
        self._current = taken
        return taken.batch

    def look_ahead(self) -> bool:
        """Take the batch after this one if it has arrived, and let its claim travel.

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
        reading continues in them is not decided here: another member may have come further.
        """
        together = _together(self._current.batch, self._ahead, moved)
        for taken in (self._current, self._ahead):
            if taken is not None and taken.begun is not None:
                taken.begun.drop()
        self._ahead = None
        self.drop()
        return together

    def _arm(self, stopping: Callable[[], bool]) -> None:
        """Let the calls of this run end early: at once while stopping, else when it is time."""
        interrupt = self._interrupt
        interrupt.due = False
        interrupt.bytes, interrupt.bytes_max = 0, self._pace.output_bytes_max
        if stopping():  # asked after it: a signal in between sets it, too
            interrupt.due = True
        self._watchdog.alarm(self.sizing.cut_after_s, interrupt)

    def run(
        self,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        *,
        stopping: Callable[[], bool] = bool,
    ) -> BatchResult | None:
        """Have few effects while ``stopping``; None: nothing had finished or was committed."""
        self._arm(stopping)
        current = self._current
        result = self._core.run(current.batch, rejected, attempt, current.begun)
        self.drop()
        return result

    def settle(self, batch: Batch, result: BatchResult) -> None:
        self._settle(batch, result)
        if result.records < len(batch.records):
            later = self.give_up()
            self.source.rewind({**later.next, **later.first, **batch.first, **result.progress})

    def _settle(self, batch: Batch, result: BatchResult) -> None:
        self.source.mark_processed(result.progress)
        self.suspects.record_progress(result.progress, batch)
        self.sizing.bounds.count(result.records)
        size = max(result.bytes_in, self._interrupt.bytes)
        self._pace.record_commit(result.records, result.working_s, size, result.transaction_s)

    def end(self, progress: Progress) -> None:
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
    return type(batch)(batch.records, {**later.first, **first}, {**ends, **later.next})


class Windowing(msgspec.Struct, frozen=True):
    """What a window holds, and who makes its calls.

    records_max, bytes_max  of the whole window
    at_once                 records that may be in calls at the same time
    """

    window: Window
    calls: SlotCalls
    isolation: Isolation
    records_max: int
    bytes_max: int
    at_once: int


class WindowRunner(BatchRunner):
    """Takes records into the window, and commits what of it has finished."""

    def __init__(self, *parts: Any, windowing: Windowing, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._limits = windowing
        self._window = windowing.window
        self._window.room.bytes_max = windowing.bytes_max
        self._window.room.most = self._pace.output_bytes_max
        self._calls = windowing.calls
        self._isolation = windowing.isolation
        self._intake = Batch([], {}, {})
        self._unstarted: deque[Call] = deque()
        self._held: set[TopicPartition] = set()

    @property
    def busy(self) -> int:
        return self._window.records

    def inside(self) -> Progress:
        return self._window.firsts()

    def take(self, wait_s: float, *, more: bool = True) -> Batch:
        """Return what has arrived, as far as there is room; wait only when nothing is inside."""
        room = self._room() if more else 0
        self.drop()
        if room <= 0:
            self.source.attend(0.0)
            return self._intake
        busy = self.busy
        self._intake = intake = self.source.take(room, 0.0 if busy else wait_s)
        if not busy:
            intake.next = {**self._window.hand_over_ends(), **intake.next}
        return intake

    def look_ahead(self) -> bool:
        """Take nothing ahead: the window is that."""
        return False

    def drop(self) -> None:
        """From here on nothing may put back what was committed."""
        super().drop()
        self._intake = Batch([], {}, {})

    def give_up(self, moved: Collection[TopicPartition] = ()) -> Batch:
        """Return where to read again: records of the failed transaction. The calls continue."""
        self.forget(moved)
        tried, intake = self._current.batch, self._intake
        ends = self._window.loose_ends()
        first = {**intake.first, **self._window.put_back()}
        self._unstarted.clear()
        self.drop()
        return Batch(tried.records, first, {**ends, **intake.next})

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that moved: their results are not wanted, their calls are cancelled."""
        if not partitions:
            return
        if gone := self._window.forget(partitions):
            self._calls.drop(gone)
        # The source delivers what comes back, but not what was held after it had come back unseen.
        self._release(self._held.intersection(partitions))

    def run(
        self,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        *,
        stopping: Callable[[], bool] = bool,
    ) -> BatchResult | None:
        """Let the intake in, and commit what has finished; None: nothing has."""
        self._arm(stopping)
        self._admit()
        self._start()
        most = self.sizing.retry.limit(self._pace.records)
        ready = self._window.ready(most)
        if ready is None:
            self._calls.wait(WAIT_S)
            ready = self._window.ready(most)
        if ready is None:
            return None
        batch, begun = ready
        self._current = Taken(batch, begun=begun)
        self.suspects.mark_next(batch, self._window.depth)
        return self._core.run(batch, rejected, attempt, begun)

    def settle(self, _batch: Batch, result: BatchResult) -> None:
        self._settle(self._current.batch, result)
        self._window.settle(result.progress)
        self._calls.start(())  # there is room for what waits
        self.drop()

    def drain(self) -> None:
        """Begin no further call; what has begun may end."""
        for call in self._unstarted:
            call.dropped = True
        self._unstarted.clear()
        self._window.cut(self._calls.begun())

    # -- one turn ---------------------------------------------------------------------------

    def _admit(self) -> None:
        intake, self._intake = self._intake, Batch([], {}, {})
        if intake.records:
            try:
                entering, begun = self._core.admit(intake)
            except BaseException:
                self._intake = intake  # to be put back
                raise
        elif intake.next:
            entering = intake
            begun = Begun(Identified([], [], {}, {}), None, {}, claimed=Claimed({}))
        else:
            return
        self._unstarted.extend(self._window.admit(entering, begun))

    def _start(self) -> None:
        """Begin calls in their order: suspects in a process of their own, alone in their time."""
        waiting, holds = self._unstarted, self._isolation.holds
        called = False
        while waiting:
            suspects = holds(waiting[0].record)
            if suspects and called and self._interrupt.due:
                return
            most = self._limits.at_once if suspects else len(waiting)
            group: list[Call] = []
            while waiting and len(group) < most and holds(waiting[0].record) == suspects:
                group.append(waiting.popleft())
            if suspects:
                called = True
                results = self._isolation.call([call.record for call in group], self._interrupt)
                for call, result in zip(group, results, strict=False):
                    call.answer(result, size_of_results([result]))
                waiting.extendleft(reversed(group[len(results) :]))
                continue
            for call in group:
                call.started = True
            self._calls.start(group)

    # -- room -------------------------------------------------------------------------------

    def _room(self) -> int:
        """Return how many records may enter, after holding back partitions that take too much."""
        limits, window, room = self._limits, self._window, self._window.room
        left = min(limits.records_max - window.records, self._pace.records)
        inside = window.partitions()
        if inside or self._held:
            share = self._share()
            full = {at for at in inside if window.depth(at) >= share or room.full(at)}
            self._hold(full - self._held)
            self._release(
                at
                for at in self._held - full
                if window.depth(at) <= share // 2 and 2 * room.of[at] <= room.share
            )
            if window.records:
                # As many as fit into half of what is free: their outputs come on top.
                free = max(limits.bytes_max - room.bytes, room.share)
                left = min(left, max(1, free * window.records // (SHARE * max(1, room.bytes))))
        return self.sizing.bounds.limit(window.records + left) - window.records

    def _share(self) -> int:
        """Return how many records a partition may hold; set how many bytes."""
        partitions = max(1, len(self.source.assignment()))
        limits = self._limits
        self._window.room.share = max(1, limits.bytes_max // partitions)
        return max(SHARE * limits.at_once, limits.records_max // (SHARE * partitions))

    def _hold(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            self.source.hold(where, "window", held=True)
            self._held.add(where)

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        for where in list(partitions):
            self._held.discard(where)
            self.source.hold(where, "window", held=False)
