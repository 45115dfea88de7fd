"""Which calls may begin, and what an answer or an error makes of a unit of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.core.call_window import (
    PENDING,
    Call,
    CallLimits,
    CallQueue,
    CallTimeoutError,
    fail,
    settle,
)
from hapax.core.errors import Poison
from hapax.core.records import Output, Record
from hapax.core.transform import Failure
from tests.kit.calls import Stamps

LIMITS, ONCE = CallLimits(), CallLimits(attempts_max=1)


def calls(keys: Sequence[str | None]) -> list[Call]:
    return [
        Call(Record("in", 0, at, None, b"%d" % at), b"", key, unchecked=False)
        for at, key in enumerate(keys)
    ]


def offsets(unit: Sequence[Call]) -> list[int]:
    return [call.record.offset for call in unit]


def test_calls_of_one_key_begin_one_after_the_other_and_others_pass_them():
    queue = CallQueue("key", 1)
    queue.add(calls(["a", "a", "b", None, None]))
    first = queue.take()
    assert offsets(first) == [0]
    assert [offsets(queue.take()) for _ in range(4)] == [[2], [3], [4], []]
    queue.done(first)
    assert offsets(queue.take()) == [1]


def test_without_an_order_all_calls_may_begin():
    queue = CallQueue("none", 1)
    queue.add(calls(["a", "a", "a"]))
    assert [offsets(queue.take()) for _ in range(4)] == [[0], [1], [2], []]


def test_a_list_takes_later_records_of_its_keys_along_in_their_order():
    queue = CallQueue("key", 4)
    queue.add(calls(["a", "b", "a", "a", "b"]))
    unit = queue.take()
    assert offsets(unit) == [0, 2, 3, 1]
    assert queue.take() == []
    queue.done(unit)
    assert offsets(queue.take()) == [4]


def test_a_call_that_was_dropped_never_begins_and_lets_its_key_go_on():
    queue = CallQueue("key", 1)
    made = calls(["a", "a", "a"])
    queue.add(made)
    first = queue.take()
    made[1].dropped = True
    queue.done(first)
    assert offsets(queue.take()) == [2]


@given(
    keys=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40),
    order=st.sampled_from(["key", "none"]),
    records_max=st.integers(1, 5),
    ends=st.randoms(use_true_random=False),
)
def test_every_call_is_made_once_and_those_of_a_key_in_order_whatever_ends_first(
    keys, order, records_max, ends
):
    queue = CallQueue(order, records_max)
    made: list[Call] = []
    flying: list[list[Call]] = []
    queue.add(calls(keys))
    while (unit := queue.take()) or flying:
        if unit:
            if order == "key":
                busy = {call.key for other in flying for call in other} - {None}
                assert busy.isdisjoint({call.key for call in unit})
            flying.append(unit)
            made += unit
        if not unit or ends.random() < 0.5:
            queue.done(flying.pop(ends.randrange(len(flying))))
    assert sorted(offsets(made)) == list(range(len(keys)))
    if order == "key":
        for key in ("a", "b", "c"):
            assert offsets([c for c in made if c.key == key]) == sorted(
                offsets([c for c in made if c.key == key])
            )


def test_answers_of_a_list_are_those_of_its_records_and_an_exception_fails_its_own():
    unit = calls([None, None, None])
    again = settle(unit, [Output(b"x"), ValueError("no"), None], ONCE, lists=True)
    assert again == []
    assert unit[0].result == (Output(b"x"),)
    assert unit[1].result == Failure("ValueError", "no", 1)
    assert unit[2].result == ()


@pytest.mark.parametrize("answer", [[], [None], None, "ab", {"a": 1}])
def test_a_list_of_another_length_is_halved_until_it_names_the_function_as_wrong(answer):
    unit = calls([None, None])
    halves = settle(unit, answer, LIMITS, lists=True)
    assert halves == [unit[:1], unit[1:]]
    assert unit[0].result is PENDING
    assert settle(halves[0], [1, 2], LIMITS, lists=True) == []
    assert isinstance(unit[0].result, Failure)
    assert "a function of 1 records returns a list of as many answers" in unit[0].result.text


def test_a_record_that_fails_is_tried_again_up_to_its_attempts():
    unit = calls([None])
    assert fail(unit, ValueError("1"), LIMITS) == [unit]
    assert fail(unit, ValueError("2"), LIMITS) == [unit]
    assert fail(unit, ValueError("3"), LIMITS) == []
    assert unit[0].result == Failure("ValueError", "3", 3)


@pytest.mark.parametrize(
    ("error", "reason"), [(Poison("never"), "Poison"), (CallTimeoutError("late"), "timeout")]
)
def test_poison_and_a_call_that_was_cancelled_are_final(error, reason):
    unit = calls([None])
    assert fail(unit, error, LIMITS) == []
    result = unit[0].result
    assert isinstance(result, Failure)
    assert (result.reason, result.attempts) == (reason, 1)


# The stamps of calls: one that overlaps with another of its key is found, and one that was cut.


def stamps(folder: Path, *lines: str) -> Stamps:
    """Return the stamps of one process: a time, a word, and what belongs to it."""
    path = folder / "stamps"
    path.write_text("".join(f"7 {line}\n" for line in lines))
    return Stamps(path)


def test_calls_of_one_key_that_overlap_are_found(tmp_path):
    found = stamps(tmp_path, "1 begin 0 0/0 a", "2 begin 1 0/1 a", "3 end 0", "4 end 1")
    ((one, two),) = found.overlaps()
    assert (one.places, two.places) == (((0, 0),), ((0, 1),))
    assert found.together_most() == 2


def test_calls_of_one_key_in_series_and_those_of_two_keys_are_no_overlap(tmp_path):
    series = ("1 begin 0 0/0 a", "2 end 0", "3 begin 1 0/1 a", "4 end 1")
    assert stamps(tmp_path, *series).overlaps() == []
    assert Stamps(tmp_path / "stamps").together_most() == 1
    keys = ("1 begin 0 0/0 a", "2 begin 1 0/1 b", "3 end 0", "4 end 1")
    assert stamps(tmp_path, *keys).overlaps() == []


def test_lists_that_have_a_key_in_common_overlap(tmp_path):
    lines = ("1 begin 0 0/0,1/0 a,b", "2 begin 1 0/1,1/1 c,b", "3 end 0", "4 end 1")
    found = stamps(tmp_path, *lines)
    assert len(found.overlaps()) == 1
    assert found.called() == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_a_call_that_was_cut_has_no_end_and_overlaps_with_all_after_it(tmp_path):
    found = stamps(tmp_path, "1 setup", "2 begin 0 0/0 a", "9 begin 1 0/0 a", "10 end 1")
    assert [call.ended_ns for call in found.calls()] == [None, 10]
    assert len(found.overlaps()) == 1
    assert (found.times("setup"), found.times("teardown")) == (1, 0)
