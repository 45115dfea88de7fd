"""Workers that are broken on purpose: each must be caught, or the green of the others is worthless.

The first list is that of docs/proof.md: mistakes that loops of this kind are known to make."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from hapax.core.batch_result import Begun
from hapax.core.call_window import CallQueue, Window
from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.offset_commit import OffsetCommit
from hapax.core.plan import Planner
from hapax.core.ports import Batch
from hapax.core.records import Progress, TopicPartition
from hapax.core.transform import Transformer
from hapax.engines import batch_runner
from hapax.engines.batch_runner import BatchRunner, WindowRunner
from hapax.engines.recovery import Recovery
from hapax.engines.worker import Worker
from hapax.testing.broker import MemoryLog
from hapax.testing.claims import MemoryClaims
from hapax.testing.source import MemorySource
from hapax.testing.transaction import MemoryTransaction
from tests.kit import mutants
from tests.simulation.business import RETRY

Patch = Callable[[pytest.MonkeyPatch], None]


# -- Broken in what becomes of a batch that was taken ahead of its turn --------------------


def kept_when_the_one_before_it_fails(patch: pytest.MonkeyPatch) -> None:
    give_up = BatchRunner.give_up

    def keep(self: BatchRunner, moved: Collection[TopicPartition] = ()) -> Batch:
        ahead, self._ahead = self._ahead, None
        back = give_up(self, moved)
        self._ahead = ahead
        return back

    patch.setattr(BatchRunner, "give_up", keep)


def kept_when_its_partitions_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "_gave_up", lambda _self, _batch, _changes: False)


def where_it_began_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    together = batch_runner._together

    def alone(batch: Batch, _ahead: Any, moved: Collection[TopicPartition]) -> Batch:
        return together(batch, None, moved)

    patch.setattr(batch_runner, "_together", alone)


def read_from_where_it_began_although_it_moved(patch: pytest.MonkeyPatch) -> None:
    give_up = BatchRunner.give_up
    patch.setattr(BatchRunner, "give_up", lambda self, _moved=(): give_up(self))


# -- Broken in what becomes of a record that asks for a later try --------------------------


def offset_without_the_record_that_waits(patch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def careless(self: Planner, *values: Any, **named: Any) -> Any:
        made = plan(self, *values, **named)
        kept = [n for n, message in enumerate(made.messages) if message.topic != RETRY]
        made.messages = [made.messages[n] for n in kept]
        made.sources = [made.sources[n] for n in kept]
        return made

    patch.setattr(Planner, "plan", careless)


def record_that_waits_without_its_offset(patch: pytest.MonkeyPatch) -> None:
    send = MemoryTransaction.send

    def split(self: MemoryTransaction, messages: Any) -> None:
        waiting = [message for message in messages if message.topic == RETRY]
        if waiting:
            send(self, waiting)
            self.commit()
            self.begin()
        send(self, [message for message in messages if message.topic != RETRY])

    patch.setattr(MemoryTransaction, "send", split)


def the_end_passes_those_that_wait(patch: pytest.MonkeyPatch) -> None:
    read = MemorySource._read

    def hasty(self: MemorySource, where: Any, batch: Any, records_max: int) -> None:
        read(self, where, batch, records_max)
        if where[0] == RETRY and self._broker.fetch(where, self._position[where], 1):
            self._tell_end(where, batch, self._broker.logs[where].stable_end)

    patch.setattr(MemorySource, "_read", hasty)


# -- Broken in what a window makes of its calls --------------------------------------------


def commits_past_a_gap(patch: pytest.MonkeyPatch) -> None:
    ready = Window.ready

    def jumping(self: Window, records_max: int) -> Any:
        lines = dict(self._lines)
        for where, line in lines.items():
            self._lines[where] = type(line)(call for call in line if call.done) or line
        try:
            return ready(self, records_max)
        finally:
            self._lines.update(lines)

    patch.setattr(Window, "ready", jumping)


def commits_offsets_of_results_that_were_not_produced(patch: pytest.MonkeyPatch) -> None:
    ready = Window.ready

    def eager(self: Window, records_max: int) -> tuple[Batch, Begun] | None:
        found = ready(self, records_max)
        if found is not None:
            found[0].next.update({where: self._ends[where] for where in found[0].first})
        return found

    patch.setattr(Window, "ready", eager)


def lets_calls_of_one_key_overlap(patch: pytest.MonkeyPatch) -> None:
    made = CallQueue.__init__
    patch.setattr(CallQueue, "__init__", lambda self, _order, most: made(self, "none", most))


def keeps_results_of_a_revoked_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowRunner, "forget", lambda _self, _partitions: None)


def forgets_results_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Window, "_known", lambda _self, _where, _record: None)


def puts_back_only_what_was_tried(patch: pytest.MonkeyPatch) -> None:
    give_up = WindowRunner.give_up

    def partly(self: WindowRunner, moved: Any = ()) -> Batch:
        tried = self._current.batch.first
        back = give_up(self, moved)
        back.first = {where: at for where, at in back.first.items() if where in tried}
        return back

    patch.setattr(WindowRunner, "give_up", partly)


# -- All of them ---------------------------------------------------------------------------


class Mutant(NamedTuple):
    """What is broken, and the classes of which one must show.

    directed  the family of directed.py that shows it, for what chance does not find
    seed      a schedule that shows it
    """

    patch: Patch
    classes: tuple[str, ...]
    directed: str = ""
    seed: int = 0


def offsets_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    commit = MemoryTransaction.commit

    def send_offsets(self: MemoryTransaction, offsets: OffsetCommit) -> None:
        progress = {(one.topic, one.partition): one.offset for one in offsets.offsets}
        self._mutant_progress = progress  # type: ignore[attr-defined]

    def late(self: MemoryTransaction) -> None:
        commit(self)
        self._faults("offsets")
        progress = self._mutant_progress  # type: ignore[attr-defined]
        self._broker.committed.update(progress)
        self._broker.watch([], progress)

    patch.setattr(MemoryTransaction, "send_offsets", send_offsets)
    patch.setattr(MemoryTransaction, "commit", late)


def no_rewind_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    mutants.no_rewind(patch.setattr)


def no_group_metadata(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemorySource, "member", lambda _self: b":-1")


def read_uncommitted_input(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLog, "stable_end", MemoryLog.end)

    def at(self: MemoryLog, offset: int) -> Any:
        held = min((held[0] for held in self._open.values()), default=offset + 1)
        return self._entries[offset] if offset < held else None

    patch.setattr(MemoryLog, "at", at)


def a_failed_send_is_ignored(patch: pytest.MonkeyPatch) -> None:
    send = MemoryTransaction.send

    def careless(self: MemoryTransaction, messages: Any) -> None:
        try:
            send(self, messages)
        except BatchAbortedError:
            return

    patch.setattr(MemoryTransaction, "send", careless)


def abort_after_a_commit_without_answer(patch: pytest.MonkeyPatch) -> None:
    commit = MemoryTransaction.commit

    def hasty(self: MemoryTransaction) -> None:
        try:
            commit(self)
        except ProducerDeadError as error:
            self.open()
            raise BatchAbortedError("rolled back, surely") from error

    patch.setattr(MemoryTransaction, "commit", hasty)


def our_own_claim_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    claim = MemoryClaims.claim

    def dropping(self: MemoryClaims, ids: Any, records: Any, *rest: Any) -> Any:
        own = {index: records[index].coordinates for index, i in enumerate(ids) if self._found(i)}
        return {**own, **claim(self, ids, records, *rest)}

    patch.setattr(MemoryClaims, "claim", dropping)


def progress_by(distance: int) -> Patch:
    return lambda patch: mutants.progress_by(distance, patch.setattr)


def reset_to_latest(patch: pytest.MonkeyPatch) -> None:
    place = MemorySource._place

    def latest(self: MemorySource) -> None:
        new = {where for where in self._unplaced if where not in self._broker.committed}
        place(self)
        for where in new & self._position.keys():
            self._position[where] = self._settled[where] = self._broker.logs[where].stable_end

    patch.setattr(MemorySource, "_place", latest)


def two_transactions_without_gate(patch: pytest.MonkeyPatch) -> None:
    send = MemoryTransaction.send

    def split(self: MemoryTransaction, messages: Any) -> None:
        send(self, messages)
        self.commit()

    patch.setattr(MemoryTransaction, "send", split)


def no_fence_on_doubt(patch: pytest.MonkeyPatch) -> None:
    mutants.no_fence_on_doubt(patch.setattr)
    a_begin_that_does_not_refuse(patch)


def a_begin_that_does_not_refuse(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryTransaction, "_refuse_doubts", lambda _self: None)


def rewind_to_the_batch_although_the_outcome_is_open(patch: pytest.MonkeyPatch) -> None:
    def rewind(self: Recovery, batch: Batch, *, resolved: bool) -> Progress:
        self.put_back(batch)
        return batch.first

    patch.setattr(Recovery, "_rewind", rewind)


def rewind_without_a_place_for_partitions_never_committed(patch: pytest.MonkeyPatch) -> None:
    whole = Recovery._rewind

    def rewind(self: Recovery, batch: Batch, *, resolved: bool) -> Progress:
        settled, self._source.processed = self._source.processed, dict  # type: ignore[method-assign]
        try:
            return whole(self, batch, resolved=resolved)
        finally:
            self._source.processed = settled  # type: ignore[method-assign]

    patch.setattr(Recovery, "_rewind", rewind)


def no_put_back_while_claims_are_away(patch: pytest.MonkeyPatch) -> None:
    hold = Recovery._hold

    def forgetful(self: Recovery, reason: str, batch: Batch) -> None:
        hold(self, reason, type(batch)([], {}, {}))

    patch.setattr(Recovery, "_hold", forgetful)


def twins_are_not_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryClaims, "claim", lambda _self, *_claims: {})


def the_generation_before_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryClaims, "_found", lambda self, claim: self._newest().get(claim))


def claims_go_into_the_oldest_generation(patch: pytest.MonkeyPatch) -> None:
    newest = MemoryClaims._newest

    def oldest(self: MemoryClaims) -> Any:
        newest(self)
        return self._living()[-1][1]

    patch.setattr(MemoryClaims, "_newest", oldest)


def a_claim_that_is_found_gets_the_owner_that_asks(patch: pytest.MonkeyPatch) -> None:
    claim = MemoryClaims.claim

    def overwriting(self: MemoryClaims, ids: Any, records: Any, replays: Any, *rest: Any) -> Any:
        found = claim(self, ids, records, replays, *rest)
        for index in found:
            owner = replays.get(index) or records[index].coordinates
            self._drop(ids[index])
            self._newest()[ids[index]] = owner
        return found

    patch.setattr(MemoryClaims, "claim", overwriting)


def the_rest_of_a_cut_batch_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    process = Worker._process

    def ignore(progress: Any) -> None:
        return

    def forgetful(self: Worker, batch: Batch) -> None:
        rewind, self._source.rewind = self._source.rewind, ignore  # type: ignore[method-assign]
        try:
            process(self, batch)
        finally:
            self._source.rewind = rewind  # type: ignore[method-assign]

    patch.setattr(Worker, "_process", forgetful)


def dead_letters_are_not_written(patch: pytest.MonkeyPatch) -> None:
    apply = Transformer.apply

    def swallowing(self: Transformer, record: Any) -> Any:
        result = apply(self, record)
        return result if isinstance(result, tuple) else ()

    patch.setattr(Transformer, "apply", swallowing)


def outputs_leave_in_another_order(patch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def shuffled(self: Planner, *values: Any, **named: Any) -> Any:
        made = plan(self, *values, **named)
        made.messages = made.messages[::-1]
        made.sources = made.sources[::-1]
        return made

    patch.setattr(Planner, "plan", shuffled)


LOST = ("lost-write",)
TWICE = ("duplicate", "offset-effect")

MUTANTS = {
    "offsets outside the transaction": Mutant(offsets_outside_the_transaction, TWICE),
    "no rewind after an abort": Mutant(no_rewind_after_an_abort, LOST, seed=4),
    "no group metadata": Mutant(no_group_metadata, TWICE, seed=47),
    "read_uncommitted input": Mutant(read_uncommitted_input, ("phantom",)),
    "a failed send is ignored": Mutant(a_failed_send_is_ignored, (*LOST, "torn-txn"), seed=6),
    "abort after a commit without answer": Mutant(
        abort_after_a_commit_without_answer, TWICE, seed=105
    ),
    "our own claim is a duplicate": Mutant(
        our_own_claim_is_a_duplicate, (*LOST, "dedup-loss"), seed=1
    ),
    "offset one too high": Mutant(progress_by(1), LOST),
    "offset one too low": Mutant(progress_by(-1), TWICE),
    "reset to latest": Mutant(reset_to_latest, LOST, seed=2),
    "two transactions without gate": Mutant(two_transactions_without_gate, TWICE),
    "no fence on doubt": Mutant(no_fence_on_doubt, (*LOST, *TWICE), seed=6),
    "a begin that does not refuse": Mutant(
        a_begin_that_does_not_refuse, LOST, directed="stopped in doubt"
    ),
    "rewind to the batch although the outcome is open": Mutant(
        rewind_to_the_batch_although_the_outcome_is_open, (*LOST, *TWICE), seed=4
    ),
    "no place for partitions never committed": Mutant(
        rewind_without_a_place_for_partitions_never_committed, LOST, seed=21
    ),
    "no put back while claims are away": Mutant(no_put_back_while_claims_are_away, LOST, seed=6),
    "twins are not dropped": Mutant(twins_are_not_dropped, ("repeated",)),
    "the generation of claims before is not asked": Mutant(
        the_generation_before_is_not_asked, ("repeated",), seed=258
    ),
    "claims go into the oldest generation": Mutant(
        claims_go_into_the_oldest_generation, ("repeated",), seed=462
    ),
    "a claim that is found gets the owner that asks": Mutant(
        a_claim_that_is_found_gets_the_owner_that_asks, (*LOST, "dedup-loss"), seed=11
    ),
    "the rest of a cut batch is forgotten": Mutant(
        the_rest_of_a_cut_batch_is_forgotten, LOST, seed=224
    ),
    "a batch taken ahead is kept when the one before it fails": Mutant(
        kept_when_the_one_before_it_fails, TWICE, seed=44
    ),
    "a batch taken ahead is kept when its partitions leave": Mutant(
        kept_when_its_partitions_leave,
        TWICE,
        directed="came back in between",
    ),
    "where a batch taken ahead began is forgotten": Mutant(
        where_it_began_is_forgotten, LOST, seed=6
    ),
    "partitions that came back are read from where they were": Mutant(
        read_from_where_it_began_although_it_moved,
        TWICE,
        directed="came back in between",
    ),
    "a window commits past a gap": Mutant(commits_past_a_gap, LOST),
    "a window commits offsets of results that were not produced": Mutant(
        commits_offsets_of_results_that_were_not_produced, LOST
    ),
    "calls of one key overlap": Mutant(lets_calls_of_one_key_overlap, ("key-order",), seed=21),
    "results of a revoked partition are kept": Mutant(
        keeps_results_of_a_revoked_partition, (*LOST, *TWICE), seed=409
    ),
    "results are forgotten after an abort": Mutant(
        forgets_results_after_an_abort, ("called-twice",), seed=1
    ),
    "only what was tried is put back": Mutant(puts_back_only_what_was_tried, LOST, seed=11),
    "offset without the record that waits": Mutant(
        offset_without_the_record_that_waits, LOST, seed=5
    ),
    "record that waits without its offset": Mutant(
        record_that_waits_without_its_offset, TWICE, seed=5
    ),
    "the end passes those that wait": Mutant(the_end_passes_those_that_wait, LOST, seed=5),
    "dead letters are not written": Mutant(dead_letters_are_not_written, LOST, seed=2),
    "outputs leave in another order": Mutant(outputs_leave_in_another_order, ("order",)),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Let every worker of this process be broken in one way."""
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name].patch(patch)
        yield
