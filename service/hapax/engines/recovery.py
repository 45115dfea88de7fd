"""What the worker does when a batch did not go through. One reaction for each class of error.

ClaimsUnavailableError  hold the partitions until the claim store answers
BatchAbortedError       rewind; take it again, smaller or without its culprits when it is to blame
MemberFencedError       join the group again, within a budget
ProducerDeadError       new producer, within a budget; rewind to what the group says is committed
ClientsOutdatedError    new consumer and producer: their files have changed, or they are cut off
SchemasUnavailableError put the batch back; one partition waits (membership.py)
StateUnreadError        the same; partitions wait for their state (state_restore.py)

Errors named StopError pass through: they end the process with their exit code.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hapax.core.errors import (
    BatchAbortedError,
    ClaimsUnavailableError,
    ClientsOutdatedError,
    MemberFencedError,
    ProducerDeadError,
    SchemasUnavailableError,
    StateUnreadError,
    StopError,
)
from hapax.core.record_path import Batch
from hapax.engines.membership import HOLD_S, ClaimsWatch, await_answers, cut_off
from hapax.processing.limits import FenceBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hapax.core.ports import Claims, Source, Transaction
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.idle_offsets import Ends
    from hapax.engines.lifecycle import Process
    from hapax.processing.limits import Limits

REACTIONS = (
    ClaimsUnavailableError,
    BatchAbortedError,
    ProducerDeadError,
    MemberFencedError,
    ClientsOutdatedError,
    SchemasUnavailableError,
    StateUnreadError,
)
"""What ``recover`` knows how to react to."""
BACKOFF_S = 0.02
BACKOFF_MAX_S = 1.0
_NOTHING = Batch([], {}, {})


class Recovery:
    """Brings the worker back to a state that is certain."""

    def __init__(
        self,
        process: Process,
        source: Source,
        transaction: Transaction,
        claims: Claims | None,
        *,
        ends: Ends,
        limits: Limits,
    ) -> None:
        self._events = process.events
        self._clock = process.clock
        self._lifecycle = process.lifecycle
        self._source = source
        self._transaction = transaction
        self._process = process
        self.claims = ClaimsWatch(process.events, claims, waits=not limits.pass_on_outage)
        self._ends = ends
        self._retry = limits.retry
        self._fences = limits.producer_fences
        self._member_fences = limits.member_fences
        self._transaction_timeout_s = limits.transaction_timeout_s
        self._aborts = 0
        self._cut_off = False
        self._replacing: str | None = None
        """Why the producer is dead that has no successor yet."""

    def recover(self, error: Exception, batch: Batch) -> None:
        """React to ``error``, and to what goes wrong while reacting, until all is certain."""
        if self._lifecycle.stopping:  # nothing is visible, or the next start finds its outcome
            self._events.batch_abandoned(str(error))
            return
        pending = error
        while not self._lifecycle.overdue:
            try:
                self._renew_outdated()
                self._react(pending, batch)
                self._finish_replacing()
                self.fence_doubt()
            except REACTIONS as newer:
                pending = newer.with_traceback(None)
            else:
                return
            try:
                # Brokers may be away for long: serve rebalances and answer probes meanwhile.
                self._attend(HOLD_S)
            except REACTIONS as newer:
                pending = newer.with_traceback(None)
        text = f"shutdown interrupted an unresolved transaction ({pending})"
        raise StopError(f"{text}; the next start resolves it")

    def _react(self, error: Exception, batch: Batch) -> None:
        match error:
            case ClaimsUnavailableError():
                self._hold(str(error), batch)
            case ProducerDeadError():
                self._replace_producer(error)
            case MemberFencedError():
                self._replace_member(error)
            case BatchAbortedError():
                self._take_again(error, batch)
            case SchemasUnavailableError() | StateUnreadError():
                self.put_back(batch)
            case ClientsOutdatedError():
                pass  # done, also in the middle of an outage: it may come from these files
            case _:
                raise error

    def record_success(self, progress: Mapping[TopicPartition, int]) -> None:
        """Take note of a committed transaction, and fence it off when it left doubts."""
        self._aborts = 0
        self._fences.commit()
        self._retry.record_progress(progress)
        self.fence_doubt()

    # -- files of the clients -------------------------------------------------------------

    def check_clients(self) -> None:
        """Raise ClientsOutdatedError when their files have changed, or no broker answers them."""
        self._cut_off = self._cut_off or cut_off(self._source, self._events)
        if (self._lifecycle.outdated or self._cut_off) and not self._lifecycle.stopping:
            raise ClientsOutdatedError("files of the clients have changed, or they are cut off")

    def _renew_outdated(self) -> None:
        """Join with a new consumer; the new producer is built like that of a dead one."""
        if self._lifecycle.outdated or self._cut_off or cut_off(self._source, self._events):
            self._replacing = "files" if self._lifecycle.outdated else "cut_off"
            self._lifecycle.outdated = False  # before they read: what changes now is reported again
            self._renew()

    def _renew(self) -> None:
        self._cut_off = False
        self._source.renew()
        self._ends.forget()

    # -- aborted --------------------------------------------------------------------------

    def _take_again(self, error: BatchAbortedError, batch: Batch) -> None:
        self._aborts += 1
        rewound = self._rewind(batch, resolved=error.resolved)
        self._events.batch_aborted(str(error), len(batch.records), self._aborts, rewound)
        if not self._retry.blame(
            str(error),
            len(batch.records),
            batch.coordinates(0) if batch.records else None,
            culprits=error.culprits,
            content=error.content,
            on_halved=self._events.batch_halved,
        ):
            self._attend(min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(self._aborts, 6)))

    def _rewind(self, batch: Batch, *, resolved: bool) -> Progress:
        """Read again: the batch, or what the group says when a commit may have gone through."""
        if resolved:
            self.put_back(batch)
            return batch.first
        self._ends.forget()  # the seeks below bring new end-of-partition events
        ours = self._source.assignment()
        stable = self._source.committed(ours)
        fallback = self._source.processed()
        known = fallback | {where: at for where, at in stable.items() if at is not None}
        progress = {where: known[where] for where in stable if where in known}
        self._source.rewind(progress)
        return progress

    def put_back(self, batch: Batch) -> None:
        """Undo an intake whose transaction never committed: its records are read again."""
        self._source.rewind(batch.first)
        self._ends.forget(batch.first)
        self._ends.note({at: end for at, end in batch.next.items() if at not in batch.first})

    # -- producer -------------------------------------------------------------------------

    def fence_doubt(self) -> None:
        """Build a new producer when a request of the last transaction may still be on its way.

        The broker then refuses the late request. Before the first produce of the next
        transaction, because later is too late: the loop asks before each intake, whatever went
        wrong since, and right after a commit, so that the next record need not wait for it.
        """
        if doubts := list(self._transaction.doubts):
            self._events.in_doubt_fenced(doubts[0])
            self._open("doubt")

    def _replace_producer(self, error: ProducerDeadError) -> None:
        self._events.producer_died(str(error), fenced=error.fenced)
        self._replacing = "fenced" if error.fenced else "fatal"
        if error.fenced:
            # Lost partitions, and a consumer fenced by name, come first: a successor must not
            # be disturbed for partitions that are gone.
            with suppress(BatchAbortedError):  # the rewind below makes good for it
                self._attend(0.0)
            self._count_fence()

    def _finish_replacing(self) -> None:
        """Build the missing one, or the dead one is taken up and its fence counted twice."""
        if self._replacing is not None:
            self._open(self._replacing)
            if not await_answers(self._source, self._events, self._lifecycle):
                self._renew()
            self._rewind(_NOTHING, resolved=False)

    def _open(self, cause: str) -> None:
        began_s = self._clock.monotonic()
        self._replacing = cause
        if (failure := self._failure_of_open()) is not None:
            with self._holding():
                self._open_again(failure)
        self._replacing = None
        self._events.producer_rebuilt(cause, self._clock.monotonic() - began_s)

    def _open_again(self, failure: ProducerDeadError | None) -> None:
        hold_s = HOLD_S
        while failure is not None:
            (self._count_fence if failure.fenced else self._fences.unanswered)()
            if self._lifecycle.overdue:
                raise failure
            self._events.producer_init_retried(str(failure))
            cut_off(self._source, self._events)  # so that it is known by the end
            self._hold_on(hold_s)
            hold_s = min(BACKOFF_MAX_S, 2 * hold_s)  # each try builds a client: 10 ms of CPU
            failure = self._failure_of_open()

    def _failure_of_open(self) -> ProducerDeadError | None:
        """Open the transaction; what fails is returned outside of its handler, see worker.py."""
        try:
            self._transaction.open()
        except ProducerDeadError as error:
            return error.with_traceback(None)
        return None

    def _count_fence(self) -> None:
        explained = self._transaction.age_s >= self._transaction_timeout_s
        if self._fences.fence(self._clock.monotonic(), explained=explained):
            with self._holding():
                self._stand_back(self._hold_on)

    def _replace_member(self, error: MemberFencedError) -> None:
        self._events.member_fenced(str(error), explained=error.explained)
        if self._member_fences.fence(self._clock.monotonic(), explained=error.explained):
            self._stand_back(self._lifecycle.rest)
        self._source.reopen()
        self._ends.forget()

    def _stand_back(self, wait: Callable[[float], None]) -> None:
        """Let the other process of this name come back whole before taking the name again."""
        until_s = self._clock.monotonic() + FenceBudget.STAND_BACK_S
        while not self._lifecycle.stopping and self._clock.monotonic() < until_s:
            wait(HOLD_S)
            self._events.loop_moved()

    # -- claims ---------------------------------------------------------------------------

    def _hold(self, reason: str, batch: Batch) -> None:
        self.put_back(batch)
        self.claims.hold(reason, self._clock.monotonic())
        with self._holding():
            while not self._lifecycle.stopping and self.claims.holding(self._clock.monotonic()):
                self._hold_on(HOLD_S)

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Pause inside, as often as partitions may have come: a record would end each wait."""
        try:
            yield
        finally:
            self._source.resume("outage")

    def _hold_on(self, wait_s: float) -> None:
        self._source.pause("outage")
        self._attend(wait_s)

    def _attend(self, wait_s: float) -> None:
        self._source.attend(wait_s)
        self._events.loop_moved()
