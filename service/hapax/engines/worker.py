"""The worker: one process, one member of the consumer group, one batch at a time.

Under a backlog the claim of the next batch travels meanwhile (batch_runner.py).
Everything happens on the thread that calls ``run``; what goes wrong is in recovery.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.core.errors import (
    ClientsOutdatedError,
    ConfigurationError,
    DeadLetterLimitError,
    SchemasUnavailableError,
    StateUnreadError,
    StopError,
)
from hapax.engines.idle_offsets import EndOfRun
from hapax.engines.membership import Hold, Membership, tell_committed
from hapax.engines.recovery import REACTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.errors import HapaxError
    from hapax.core.ports import Changes, Stuck
    from hapax.core.record_path import Batch
    from hapax.core.records import TopicPartition
    from hapax.engines.batch_runner import BatchRunner
    from hapax.engines.idle_offsets import Ends
    from hapax.engines.lifecycle import Process
    from hapax.engines.membership import PartitionHold
    from hapax.engines.recovery import Recovery

WAIT_S = 0.1
"""Longest wait for a record: also how late a signal is heard."""
LEAVE_S = 1.0
"""Of the time to stop, for the last commits: calls in flight have the rest."""

_CALM = (ClientsOutdatedError, SchemasUnavailableError, StateUnreadError)
"""After these the next batch is no smaller."""


class Worker:
    """Takes batches and runs them until asked to stop."""

    def __init__(
        self,
        process: Process,
        runner: BatchRunner,
        recovery: Recovery,
        ends: Ends,
        holds: Sequence[PartitionHold] = (),
    ) -> None:
        self._events = process.events
        self._clock = process.clock
        self._lifecycle = process.lifecycle
        self._runner = runner
        self._source = runner.source
        self._suspects = runner.suspects
        self._retry = runner.sizing.retry
        self._bounds = runner.sizing.bounds
        self._recovery = recovery
        self._ends = ends
        self._holds = holds
        self._stuck: dict[TopicPartition, Stuck] = {}
        self._membership = Membership(self._source, process.events, process.clock)
        self._hold = Hold(process.lifecycle, process.events)
        self._end = EndOfRun(process, self._source, self._bounds)

    def run(self) -> None:
        """Work until asked to stop or the bounded run is done; raises StopError otherwise."""
        try:
            self._work()
        except (ConfigurationError, DeadLetterLimitError):
            with suppress(*REACTIONS, StopError):
                self._suspects.leave()  # an orderly end of this process is no death
            raise
        finally:
            self._runner.give_up()  # clients are closed next, and no record may hold them
        self._leave()

    def _work(self) -> None:
        while self._wanted():
            failure = self._failure_of_turn()
            if failure is not None:
                calm = isinstance(failure, _CALM)
                if not calm and self._runner.fail(failure):
                    self._events.batch_halved(self._runner.sizing.pace.records, str(failure))
                self._recovery.recover(failure, self._runner.give_up())
                for hold in self._holds:
                    hold.add(failure)

    def _failure_of_turn(self) -> HapaxError | None:
        """Take a turn; return what is to be recovered from, outside of its handler.

        A client that raises inside of one keeps the handled exception indefinitely, and with its
        frames a producer that is dead (tests/contract/test_closing.py). The frames are
        let go of: with them it would wait for the collector of cycles.
        """
        try:
            self._turn()
            if self._done():
                self._lifecycle.stop("the bounded run is done")
        except REACTIONS as error:
            return error.with_traceback(None)
        return None

    def _wanted(self) -> bool:
        """Whether there is more to do; while stopping, until the calls in flight have ended."""
        if not self._lifecycle.stopping:
            return True
        self._runner.drain()
        left = self._runner.busy
        if self._lifecycle.given_up is None:
            self._events.service_draining(self._lifecycle.reason, left)
        self._lifecycle.given_up = left
        return left > 0 and self._lifecycle.left_s > LEAVE_S

    def _leave(self) -> None:
        """Commit what is after the last records; without it the successor looks it up again."""
        pending = self._ends.pending()
        if pending and not self._lifecycle.overdue:
            with suppress(*REACTIONS, StopError):
                self._commit_ends(pending)
        # However late it is: a mark that stays counts as a death. After a failure there is none to
        # clear, and the watchdog bounds it.
        with suppress(*REACTIONS, StopError):
            self._suspects.leave()

    def _turn(self) -> None:
        self._runner.drop()
        self._recovery.check_clients()
        self._recovery.fence_doubt()
        self._recovery.claims.look(self._clock.monotonic())
        for hold in self._holds:
            hold.attend(self._source)
        # What was taken ahead goes through first: to hold is to take nothing more.
        waiting, busy = self._runner.waiting, self._runner.busy
        if not waiting and not busy and self._hold.attend(self._source, WAIT_S):
            self._events.loop_moved()
            self._observe()
            return
        more = not (self._lifecycle.stopping or self._lifecycle.paused)
        batch = self._runner.take(WAIT_S, more=more)
        self._events.loop_moved()
        changes = self._observe()
        if waiting and self._gave_up(batch, changes):
            return
        if batch.records:
            self._suspects.mark(batch, self._runner.inside())
            # The next batch is taken where that is due; partitions may have moved by then.
            wanted = not self._lifecycle.stopping and not self._lifecycle.paused
            ahead = wanted and self._runner.look_ahead()
            if not ahead or not self._gave_up(batch, self._observe()):
                self._process(batch)
        elif busy:
            self._process(batch)
        else:
            self._suspects.idle(batch.next)
            self._ends.note(batch.next)
            if partitions := self._ends.due(self._clock.monotonic()):
                self._commit_ends(partitions)

    def _gave_up(self, batch: Batch, changes: Changes) -> bool:
        """Put back a batch that has not begun when its partitions were assigned again since.

        Another member may have had them in between: even where they came back, the batch may hold
        what that member has committed.
        """
        moved = changes.moved
        if moved.isdisjoint(batch.next):
            return False
        self._recovery.put_back(self._runner.give_up(moved))
        return True

    def _process(self, batch: Batch) -> None:
        result = self._runner.run(
            self._retry.rejected, self._retry.attempt, stopping=lambda: self._lifecycle.stopping
        )
        if result is None:
            return
        self._runner.settle(batch, result)
        tell_committed(result, self._events)
        self._ends.record_commit(result.progress, self._clock.monotonic())
        self._recovery.record_success(result.progress)

    def _commit_ends(self, partitions: list[tuple[str, int]]) -> None:
        ours = self._source.assignment()
        stable = self._source.committed([where for where in partitions if where in ours])
        self._source.mark_processed({where: at for where, at in stable.items() if at is not None})
        if moved := self._ends.moved(stable, self._clock.monotonic()):
            try:
                self._runner.end(moved)
            except REACTIONS:
                self._ends.note(moved)
                raise
            self._ends.record_commit(moved, 0.0)
            self._events.idle_offsets_committed(moved)
            self._recovery.record_success(moved)

    def _observe(self) -> Changes:
        changes = self._membership.observe()
        self._suspects.observe(changes)
        self._runner.forget(changes.moved)
        self._ends.forget(changes.moved)
        for hold in self._holds:
            hold.forget(changes.moved)
        stuck = self._source.stuck()
        if stuck != self._stuck:
            self._stuck = dict(stuck)
            self._events.partition_stuck(self._stuck)
        self._membership.adopt_orphans()
        return changes

    def _done(self) -> bool:
        if self._bounds.spent:
            return True
        if not self._end.due():
            return False
        self._commit_ends(self._ends.pending())
        return self._end.reached({})
