"""Ends to commit when idle, and bounded runs."""

import pytest

from hapax.engines.idle_offsets import Bounds, Ends

P0, P1 = ("in", 0), ("in", 1)


@pytest.fixture
def known():
    return Ends(idle_s=0.3, interval_s=1.0)


def test_an_end_is_due_when_nothing_was_in_flight_for_a_while(known):
    known.record_commit({P0: 3}, 100.0)
    known.note({P0: 5})
    assert known.due(100.2) == []
    assert known.due(100.4) == [P0]


def test_ends_are_due_no_more_often_than_the_interval(known):
    known.note({P0: 5})
    known.moved({}, 100.0)
    assert known.due(100.9) == []
    assert known.due(101.0) == [P0]


def test_only_ends_behind_what_the_group_knows_have_moved(known):
    known.note({P0: 5, P1: 7})
    assert known.moved({P0: 5, P1: 6}, 100.0) == {P1: 7}
    assert known.pending() == []


def test_a_partition_without_committed_offset_has_moved_by_its_first_end(known):
    known.note({P0: 5})
    assert known.moved({P0: None, P1: 3}, 100.0) == {P0: 5}


def test_an_end_below_what_the_group_knows_never_moves_it_back(known):
    known.note({P0: 5})
    assert known.moved({P0: 9}, 100.0) == {}


def test_a_known_end_is_not_pending_again(known):
    known.note({P0: 5})
    known.moved({P0: 5}, 100.0)
    known.note({P0: 5})
    assert known.pending() == []
    known.note({P0: 6})
    assert known.pending() == [P0]


def test_what_a_batch_committed_is_no_longer_pending(known):
    known.note({P0: 5, P1: 1})
    known.record_commit({P0: 6}, 100.0)
    assert known.pending() == [P1]
    known.note({P0: 6})
    assert known.pending() == [P1]


def test_partitions_that_left_are_forgotten_and_the_rest_is_kept(known):
    known.record_commit({P0: 5, P1: 5}, 100.0)
    known.note({P0: 6, P1: 6})
    known.forget([P0])
    assert known.pending() == [P1]
    known.note({P0: 5})
    assert known.pending() == [P1, P0]


def test_everything_is_forgotten_when_everything_is_read_again(known):
    known.record_commit({P0: 5}, 100.0)
    known.note({P1: 6})
    known.forget()
    assert known.pending() == []
    known.note({P0: 5})
    assert known.pending() == [P0]


def test_an_unbounded_run_is_never_spent():
    bounds = Bounds(records_max=None, at_end=False)
    bounds.count(10**9)
    assert not bounds.spent
    assert not bounds.wants_ends
    assert bounds.limit(500) == 500


def test_a_run_bounded_by_records_takes_no_more_than_its_rest():
    bounds = Bounds(records_max=7, at_end=False)
    bounds.count(4)
    assert (bounds.limit(500), bounds.limit(2), bounds.spent) == (3, 2, False)
    bounds.count(3)
    assert bounds.spent


def test_a_run_to_the_ends_asks_for_them_once_and_misses_what_is_below():
    bounds = Bounds(records_max=None, at_end=True)
    asked = [bounds.wants_ends]
    bounds.start({P0: 5, P1: 0})
    assert [*asked, bounds.wants_ends] == [True, False]
    assert bounds.missing({}) == [P0]
    assert bounds.missing({P0: 4}) == [P0]
    assert bounds.missing({P0: 5}) == []
    assert bounds.missing({P0: 9}) == []
