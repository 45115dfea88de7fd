"""Duplicates whose owner can no longer be read: its claim is taken over (claim_owners.py)."""

from collections.abc import Collection
from typing import Any

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import Batch
from hapax.core.records import Coordinates, Record
from hapax.testing.broker import OFFSETS
from tests.kit.doubles import CrashError, Script, crashing_at
from tests.kit.pipeline import Pipeline, opened, run, taken


def claimed_then_killed(partition: int = 0, *, between: int = 0, **options: Any) -> Pipeline:
    """Event e at offset 0 is claimed; the worker dies; the sender repeats it; another starts."""
    script = Script()
    pipeline = opened(Pipeline(2, faults=script, **options))
    pipeline.write(b"e")
    script.then = crashing_at("begin")
    with pytest.raises(CrashError):
        run(pipeline)
    pipeline.write(*(b"between-%d" % number for number in range(between)))
    pipeline.write(b"e/2", partition=partition)
    pipeline.faults = Script()
    pipeline.broker.group.expel("w")
    pipeline.start("w2")
    return opened(pipeline)


@pytest.mark.parametrize("partition", [0, 1])
def test_the_survivor_of_a_compacted_pair_is_processed_although_the_lost_one_was_claimed(partition):
    pipeline = claimed_then_killed(partition)
    pipeline.broker.logs[("in", 0)].remove(0)
    settled = run(pipeline)
    assert (settled.claims_taken_over, settled.duplicates) == (1, 0)
    assert pipeline.outputs() == [b"E/2"]
    pipeline.write(b"e/3", partition=1 - partition)
    assert run(pipeline).duplicates == 1, "it belongs to the survivor now"
    assert pipeline.outputs() == [b"E/2"]


@pytest.mark.parametrize("batch_max", [1, 2, 500])
def test_the_survivor_is_processed_also_when_records_before_it_are_committed_first(batch_max):
    pipeline = claimed_then_killed(between=3, batch_max=batch_max, marked=True)
    pipeline.broker.logs[("in", 0)].remove(0)
    pipeline.run(open_first=False)
    assert pipeline.outputs() == [b"BETWEEN-0", b"BETWEEN-1", b"BETWEEN-2", b"E/2"]


def test_control_without_the_look_at_owners_the_survivor_is_dropped():
    pipeline = claimed_then_killed(trust="blind")
    pipeline.broker.logs[("in", 0)].remove(0)
    assert run(pipeline).duplicates == 1
    assert pipeline.outputs() == []


def test_an_owner_that_is_there_keeps_its_claim_and_the_ordinary_path_asks_brokers_nothing():
    pipeline = claimed_then_killed(partition=1)
    settled = run(pipeline)
    assert (settled.claims_taken_over, settled.duplicates) == (0, 1)
    assert pipeline.outputs() == [b"E"]
    pipeline = opened(Pipeline(2))
    pipeline.write(b"a", b"b", b"a/2")
    assert run(pipeline).duplicates == 1
    for name in (b"a/3", b"b/2", b"c", b"c/2"):
        pipeline.write(name)
    assert run(pipeline).duplicates == 3
    assert pipeline.owners.asked == {"committed": 0, "records": 0}


def test_a_topic_that_left_the_input_owns_nothing_that_it_has_not_committed():
    pipeline = opened(Pipeline())
    pipeline.broker.committed[("left", 0)] = 5
    for offset, name in ((4, b"done"), (5, b"open")):
        record = Record("left", 0, offset, None, None)
        pipeline.claims.claim([b"header:id\0" + name], [record], {})
    pipeline.write(b"done", b"open")
    settled = run(pipeline)
    assert (settled.claims_taken_over, settled.duplicates) == (1, 1)
    assert pipeline.outputs() == [b"OPEN"]


def test_coordinates_that_hold_another_event_own_nothing():
    """A recreated topic, a truncated log, or another cluster behind the same names."""
    pipeline = opened(Pipeline())
    pipeline.claims.claim([b"header:id\0e"], [Record("in", 0, 2, None, None)], {})
    pipeline.write(b"a", b"e", b"b")
    settled = run(pipeline)
    assert (settled.claims_taken_over, settled.duplicates) == (1, 0)
    assert pipeline.outputs() == [b"A", b"B", b"E"]


def test_an_owner_that_another_member_commits_before_it_is_removed_makes_a_duplicate():
    pipeline = claimed_then_killed(partition=1)
    owners, batch = pipeline.owners, taken(pipeline)
    twin = only(batch, partition=1)
    look = owners.records

    def commit_then_look(wanted: Collection[Coordinates]) -> Any:
        pipeline.broker.committed[("in", 0)] = 1
        pipeline.broker.logs[("in", 0)].remove(0)
        return look(wanted)

    owners.records = commit_then_look  # between two looks
    settled = run(pipeline, twin)
    assert (settled.claims_taken_over, settled.duplicates) == (0, 1)


