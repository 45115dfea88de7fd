"""Counting what a group has not read: runs of offsets, ranges, and who is read how far."""

from __future__ import annotations

import random

import pytest

from hapax.core.partition_offsets import LogOffsets
from hapax.core.reader_lag import Counted, ReaderLag, shares, stretch
from tests.kit.seeds import of_this_turn

LOG = LogOffsets(10, 90, 100)


def counted(start: int, end: int, offsets: set[int]) -> Counted:
    one = Counted(start)
    for offset in sorted(offsets):
        one.add(offset)
    one.end = end
    return one


@pytest.mark.parametrize(
    ("offsets", "gap"),
    [
        ({5, 6, 7, 8, 9}, (10, 10)),
        (set(), (5, 10)),
        ({5, 6}, (7, 10)),
        ({8, 9}, (5, 8)),
        ({7}, (5, 10)),
        ({5, 9}, (6, 9)),
        ({5, 7, 9}, (6, 9)),
    ],
)
def test_the_gap_holds_all_offsets_without_a_record(offsets, gap):
    assert counted(5, 10, offsets).gap == gap


@pytest.mark.parametrize("seed", of_this_turn(20, 300))
def test_what_is_left_after_each_offset_is_what_was_counted_from_there(seed):
    chance = random.Random(seed)
    for _ in range(10):
        end = chance.randrange(30)
        offsets = {offset for offset in range(end) if chance.random() < 0.6}
        one = counted(0, end, offsets)
        for begin in sorted(chance.choices(range(35), k=4)):
            one.drop_before(begin)
            left = {offset for offset in offsets if offset >= begin}
            assert one.total == len(left)
            assert (one.start, one.end) == (begin, max(begin, end))
            first, last = one.gap
            inside = set(range(begin, one.end)) - left
            assert all(first <= offset < last for offset in inside)


@pytest.mark.parametrize(
    ("committed", "begin", "undecided", "deleted"),
    [
        (50, 50, 10, 0),
        (90, 90, 10, 0),
        (95, 95, 5, 0),
        (100, 100, 0, 0),
        (4, 10, 10, 6),
        (None, 10, 10, 0),
        (101, 10, 10, 0),
    ],
)
def test_a_stretch_begins_at_the_offset_where_the_log_has_it(committed, begin, undecided, deleted):
    assert stretch(committed, LOG) == (begin, max(begin, 90))
    one = ReaderLag("t", 0, LOG, committed, records=3, uncounted=2)
    assert (one.undecided, one.deleted) == (undecided, deleted)
    placed = committed not in {None, 101}
    assert (one.records_min, one.records_max) == (3 if placed else 0, 5)


def test_short_stretches_are_read_whole_and_long_ones_alike():
    lengths = {("t", 0): 100, ("t", 1): 7, ("t", 2): 1000, ("t", 3): 0}
    assert shares(lengths, 107) == {("t", 0): 50, ("t", 1): 7, ("t", 2): 50, ("t", 3): 0}
    assert shares(lengths, 10_000) == lengths
    assert shares({}, 5) == {}
