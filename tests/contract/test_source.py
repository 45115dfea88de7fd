"""The Source port: what every implementation keeps, in memory and on a broker."""

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import Batch, Outputs
from tests.kit.worlds import INTAKES_MAX, joined, message, take

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def filled(world):
    world.write(*TEN)
    joined(world)
    return world


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


def test_nothing_comes_twice_unless_it_is_rewound(filled):
    first = take(filled, 10)
    assert filled.source.take(100, 0.3).records == []
    filled.source.rewind({(filled.topic, 0): 4})
    assert values(take(filled, 6)) == TEN[4:]
    assert values(first) == TEN


def test_a_rewind_reaches_what_was_attended_but_not_taken(filled):
    taken = take(filled, 1, records_max=1)
    filled.source.attend(0.3)
    filled.source.rewind({(filled.topic, 0): 0})
    assert values(taken) == TEN[:1]
    assert values(take(filled, 10)) == TEN


def test_a_rewind_of_a_partition_that_is_not_ours_changes_nothing(filled):
    filled.source.rewind({(filled.topic, 77): 0, ("elsewhere", 0): 0})
    assert values(take(filled, 10)) == TEN


def test_attending_takes_nothing(filled):
    for _ in range(5):
        filled.source.attend(0.05)
    assert values(take(filled, 10)) == TEN


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
    assert sorted(world.source.changes().assigned or []) == [(world.topic, 0), (world.topic, 1)]
    again = world.source.changes()
    assert (again.assigned, again.revoked, again.lost) == (None, [], [])


def test_what_is_settled_is_where_to_read_again(filled):
    (batch,) = [batch for batch in take(filled, 10) if batch.records]
    filled.source.mark_processed({(filled.topic, 0): 10})
    assert filled.source.processed()[(filled.topic, 0)] == 10
    filled.source.rewind(batch.first)
    assert filled.source.processed()[(filled.topic, 0)] == 0


def test_ends_are_those_of_a_reader(filled):
    take(filled, 4, records_max=4)
    assert filled.source.ends() == {(filled.topic, 0): 10, (filled.topic, 1): 0}


def test_a_group_without_offsets_has_none_committed(world):
    joined(world)
    places = [(world.topic, 0), (world.topic, 1)]
    assert world.source.committed(places) == dict.fromkeys(places)
    assert world.source.committed([]) == {}


def test_who_is_no_member_yet_has_no_metadata(world):
    with pytest.raises(BatchAbortedError):
        world.source.member()
    assert world.source.assignment() == frozenset()


def test_a_source_that_joins_anew_goes_on_at_what_is_committed(filled):
    filled.transaction.open()
    take(filled, 7, records_max=7)
    filled.transaction.begin()
    filled.transaction.send(Outputs([message(filled, b"1")]))
    filled.transaction.send_offsets({(filled.topic, 0): 4})
    filled.transaction.commit()
    filled.source.changes()
    filled.source.reopen()
    assert (filled.topic, 0) in filled.source.changes().lost
    assert values(take(filled, 6)) == TEN[4:]
