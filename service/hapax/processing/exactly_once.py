"""One batch, from intake to settle. The whole promise reads top to bottom here.

1. intake       the engine took a batch; nothing below the next offset is in it
2. identify     find each record's id
3. claim        one round trip: which ids belong to other coordinates (duplicates); under a backlog
                it travels while the batch before this one is in its steps 4 to 7
4. transform    business code; no transaction is open
5. plan         pure: outputs, dead letters, skipped, progress
6. transaction  begin, outputs, progress, commit: all visible at once, or nothing
7. settle       facts for telemetry; nothing is written anywhere

What a crash leaves: before 6 only claims, which name these very coordinates and let the
record through again. Inside 6 an open transaction, which the broker or the successor aborts.
After 6 nothing at all, because nothing follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import BatchAbortedError, HapaxError
from hapax.core.ports import send_progress
from hapax.processing.answers import Answers
from hapax.processing.batch_result import BatchResult, Begun, PhaseTimer
from hapax.processing.dead_letters import condemn
from hapax.processing.deduplicate import IdWatch
from hapax.processing.plan import BatchState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.interrupt import Interrupt
    from hapax.core.offset_commit import Marks
    from hapax.core.ports import AppliesAll, Clock, Source, Transaction
    from hapax.core.record_path import Batch, Plan
    from hapax.core.records import Coordinates, Progress
    from hapax.core.results import Failure
    from hapax.processing.answers import Around
    from hapax.processing.deduplicate import Claiming
    from hapax.processing.identity import Identity
    from hapax.processing.limits import DeadLetterRate
    from hapax.processing.plan import Planner


class Steps(msgspec.Struct, frozen=True):
    """What decides about the records of a batch, before their transaction and as a condition of it.

    identity, claiming, transformer, planner   steps 2 to 5
    dead_letter_rate                           refuses a plan with too many failures
    around                                     of step 4: options that know results, or change them
    state                                      of transforms that keep some
    """

    identity: Identity
    claiming: Claiming
    transformer: AppliesAll
    planner: Planner
    dead_letter_rate: DeadLetterRate
    around: Sequence[Around] = ()
    state: BatchState = BatchState()


class ExactlyOnce:
    """Runs batches. Between two of them it holds the dead-letter rate, and answers (answers.py)."""

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
        self._answers = Answers(
            steps.transformer, steps.around, interrupt, keeps=not steps.state.calls_again
        )
        self._ids = IdWatch(clock)
        self._source = source
        self._transaction = transaction
        self._state = steps.state
        self._clock = clock

    def ask(self, batch: Batch) -> Begun:
        """Find the ids of ``batch`` and let its claim travel, in or before its turn.

        The batches before it must be settled when ``run`` judges the answer; one that is dropped
        has left claims that name its own coordinates. Raises StopError.
        """
        timer = PhaseTimer(self._clock)
        found = batch.identified(self._steps.identity.identify)  # 2
        if batch.unreadable:  # without its headers it would claim another event's id
            found.claims = [
                b"" if index in batch.unreadable else claim
                for index, claim in enumerate(found.claims)
            ]
        timer.end("identify")
        asking = self._steps.claiming.ask(batch, found)
        timer.end("claim")
        return Begun(found, asking, timer.phases_s)

    def admit(self, batch: Batch) -> tuple[Batch, Begun]:
        """Take steps 2 and 3, and return the plain batch.

        Raises ClaimsUnavailableError, BatchAbortedError, StopError.
        """
        begun = self.ask(batch)
        batch = batch.plain(begun.found)
        begun.claimed = claimed = self._steps.claiming.claim(batch, begun.found, begun.asking)
        begun.preset = self._answers.preset(batch, begun.found, claimed, {})
        batch.name(begun.found.ids)
        return batch, begun

    def run(
        self,
        batch: Batch,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        begun: Begun | None = None,
    ) -> BatchResult:
        """Give every record of ``batch`` its one effect, or raise and leave none.

        ``rejected``: records that the broker refused in earlier attempts: they become dead letters.
        Raises ClaimsUnavailableError, BatchAbortedError, ProducerDeadError, StopError.
        When step 4 was interrupted the answer covers a prefix: read on from ``result.offsets``.
        """
        begun = begun or self.ask(batch)
        found = begun.found
        if attempt > 1 or rejected or self._transaction.one_by_one:
            batch = batch.plain(found)  # something is known against one of the records
        timer = PhaseTimer(self._clock, begun.phases_s)
        claimed = begun.claimed or self._steps.claiming.claim(batch, found, begun.asking)  # 3
        claimed.ids = self._ids.look(batch, found.claims, claimed)
        timer.end("claim")
        if claimed.unchecked:
            batch = batch.plain(found)
        self._state.begin(batch, self._source.processed)
        results = self._answers.of(batch, begun, claimed, rejected)  # 4
        timer.end("transform")
        progress = batch.progress(len(results))
        plan = self._steps.planner.plan_batch(  # 5
            batch, found.ids, results, progress, unchecked=claimed.unchecked
        )
        self._state.plan(plan, batch, results)
        self._state.require_whole(plan.progress, self._source)
        judged = len(results) - plan.moved  # what only waits on has neither failed nor succeeded
        self._steps.dead_letter_rate.admit(judged, plan.failures, batch.records)
        timer.end("plan")
        began_s = self._clock.monotonic()
        try:
            self._execute(batch, plan, timer)  # 6
        except HapaxError as error:
            error.transaction_s = self._clock.monotonic() - began_s
            if begun.results is None:
                self._answers.keep(batch, results)
            raise
        self._steps.claiming.settle(plan.progress)
        self._state.settle(plan.progress)
        self._steps.dead_letter_rate.record_batch(judged, len(plan.failures))
        return BatchResult.of(  # 7
            batch,
            plan,
            batch.facts(found.ids, len(results)),
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
        self._state.move(progress)

    def _execute(self, batch: Batch, plan: Plan, timer: PhaseTimer) -> None:
        transaction = self._transaction
        transaction.begin()
        try:
            transaction.send(plan.messages)
            timer.end("send")
            send_progress(self._source, transaction, plan.progress, batch.marks)
            timer.end("send_offsets")
            transaction.commit()
            timer.end("commit")
        except BatchAbortedError as error:
            if error.resolved:
                self._state.put_back()
            # Adapters know messages. DeadLetterLimitError: a letter is cut to its end.
            blamed = {plan.sources[index]: why for index, why in error.refused.items()}
            error.culprits = {
                (at := batch.coordinates(index)): condemn(at, why, plan.failures.get(index))
                for index, why in blamed.items()
            }
            raise