@pytest.mark.parametrize("is_there", [False, True])
def test_while_the_owners_offset_is_in_an_open_transaction_only_one_there_decides(*, is_there):
    pipeline = claimed_then_killed(partition=1)
    twin = only(taken(pipeline), partition=1)
    if not is_there:
        pipeline.broker.logs[("in", 0)].remove(0)
    other = ("other", pipeline.broker.init_producer("other"))
    pipeline.broker.register(other, [OFFSETS])
    pipeline.broker.add_offsets(other, pipeline.broker.group.identity("w2"), {("in", 0): 1})
    if is_there:
        assert run(pipeline, twin).duplicates == 1
        return
    with pytest.raises(BatchAbortedError, match="UNSTABLE"):
        run(pipeline, twin)
    assert pipeline.outputs() == []


def test_after_a_start_one_look_at_the_offsets_is_enough_for_all_that_is_committed():
    pipeline = opened(Pipeline(2))
    pipeline.write(b"a", b"b")
    run(pipeline)
    pipeline.broker.group.expel("w")
    pipeline.start("w2")
    opened(pipeline)
    pipeline.write(b"a/2", b"b/2", partition=1)
    assert run(pipeline).duplicates == 2
    pipeline.write(b"a/3", partition=1)
    assert run(pipeline).duplicates == 1
    assert pipeline.owners.asked == {"committed": 1, "records": 0}


def only(batch: Batch, *, partition: int) -> Batch:
    batch.records = [record for record in batch.records if record.partition == partition]
    for places in (batch.first, batch.next):
        for where in [where for where in places if where[1] != partition]:
            del places[where]
    return batch


@pytest.mark.parametrize(("emptied", "left"), [(True, []), (False, [b"E"])])
def test_a_late_claim_of_a_dropped_duplicate_in_an_emptied_store_drops_the_first_copy(
    left, *, emptied
):
    """What docs/guarantees.md says of claims that nothing fences, as it happens today."""
    pipeline = claimed_then_killed(partition=1)
    both = taken(pipeline)
    first, duplicate = both.records
    assert run(pipeline, only(both, partition=1)).duplicates == 1
    if emptied:
        pipeline.claims.empty()
    late = pipeline.claims.claim([b"header:id\0e"], [duplicate], {})  # of a process that was frozen
    assert (late == {}) is emptied
    pipeline.source.rewind({("in", 0): 0})
    again = only(taken(pipeline), partition=0)
    assert again.records == [first]
    assert run(pipeline, again).duplicates == emptied
    assert pipeline.outputs() == left


def test_two_replays_of_one_original_by_tools_of_others_both_have_an_effect():
    """What docs/guarantees.md says of replays, as it happens today."""
    pipeline = opened(Pipeline())
    pipeline.write(b"e")
    run(pipeline)
    for value in (b"e/2", b"e/3"):
        pipeline.broker.write("in", value, headers=(("id", b"e"), ("hapax-replay-of", b"in/0/0")))
    run(pipeline)
    assert pipeline.outputs() == [b"E", b"E/2", b"E/3"]


def test_an_owner_that_is_committed_is_known_while_another_offset_is_pending(monkeypatch):
    pipeline = opened(Pipeline(2))
    pipeline.broker.committed[("in", 1)] = 5
    monkeypatch.setattr(pipeline.broker, "pending", lambda _where: True)
    lookup = pipeline.owners
    assert lookup.committed([("in", 1)], 1.0, stable=False) == {("in", 1): 5}
    with pytest.raises(BatchAbortedError, match="UNSTABLE"):
        lookup.committed([("in", 1)], 1.0, stable=True)


@pytest.mark.parametrize("in_turns", [True, False])
def test_owners_that_a_look_up_has_not_reached_are_read_by_the_next_and_none_twice(*, in_turns):
    pipeline = opened(Pipeline(2))
    names = [b"a", b"b", b"c", b"gone"]
    for offset, name in enumerate(names):
        pipeline.claims.claim([b"header:id\0" + name], [Record("in", 1, offset, None, None)], {})
    pipeline.write(*names[:3], partition=1)
    pipeline.write(*names)
    owners, twins, asked = pipeline.owners, only(taken(pipeline), partition=0), []
    look, owners.in_turns = owners.records, in_turns

    def one_each_time(wanted: Collection[Coordinates]) -> Any:
        asked.append(len(wanted))
        first, *others = sorted(wanted)
        found = look([first])
        found.next.update({("in", 1): others[0].offset} if others else {})
        return found

    owners.records = one_each_time
    for read in (1, 2, 3) if in_turns else ():
        with pytest.raises(BatchAbortedError, match=f"{read} of 4 owners"):
            run(pipeline, twins)
    settled = run(pipeline, twins)
    assert (settled.duplicates, settled.claims_taken_over, asked) == (3, 1, [4, 3, 2, 1])
