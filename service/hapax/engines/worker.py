"""The worker: one process, one member of the consumer group, one batch at a time.

Everything happens on the thread that calls ``run``; what goes wrong is in recovery.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import StopError
from hapax.core.limits import Pace  # noqa: TC001 - msgspec reads Sizing's types
from hapax.core.ports import Batch
from hapax.core.retry_policy import RetryPolicy  # noqa: TC001 - as above
from hapax.engines.hold import Hold
from hapax.engines.idle_offsets import Bounds, Ends  # noqa: TC001 - as above
from hapax.engines.membership import Membership
from hapax.engines.recovery import REACTIONS

if TYPE_CHECKING:
    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import Clock, Core, Source, Stuck
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.lifecycle import Lifecycle
    from hapax.engines.recovery import Recovery
    from hapax.engines.suspects import Suspects
    from hapax.engines.watchdog import Watchdog
    from hapax.telemetry.events import Events

WAIT_S = 0.1
"""Longest wait for a record: also how late a signal is heard."""
DONE_INTERVAL_S = 0.5


class Sizing(msgspec.Struct):
    """What decides how much one batch holds, and how long it may take."""

    pace: Pace
    retry: RetryPolicy
    bounds: Bounds
    cut_after_s: float


class Worker:
    """Takes batches and runs them until asked to stop."""

    def __init__(  # noqa: PLR0913 - the composition root names each part once
        self,
        *,
        core: Core,
        source: Source,
        recovery: Recovery,
        events: Events,
        clock: Clock,
        lifecycle: Lifecycle,
        interrupt: Interrupt,
        watchdog: Watchdog,
        sizing: Sizing,
        ends: Ends,
        suspects: Suspects,
    ) -> None:
        self._core = core
        self._source = source
        self._recovery = recovery
        self._events = events
        self._clock = clock
        self._lifecycle = lifecycle
        self._interrupt = interrupt
        self._watchdog = watchdog
        self._pace = sizing.pace
        self._retry = sizing.retry
        self._bounds = sizing.bounds
        self._cut_after_s = sizing.cut_after_s
        self._ends = ends
        self._suspects = suspects
        self._batch = Batch([], {}, {})
        self._stuck: dict[TopicPartition, Stuck] = {}
        self._membership = Membership(source, events, clock)
        self._hold = Hold(lifecycle, events)
        self._done_seen_s = 0.0
        self._told: Progress = {}

    def run(self) -> None:
        """Work until asked to stop or the bounded run is done; raises StopError otherwise."""
        while not self._lifecycle.stopping:
            try:
                self._turn()
                if self._done():
                    self._lifecycle.stop("the bounded run is done")
            except REACTIONS as error:
                self._suspects.fail()
                if self._pace.fail(len(self._batch.records), error.transaction_s):
                    self._events.batch_halved(self._pace.records, str(error))
                self._recovery.recover(error, self._batch)
        self._leave()

    def _leave(self) -> None:
        """Commit what is behind the last records; without it the successor looks it up again."""
        pending = self._ends.pending()
        if pending and not self._lifecycle.overdue:
            with suppress(*REACTIONS, StopError):
                self._commit_ends(pending)
        if not self._lifecycle.overdue:
            with suppress(*REACTIONS, StopError):
                self._suspects.leave()

    def _turn(self) -> None:
        self._batch = Batch([], {}, {})
        self._recovery.fence_doubt()
        if self._hold.attend(self._source, WAIT_S):
            self._events.loop_moved()
            self._observe()
            return
        records_max = self._bounds.limit(self._retry.limit(self._pace.records))
        self._batch = batch = self._source.take(records_max, WAIT_S)
        self._events.loop_moved()
        self._observe()
        if batch.records:
            self._suspects.mark(batch)
            self._process(batch)
        else:
            self._end_idle(batch)

    def _process(self, batch: Batch) -> None:
        self._interrupt.due = self._lifecycle.stopping
        self._watchdog.alarm(self._cut_after_s, self._interrupt)
        result = self._core.run(batch, self._retry.rejected, self._retry.attempt)
        # From here on nothing may put this batch back: what fails later in this turn is not it.
        self._batch = Batch([], {}, {})
        progress = result.progress
        self._source.mark_processed(progress)
        self._suspects.record_progress(progress, batch)
        if result.records < len(batch.records):
            self._source.rewind({**batch.first, **progress})
        self._events.transaction_committed(result)
        for coordinates, failure in result.dead_letter_examples:
            self._events.dead_letter_written(
                coordinates, failure.reason, failure.attempts, failure.text
            )
        self._ends.record_commit(progress, self._clock.monotonic())
        self._bounds.count(result.records)
        self._pace.record_commit(
            result.records, result.working_s, result.bytes_in, result.transaction_s
        )
        self._recovery.record_success(progress)

    def _end_idle(self, batch: Batch) -> None:
        """Commit ends of partitions on which nothing is in flight."""
        self._suspects.idle(batch.next)
        self._ends.note(batch.next)
        partitions = self._ends.due(self._clock.monotonic())
        if partitions:
            self._commit_ends(partitions)

    def _commit_ends(self, partitions: list[tuple[str, int]]) -> None:
        ours = self._source.assignment()
        stable = self._source.committed([where for where in partitions if where in ours])
        self._source.mark_processed(
            {where: told for where, told in stable.items() if told is not None}
        )
        moved = self._ends.moved(stable, self._clock.monotonic())
        if moved:
            try:
                self._core.end(moved)
            except REACTIONS:
                self._ends.note(moved)
                raise
            self._source.mark_processed(moved)
            self._suspects.record_progress(moved)
            self._ends.record_commit(moved, 0.0)
            self._events.idle_offsets_committed(moved)
            self._recovery.record_success(moved)

    def _observe(self) -> None:
        changes = self._membership.observe()
        self._suspects.observe(changes)
        self._ends.forget([*(changes.assigned or []), *changes.revoked, *changes.lost])
        stuck = self._source.stuck()
        if stuck != self._stuck:
            self._stuck = dict(stuck)
            self._events.partition_stuck(self._stuck)
        self._membership.adopt_orphans()

    def _done(self) -> bool:
        """Whether a bounded run has reached its bound."""
        if self._bounds.spent:
            return True
        now_s = self._clock.monotonic()
        if not self._bounds.at_end or now_s - self._done_seen_s < DONE_INTERVAL_S:
            return False
        self._done_seen_s = now_s
        if self._bounds.wants_ends:
            self._bounds.start(self._source.ends())
        self._commit_ends(self._ends.pending())
        # The group's word counts, not ours: other members may have done the rest, and a position
        # that is only known to us (START=latest) is forgotten when we leave.
        stable = self._source.committed(self._bounds.missing(self._told))
        self._told |= {where: offset for where, offset in stable.items() if offset is not None}
        return not self._bounds.missing(self._told)
