"""One batch, from intake to settle. The whole promise reads top to bottom here.

1. intake       the engine took a batch; nothing below the next offset is in it
2. identify     find each record's id
3. claim        one round trip: which ids belong to other coordinates (twins); under a backlog it
                travels while the batch before this one is in its steps 4 to 7
4. transform    business code; no transaction is open
5. plan         pure: outputs, dead letters, skipped, progress
6. transaction  begin, outputs, progress, commit: all visible at once, or nothing
7. settle       facts for telemetry; nothing is written anywhere

What a crash leaves: before 6 only claims, which name these very coordinates and let the
record through again. Inside 6 an open transaction, which the broker or the successor aborts.
After 6 nothing at all, because nothing follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr

from hapax.core.errors import BatchAbortedError, HapaxError, MemberFencedError, ProducerDeadError
from hapax.core.offset_commit import require_assigned
from hapax.core.record_path import UNCHANGED, RecordPath
from hapax.core.records import Output
from hapax.core.results import Failure, Undecided
from hapax.processing.batch_result import BatchResult, Begun, Facts, PhaseTimer
from hapax.processing.dead_letters import condemn
from hapax.processing.deduplicate import IdWatch
from hapax.processing.identity import to_reference
from hapax.processing.retry_later import LaterCalls
from hapax.processing.transform import decided

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.interrupt import Interrupt
    from hapax.core.offset_commit import Marks
    from hapax.core.ports import AppliesAll, Clock, Source, Transaction
    from hapax.core.record_path import Batch
    from hapax.core.records import Coordinates, Progress, TopicPartition
    from hapax.core.results import Result
    from hapax.processing.deduplicate import Claiming
    from hapax.processing.identity import Identified, Identity
    from hapax.processing.keyed_state import KeyedState
    from hapax.processing.limits import DeadLetterRate
    from hapax.processing.plan import Plan, Planner


class Steps(msgspec.Struct, frozen=True):
    """What decides about the records of a batch, before their transaction and as a condition of it.

    identity, claiming, transformer, planner   steps 2 to 5
    dead_letter_rate                           refuses a plan with too many failures
    decodes                                    step 4 may wait for schemas
    state                                      of transforms that keep some
    """

    identity: Identity
    claiming: Claiming
    transformer: AppliesAll
    planner: Planner
    dead_letter_rate: DeadLetterRate
    decodes: bool = False
    state: KeyedState | None = None


class ExactlyOnce:
    """Runs batches.

    Between two of them it holds the dead-letter rate, and the results of a batch that was aborted.
    """

    def __init__(
        self,
        steps: Steps,
        source: Source,
        transaction: Transaction,
        *,
        clock: Clock,
        interrupt: Interrupt,
    ) -> None:
        self._steps = steps
        self._transformer = steps.transformer
        self._kept: dict[Coordinates, Result] = {}
        """Results of the batch that was aborted last: its records are not called again."""
        self._later = self._transformer if isinstance(self._transformer, LaterCalls) else None
        self._ids = IdWatch(clock)
        self._dead_letter_rate = steps.dead_letter_rate
        self._source = source
        self._transaction = transaction
        self._state = steps.state
        self._clock = clock
        self._interrupt = interrupt

    def ask(self, batch: Batch) -> Begun:
        """Find the ids of ``batch`` and let its claim travel, in or before its turn.

        The batches before it must be settled when ``run`` judges the answer; one that is dropped
        has left claims that name its own coordinates. Raises StopError.
        """
        timer = PhaseTimer(self._clock)
        found = self._steps.identity.identify(batch.records)  # 2
        if batch.unreadable:  # without its headers it would claim another event's id
            found.claims = [
                b"" if index in batch.unreadable else claim
                for index, claim in enumerate(found.claims)
            ]
        timer.end("identify")
        asking = self._steps.claiming.ask(batch, found)
        timer.end("claim")
        return Begun(found, asking, timer.phases_s)

    def admit(self, batch: Batch) -> Begun:
        """Take steps 2 and 3; raise ClaimsUnavailableError, BatchAbortedError, StopError."""
        begun = self.ask(batch)
        to_reference(batch, begun.found)
        begun.claimed = claimed = self._steps.claiming.claim(batch, begun.found, begun.asking)
        begun.fates = _refused(batch, begun.found, {}) | dict.fromkeys(claimed.twins)
        if self._later is not None:
            begun.fates = {**self._later.not_due(batch.records), **begun.fates}
        _name(batch, begun.found)
        return begun

    def run(
        self,
        batch: Batch,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        begun: Begun | None = None,
    ) -> BatchResult:
        """Give every record of ``batch`` its one effect, or raise and leave none.

        ``rejected`` names records that the broker refused in earlier attempts: they become dead
        letters. ``begun``: what ``ask`` gave for this batch. Raises
        ClaimsUnavailableError, BatchAbortedError, ProducerDeadError, StopError.
        When step 4 was interrupted the answer covers a prefix: read on from ``result.offsets``.
        """
        begun = begun or self.ask(batch)
        found = begun.found
        if attempt > 1 or rejected or self._transaction.one_by_one:
            to_reference(batch, found)  # something is known against one of the records
        timer = PhaseTimer(self._clock, begun.phases_s)
        claimed = begun.claimed or self._steps.claiming.claim(batch, found, begun.asking)  # 3
        claimed.ids = self._ids.look(batch, found.claims, claimed)
        timer.end("claim")
        if claimed.unchecked:
            to_reference(batch, found)
        results = begun.results  # 4
        if results is None:
            results = self._transform(batch, found, claimed.twins, rejected)
        else:
            _reject(batch, results, rejected)
            if self._later is not None:
                results = self._later.finish(batch.records, results)
        if self._steps.decodes:
            results = decided(batch, results, keep=self._keep)
        timer.end("transform")
        progress = _progress(batch, len(results))
        plan = self._steps.planner.plan(  # 5
            batch.records, found.ids, results, progress, unchecked=claimed.unchecked
        )
        if self._state is not None:
            self._state.plan(plan, batch, results)
            _require_whole(self._state, plan, self._source)
        judged = len(results) - plan.moved  # what only waits on has neither failed nor succeeded
        self._dead_letter_rate.admit(judged, plan.failures, batch.records)
        timer.end("plan")
        try:
            self._execute(batch, plan, timer)  # 6
        except HapaxError:
            if begun.results is None:
                self._keep(batch, results)
            raise
        self._steps.claiming.settle(plan.progress)
        if self._state is not None:
            self._state.settle(plan.progress)
        self._dead_letter_rate.record_batch(judged, len(plan.failures))
        return BatchResult.of(  # 7
            batch,
            plan,
            Facts.of(batch, found.ids, len(results)),
            claimed,
            phases_s=timer.phases_s,
            attempt=attempt,
        )

    def end(self, progress: Progress, marks: Marks | None = None) -> None:
        """Commit progress alone: beyond control records and aborted data, or for its ``marks``."""
        self._transaction.begin()
        send_progress(self._source, self._transaction, progress, marks)
        self._transaction.commit()
        self._steps.claiming.settle(progress)
        if self._state is not None:
            self._state.move(progress)

    def _transform(
        self,
        batch: Batch,
        found: Identified,
        twins: Mapping[int, Coordinates],
        rejected: Mapping[Coordinates, Failure],
    ) -> list[Result | None]:
        """Return results by index, for all records or, when interrupted, for a prefix."""
        if self._state is not None:
            self._state.begin(batch, self._source.processed())
        if not isinstance(batch.records, RecordPath):  # which names them itself
            _name(batch, found)
        fates = _refused(batch, found, rejected) | dict.fromkeys(twins)
        if self._kept:
            fates = {**self._known(batch), **fates}
        return self._transformer.apply_all(batch.records, self._interrupt, fates)

    def _known(self, batch: Batch) -> dict[int, Result | None]:
        kept, self._kept = self._kept, {}
        places = [batch.coordinates(index) for index in range(len(batch.records))]
        return {index: kept[place] for index, place in enumerate(places) if place in kept}

    def _keep(self, batch: Batch, results: Sequence[Any]) -> None:
        """Keep answers for a repetition; the identity is called again, which costs less."""
        if self._state is not None:
            return
        self._kept = {
            batch.coordinates(index): (result,) if isinstance(result, Output) else result
            for index, result in enumerate(results)
            if result is not None and result is not UNCHANGED and not isinstance(result, Undecided)
        }

    def _execute(self, batch: Batch, plan: Plan, timer: PhaseTimer) -> None:
        transaction, began_s = self._transaction, self._clock.monotonic()
        transaction.begin()
        try:
            transaction.send(plan.messages)
            timer.end("send")
            send_progress(self._source, transaction, plan.progress, batch.marks)
            timer.end("send_offsets")
            transaction.commit()
            timer.end("commit")
        except (BatchAbortedError, ProducerDeadError) as error:
            error.transaction_s = self._clock.monotonic() - began_s
            if isinstance(error, BatchAbortedError):
                if self._state is not None and error.resolved:
                    self._state.put_back()
                # Adapters know messages. DeadLetterLimitError: a letter is cut to its end.
                blamed = {plan.sources[index]: why for index, why in error.refused.items()}
                error.culprits = {
                    (at := batch.coordinates(index)): condemn(at, why, plan.failures.get(index))
                    for index, why in blamed.items()
                }
            raise


def _require_whole(state: KeyedState, plan: Plan, source: Source) -> None:
    """Raise BatchAbortedError where another member may have what shares the state."""
    whole = state.together(plan.progress)
    if not whole <= plan.progress.keys():
        require_assigned(whole, source.assignment())


def _name(batch: Batch, found: Identified) -> None:
    for record, event_id in zip(batch.records, found.ids, strict=True):
        if event_id:
            force_setattr(record, "event_id", event_id)


def _reject(
    batch: Batch,
    results: list[Result | None] | dict[int, Result | None],
    rejected: Mapping[Coordinates, Failure],
) -> None:
    for index, record in enumerate(batch.records if rejected else ()):
        if record.coordinates in rejected:
            results[index] = rejected[record.coordinates]


def _refused(
    batch: Batch, found: Identified, rejected: Mapping[Coordinates, Failure]
) -> dict[int, Result | None]:
    why = {index: str(poison) for index, poison in found.poison.items()} | batch.unreadable
    refused: dict[int, Result | None]
    refused = {index: Failure("Poison", reason, 1) for index, reason in why.items()}
    _reject(batch, refused, rejected)
    return refused


def _progress(batch: Batch, done: int) -> Progress:
    if done == len(batch.records):
        return batch.next
    progress = {where: batch.next[where] for where in batch.next.keys() - batch.first.keys()}
    for index in range(done):
        record = batch.records[index]
        progress[(record.topic, record.partition)] = record.offset + 1
    return progress


def send_progress(
    source: Source,
    transaction: Transaction,
    progress: Mapping[TopicPartition, int],
    marks: Marks | None = None,
) -> None:
    """Read assignment and group metadata just before they are sent; a refusal rolls it back."""
    try:
        commit = source.offset_commit(progress, marks)
    except (BatchAbortedError, MemberFencedError):
        transaction.abort()
        raise
    transaction.send_offsets(commit)
