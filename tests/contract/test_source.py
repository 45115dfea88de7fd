"""The Source port: what every implementation keeps, in memory and on a broker."""

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import Batch
from tests.kit.worlds import INTAKES_MAX, joined, message, take

TEN = [b"%d" % number for number in range(10)]


def values(batches: list[Batch]) -> list[bytes | None]:
    return [record.value for batch in batches for record in batch.records]


def test_records_come_in_order_per_partition_with_first_and_next(world):
    world.write(*TEN)
    world.write(*TEN[:4], partition=1)
    joined(world)
    batches = take(world, 14, records_max=5)
    assert all(len(batch.records) <= 5 for batch in batches)
    for number, expected in ((0, TEN), (1, TEN[:4])):
        where = (world.topic, number)
        offset = 0
        for batch in batches:
            ours = [record for record in batch.records if record.partition == number]
            if ours:
                assert batch.first[where] == ours[0].offset == offset
                offset += len(ours)
                assert batch.next[where] == offset
            else:
                assert where not in batch.first
        assert offset == len(expected)
    by_partition = [
        (record.partition, record.offset, record.value)
        for batch in batches
        for record in batch.records
    ]
    assert sorted(by_partition) == [
        *((0, offset, value) for offset, value in enumerate(TEN)),
        *((1, offset, value) for offset, value in enumerate(TEN[:4])),
    ]


def test_an_end_behind_hidden_offsets_is_told_without_records(world):
    world.write(b"1")
    world.hide()
    joined(world)
    end = (world.source.ends() or {})[(world.topic, 0)]
    assert end > 1
    seen: dict[tuple[str, int], int] = {}
    for _ in range(INTAKES_MAX):
        seen |= world.source.take(100, 0.1).next
        if seen.get((world.topic, 0)) == end:
            break
    assert seen[(world.topic, 0)] == end


def test_nothing_comes_twice_unless_it_is_rewound(world):
    world.write(*TEN)
    joined(world)
    first = take(world, 10)
    assert world.source.take(100, 0.3).records == []
    world.source.rewind({(world.topic, 0): 4})
    assert values(take(world, 6)) == TEN[4:]
    assert values(first) == TEN


def test_a_rewind_reaches_what_was_attended_but_not_taken(world):
    world.write(*TEN)
    joined(world)
    taken = take(world, 1, records_max=1)
    world.source.attend(0.3)
    world.source.rewind({(world.topic, 0): 0})
    assert values(taken) == TEN[:1]
    assert values(take(world, 10)) == TEN


def test_a_rewind_of_a_partition_that_is_not_ours_changes_nothing(world):
    world.write(*TEN)
    joined(world)
    world.source.rewind({(world.topic, 77): 0, ("elsewhere", 0): 0})
    assert values(take(world, 10)) == TEN


def test_attending_takes_nothing(world):
    world.write(*TEN)
    joined(world)
    for _ in range(5):
        world.source.attend(0.05)
    assert values(take(world, 10)) == TEN


def test_paused_partitions_bring_nothing_until_they_are_resumed(world):
    world.write(b"before")
    joined(world)
    take(world, 1)
    world.source.pause("operator")
    world.write(*TEN)
    for _ in range(5):
        assert world.source.take(100, 0.1).records == []
    world.source.resume("operator")
    assert values(take(world, 10)) == TEN


def test_an_assignment_is_told_once(world):
    joined(world)
    world.source.take(1, 0.1)
    changes = world.source.changes()
    assert sorted(changes.assigned or []) == [(world.topic, 0), (world.topic, 1)]
    again = world.source.changes()
    assert (again.assigned, again.revoked, again.lost) == (None, [], [])


def test_what_is_settled_is_where_to_read_again(world):
    world.write(*TEN)
    joined(world)
    (batch,) = [batch for batch in take(world, 10) if batch.records]
    world.source.mark_processed({(world.topic, 0): 10})
    assert world.source.processed()[(world.topic, 0)] == 10
    world.source.rewind(batch.first)
    assert world.source.processed()[(world.topic, 0)] == 0


def test_ends_are_those_of_a_reader(world):
    world.write(*TEN)
    joined(world)
    take(world, 4, records_max=4)
    assert world.source.ends() == {(world.topic, 0): 10, (world.topic, 1): 0}


def test_a_group_without_offsets_has_none_committed(world):
    joined(world)
    places = [(world.topic, 0), (world.topic, 1)]
    assert world.source.committed(places) == dict.fromkeys(places)
    assert world.source.committed([]) == {}


def test_who_is_no_member_yet_has_no_metadata(world):
    with pytest.raises(BatchAbortedError):
        world.source.member()
    assert world.source.assignment() == frozenset()


def test_a_source_that_joins_anew_goes_on_at_what_is_committed(world):
    world.write(*TEN)
    joined(world)
    world.transaction.open()
    take(world, 7, records_max=7)
    world.transaction.begin()
    world.transaction.send([message(world, b"1")])
    world.transaction.send_offsets({(world.topic, 0): 4})
    world.transaction.commit()
    world.source.changes()
    world.source.reopen()
    assert (world.topic, 0) in world.source.changes().lost
    assert values(take(world, 6)) == TEN[4:]
