"""Workers that are broken on purpose: each must be caught, or the green of the others is worthless.

The first list is that of docs/proof.md: mistakes that loops of this kind are known to make."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.offset_commit import OffsetCommit
from hapax.core.record_path import Batch, Outputs
from hapax.core.records import Progress, TopicPartition
from hapax.engines import batch_runner, state_restore
from hapax.engines.batch_runner import BatchRunner, WindowRunner
from hapax.engines.recovery import Recovery
from hapax.engines.worker import Worker
from hapax.processing.call_window import CallQueue, Window
from hapax.processing.keyed_state import KeyedState, changes_of
from hapax.processing.plan import Planner
from hapax.processing.state import Changes, State, Stated, changelog_key
from hapax.processing.transform import Transformer
from hapax.state_store import LmdbStore, StatePosition
from hapax.testing.broker import MemoryLog
from hapax.testing.claims import MemoryClaims
from hapax.testing.source import MemorySource, MemoryTransaction
from tests.kit import mutants
from tests.kit.mutants import Patch, in_place_of, replaced
from tests.simulation.business import RETRY

# -- Broken in what becomes of a batch that was taken ahead of its turn --------------------


@in_place_of(BatchRunner, "give_up")
def kept_when_the_one_before_it_fails(
    give_up: Any, self: BatchRunner, moved: Collection[TopicPartition] = ()
) -> Any:
    ahead, self._ahead = self._ahead, None
    back = give_up(self, moved)
    self._ahead = ahead
    return back


@in_place_of(batch_runner, "_together")
def where_it_began_is_forgotten(
    together: Any, batch: Batch, _ahead: Any, moved: Collection[TopicPartition]
) -> Any:
    return together(batch, None, moved)


def read_from_where_it_began_although_it_moved(patch: Patch) -> None:
    give_up = BatchRunner.give_up
    patch(BatchRunner, "give_up", lambda self, _moved=(): give_up(self))


# -- Broken in what becomes of a record that asks for a later try --------------------------


@in_place_of(Planner, "plan")
def offset_without_the_record_that_waits(
    plan: Any, self: Planner, *values: Any, **named: Any
) -> Any:
    made = plan(self, *values, **named)
    kept = [n for n, message in enumerate(made.messages) if message.topic != RETRY]
    made.messages = Outputs([made.messages[n] for n in kept])
    made.sources = [made.sources[n] for n in kept]
    return made


@in_place_of(MemoryTransaction, "send")
def record_that_waits_without_its_offset(send: Any, self: MemoryTransaction, messages: Any) -> None:
    waiting = [message for message in messages if message.topic == RETRY]
    if waiting:
        send(self, waiting)
        self.commit()
        self.begin()
    send(self, [message for message in messages if message.topic != RETRY])


@in_place_of(MemorySource, "_read")
def the_end_passes_those_that_wait(
    read: Any, self: MemorySource, where: Any, batch: Any, records_max: int
) -> None:
    read(self, where, batch, records_max)
    if where[0] == RETRY and self._broker.fetch(where, self._position[where], 1):
        self._tell_end(where, batch, self._broker.logs[where].stable_end)


# -- Broken in what a window makes of its calls --------------------------------------------


@in_place_of(Window, "ready")
def commits_past_a_gap(ready: Any, self: Window, records_max: int) -> Any:
    lines = dict(self._lines)
    for where, line in lines.items():
        self._lines[where] = type(line)(call for call in line if call.done) or line
    try:
        return ready(self, records_max)
    finally:
        self._lines.update(lines)


@in_place_of(Window, "ready")
def commits_offsets_of_results_that_were_not_produced(
    ready: Any, self: Window, records_max: int
) -> Any:
    found = ready(self, records_max)
    if found is not None:
        found[0].next.update({where: self._ends[where] for where in found[0].first})
    return found


def lets_calls_of_one_key_overlap(patch: Patch) -> None:
    made = CallQueue.__init__
    patch(CallQueue, "__init__", lambda self, _order, most, **_how: made(self, "none", most))


@in_place_of(WindowRunner, "give_up")
def puts_back_only_what_was_tried(give_up: Any, self: WindowRunner, moved: Any = ()) -> Any:
    tried = self._current.batch.first
    back = give_up(self, moved)
    back.first = {where: at for where, at in back.first.items() if where in tried}
    return back


# -- Broken in what becomes of keyed state --------------------------------------------------


@in_place_of(KeyedState, "plan")
def applied_before_the_commit(plan: Any, self: KeyedState, *values: Any) -> None:
    plan(self, *values)
    done = {where: at for where, at in values[0].progress.items() if where in self._in_work}
    self._store.apply(self._planned, done, self._newest)


@in_place_of(LmdbStore, "restore")
def the_tail_of_the_changelog_is_skipped(
    restore: Any, self: LmdbStore, changes: Changes, rows: dict[TopicPartition, StatePosition]
) -> None:
    before = self.row(min(rows))
    whole = before is None or before.input is None
    restore(self, changes if whole else {}, rows)


@in_place_of(KeyedState, "plan")
def expiry_reads_only_the_store(
    plan: Any, self: KeyedState, made: Any, batch: Batch, results: Any
) -> None:
    plan(self, made, batch, results)
    last = {record.partition: 0 for record in batch.records}
    due = {entry for entry, _ in self._expired(last, len(results))}
    keys = {(int.from_bytes(entry[:4], "big"), changelog_key(entry)) for entry in due}
    made.messages = [
        replace(one, value=None)
        if (one.topic, one.partition, one.key) in {(self._topic, *key) for key in keys}
        else one
        for one in made.messages
    ]
    self._planned |= dict.fromkeys(due)


@in_place_of(KeyedState, "plan")
def all_changes_go_to_one_partition(plan: Any, self: KeyedState, made: Any, *values: Any) -> None:
    plan(self, made, *values)
    made.messages = Outputs(
        [replace(one, partition=0) if one.topic == self._topic else one for one in made.messages]
    )


@in_place_of(State, "set")
def changes_outlive_a_call_that_failed(
    set_: Any, self: State[Any], *values: Any, **how: Any
) -> None:
    set_(self, *values, **how)
    self.batch.update(self.changes)


@in_place_of(KeyedState, "settle")
def positions_move_without_what_was_changed(
    settle: Any, self: KeyedState, progress: Progress
) -> None:
    self._planned = {}
    settle(self, progress)


@in_place_of(Transformer, "apply_all")
def duplicates_change_the_state(
    apply_all: Any, self: Transformer, batch: Any, interrupt: Any, preset: Any
) -> Any:
    others = {index: known for index, known in preset.items() if known is not None}
    found = apply_all(self, batch, interrupt, others)
    for index in (index for index in preset.keys() - others.keys() if index < len(found)):
        changes, found[index] = changes_of(found[index]), None
        if changes is not None:
            found[index] = Stated()
            found[index].changes, found[index].at_ms = changes, batch.records[index].timestamp_ms
    return found


def another_incarnation(usable: Any, row: StatePosition, store: Any, *values: Any) -> bool:
    row.of = store.of
    return bool(usable(row, store, *values))


# -- All of them ---------------------------------------------------------------------------


class Mutant(NamedTuple):
    """What is broken, and the classes of which one must show.

    directed  the family of directed.py that shows it, for what chance does not find
    seed      a schedule that shows it
    """

    patch: mutants.Mutant
    classes: tuple[str, ...]
    directed: str = ""
    seed: int = 0


def offsets_outside_the_transaction(patch: Patch) -> None:
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

    patch(MemoryTransaction, "send_offsets", send_offsets)
    patch(MemoryTransaction, "commit", late)


def read_uncommitted_input(patch: Patch) -> None:
    patch(MemoryLog, "stable_end", MemoryLog.end)

    def at(self: MemoryLog, offset: int) -> Any:
        held = min((held[0] for held in self._open.values()), default=offset + 1)
        return self._entries[offset] if offset < held else None

    patch(MemoryLog, "at", at)


@in_place_of(MemoryTransaction, "send")
def a_failed_send_is_ignored(send: Any, self: MemoryTransaction, messages: Any) -> None:
    try:
        send(self, messages)
    except BatchAbortedError:
        return


@in_place_of(MemoryTransaction, "commit")
def abort_after_a_commit_without_answer(commit: Any, self: MemoryTransaction) -> None:
    try:
        commit(self)
    except ProducerDeadError as error:
        self.open()
        raise BatchAbortedError("rolled back, surely") from error


@in_place_of(MemoryClaims, "_claimed")
def our_own_claim_is_a_duplicate(claim: Any, self: MemoryClaims, wanted: Any) -> Any:
    known = [index for index, each in enumerate(wanted.ids) if self._found(each)]
    own = {index: wanted.records[index].coordinates for index in known}
    return {**own, **claim(self, wanted)}


@in_place_of(MemorySource, "_place")
def reset_to_latest(place: Any, self: MemorySource) -> None:
    new = {where for where in self._unplaced if where not in self._broker.committed}
    place(self)
    for where in new & self._position.keys():
        self._position[where] = self._settled[where] = self._broker.logs[where].stable_end


@in_place_of(MemoryTransaction, "send")
def two_transactions_without_gate(send: Any, self: MemoryTransaction, messages: Any) -> None:
    send(self, messages)
    self.commit()


a_begin_that_does_not_refuse = replaced(MemoryTransaction, "_refuse_doubts", lambda _self: None)


def no_fence_on_doubt(patch: Patch) -> None:
    mutants.no_fence_on_doubt(patch)
    a_begin_that_does_not_refuse(patch)


@in_place_of(Recovery, "_rewind")
def rewind_to_the_batch_although_the_outcome_is_open(
    _real: Any, self: Recovery, batch: Batch, *, resolved: bool
) -> Progress:
    self.put_back(batch)
    return batch.first


@in_place_of(Recovery, "_rewind")
def rewind_without_a_place_for_partitions_never_committed(
    whole: Any, self: Recovery, batch: Batch, *, resolved: bool
) -> Any:
    settled, self._source.processed = self._source.processed, dict  # type: ignore[method-assign]
    try:
        return whole(self, batch, resolved=resolved)
    finally:
        self._source.processed = settled  # type: ignore[method-assign]


@in_place_of(Recovery, "_hold")
def no_put_back_while_claims_are_away(hold: Any, self: Recovery, reason: str, batch: Batch) -> None:
    hold(self, reason, type(batch)([], {}, {}))


@in_place_of(MemoryClaims, "_newest")
def claims_go_into_the_oldest_generation(newest: Any, self: MemoryClaims) -> Any:
    newest(self)
    return self._living()[-1][1]


@in_place_of(MemoryClaims, "_claimed")
def a_claim_that_is_found_gets_the_owner_that_asks(
    claim: Any, self: MemoryClaims, wanted: Any
) -> Any:
    found = claim(self, wanted)
    for index in found:
        owner = wanted.replays.get(index) or wanted.records[index].coordinates
        self._drop(wanted.ids[index])
        self._newest()[wanted.ids[index]] = owner
    return found


def the_rest_of_a_cut_batch_is_forgotten(patch: Patch) -> None:
    process = Worker._process

    def ignore(progress: Any) -> None:
        return

    def forgetful(self: Worker, batch: Batch) -> None:
        rewind, self._source.rewind = self._source.rewind, ignore  # type: ignore[method-assign]
        try:
            process(self, batch)
        finally:
            self._source.rewind = rewind  # type: ignore[method-assign]

    patch(Worker, "_process", forgetful)


@in_place_of(Transformer, "apply")
def dead_letters_are_not_written(apply: Any, self: Transformer, record: Any) -> Any:
    result = apply(self, record)
    return result if isinstance(result, tuple) else ()


@in_place_of(Planner, "plan")
def outputs_leave_in_another_order(plan: Any, self: Planner, *values: Any, **named: Any) -> Any:
    made = plan(self, *values, **named)
    made.messages = Outputs(made.messages[::-1])
    made.sources = made.sources[::-1]
    return made


LOST = ("lost-write",)
KEPT = ("state", "store")
TWICE = ("duplicate", "offset-effect")

MUTANTS = {
    "offsets outside the transaction": Mutant(offsets_outside_the_transaction, TWICE),
    "no rewind after an abort": Mutant(mutants.no_rewind, LOST, seed=4),
    "no group metadata": Mutant(
        replaced(MemorySource, "member", lambda _self: b":-1"), TWICE, seed=47
    ),
    "read_uncommitted input": Mutant(read_uncommitted_input, ("phantom",)),
    "a failed send is ignored": Mutant(a_failed_send_is_ignored, (*LOST, "torn-txn"), seed=6),
    "abort after a commit without answer": Mutant(
        abort_after_a_commit_without_answer, TWICE, seed=105
    ),
    "our own claim is a duplicate": Mutant(
        our_own_claim_is_a_duplicate, (*LOST, "dedup-loss"), seed=1
    ),
    "offset one too high": Mutant(partial(mutants.progress_by, 1), LOST),
    "offset one too low": Mutant(partial(mutants.progress_by, -1), TWICE),
    "reset to latest": Mutant(reset_to_latest, LOST, seed=2),
    "two transactions without gate": Mutant(two_transactions_without_gate, TWICE),
    "no fence on doubt": Mutant(no_fence_on_doubt, (*LOST, *TWICE), seed=69),
    "a begin that does not refuse": Mutant(
        a_begin_that_does_not_refuse, LOST, directed="stopped in doubt"
    ),
    "rewind to the batch although the outcome is open": Mutant(
        rewind_to_the_batch_although_the_outcome_is_open, (*LOST, *TWICE), seed=4
    ),
    "no place for partitions never committed": Mutant(
        rewind_without_a_place_for_partitions_never_committed, LOST, seed=21
    ),
    "no put back while claims are away": Mutant(no_put_back_while_claims_are_away, LOST, seed=323),
    "twins are not dropped": Mutant(
        replaced(MemoryClaims, "_claimed", lambda _self, *_claims: {}), ("repeated",)
    ),
    "the generation of claims before is not asked": Mutant(
        replaced(MemoryClaims, "_found", lambda self, claim: self._newest().get(claim)),
        ("repeated",),
        seed=462,
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
        replaced(Worker, "_gave_up", lambda _self, _batch, _changes: False),
        TWICE,
        directed="came back in between",
    ),
    "where a batch taken ahead began is forgotten": Mutant(
        where_it_began_is_forgotten, LOST, seed=27
    ),
    "partitions that came back are read from where they were": Mutant(
        read_from_where_it_began_although_it_moved, TWICE, directed="came back in between"
    ),
    "a window commits past a gap": Mutant(commits_past_a_gap, LOST),
    "a window commits offsets of results that were not produced": Mutant(
        commits_offsets_of_results_that_were_not_produced, LOST
    ),
    "calls of one key overlap": Mutant(lets_calls_of_one_key_overlap, ("key-order",), seed=21),
    "results of a revoked partition are kept": Mutant(
        replaced(WindowRunner, "forget", lambda _self, _partitions: None), (*LOST, *TWICE), seed=409
    ),
    "results are forgotten after an abort": Mutant(
        replaced(Window, "_known", lambda _self, _where, _record: None), ("called-twice",), seed=1
    ),
    "only what was tried is put back": Mutant(puts_back_only_what_was_tried, LOST, seed=11),
    "offset without the record that waits": Mutant(
        offset_without_the_record_that_waits, LOST, seed=5
    ),
    "record that waits without its offset": Mutant(
        record_that_waits_without_its_offset, TWICE, seed=5
    ),
    "the end passes those that wait": Mutant(the_end_passes_those_that_wait, LOST, seed=5),
    "dead letters are not written": Mutant(dead_letters_are_not_written, LOST, seed=26),
    "state is applied before the commit": Mutant(applied_before_the_commit, KEPT, seed=2),
    "the tail of the changelog is skipped": Mutant(
        the_tail_of_the_changelog_is_skipped, KEPT, seed=2
    ),
    "what a batch has changed outlives its abort": Mutant(
        replaced(KeyedState, "clear", lambda self: self._in_work.clear()), KEPT, seed=6
    ),
    "expiry reads only the store": Mutant(expiry_reads_only_the_store, KEPT, seed=266),
    "all changes go to one partition": Mutant(all_changes_go_to_one_partition, KEPT, seed=6),
    "changes outlive a call that failed": Mutant(
        changes_outlive_a_call_that_failed, KEPT, seed=179
    ),
    "positions move without what was changed": Mutant(
        positions_move_without_what_was_changed, KEPT, seed=2
    ),
    "duplicates change the state": Mutant(duplicates_change_the_state, KEPT, seed=2),
    "nothing asks where the store is": Mutant(
        replaced(KeyedState, "begin", lambda self, *_: self.put_back()), KEPT, seed=2
    ),
    "a store of another incarnation is read on": Mutant(
        in_place_of(state_restore, "_usable")(another_incarnation), KEPT, seed=7
    ),
    "a change names only its own input": Mutant(
        replaced(KeyedState, "_sign", lambda *_: None), KEPT, seed=6312
    ),
    "the state of one input is where another is": Mutant(
        replaced(KeyedState, "together", lambda _self, places: {*places}), KEPT, seed=970
    ),
    "outputs leave in another order": Mutant(outputs_leave_in_another_order, ("order",)),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Let every worker of this process be broken in one way."""
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name].patch(patch.setattr)
        yield
