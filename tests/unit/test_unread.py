"""Offsets that were passed over since a partition was assigned (unread.py)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hapax.core.ports import Batch
from hapax.core.records import Record
from hapax.core.unread import Unread

P = ("in", 0)


def batch(*offsets: int, end: int, base: int | None = None) -> Batch:
    records = [Record(*P, offset, None, None) for offset in offsets]
    return Batch(records, {P: offsets[0]}, {P: end}, base={} if base is None else {P: base})


def held(unread: Unread, upto: int) -> set[int]:
    return {offset for offset in range(upto) if unread.holds(P, offset)}


def test_what_lies_before_between_and_after_the_records_is_unread():
    unread = Unread(100)
    unread.read(batch(5, 6, 9, end=12, base=3))
    unread.read(batch(14, end=15))
    assert held(unread, 30) == {3, 4, 7, 8, 10, 11, 12, 13}


def test_without_a_committed_offset_nothing_is_followed():
    unread = Unread(100)
    unread.read(batch(5, 9, end=10))
    assert held(unread, 30) == set()


def test_a_batch_that_is_taken_again_changes_nothing():
    unread = Unread(100)
    for _ in range(3):
        unread.read(batch(1, 3, end=4, base=0))
    assert held(unread, 30) == {0, 2}


def test_beyond_its_width_a_partition_is_not_followed():
    unread = Unread(4)
    unread.read(batch(1, 3, 5, end=6, base=0))
    unread.read(batch(8, end=9))
    assert held(unread, 30) == {0, 2, 4}


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
def test_it_is_what_a_set_of_offsets_would_say(steps):
    unread, expected, at = Unread(1000), set[int](), 0
    unread.read(batch(0, end=1, base=0))
    at = 1
    for gap, assigned in steps:
        unread.read(batch(at + gap, end=at + gap + 1, base=at if assigned else None))
        expected |= set(range(at, at + gap))
        at += gap + 1
    assert held(unread, at + 5) == expected
