"""Which calls may begin, and what an answer or an error makes of a unit of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from hapax.core.errors import Poison
from hapax.core.formats import FormatOptions
from hapax.core.record_path import Batch, Identified
from hapax.core.records import Output, Record
from hapax.core.results import Failure, Result
from hapax.engines.batch_runner import WindowRunner
from hapax.processing import call_window
from hapax.processing.batch_result import Begun
from hapax.processing.deduplicate import Claimed
from hapax.processing.transform import TransformForm, form_of
from tests.kit.calls import Stamps

if TYPE_CHECKING:
    from pathlib import Path

LIMITS, ONCE = call_window.CallLimits(), call_window.CallLimits(attempts_max=1)


def calls(keys: Sequence[str | None]) -> list[call_window.Call]:
    return [
        call_window.Call(Record("in", 0, at, None, b"%d" % at), b"", key, unchecked=False)
        for at, key in enumerate(keys)
    ]


def offsets(unit: Sequence[call_window.Call]) -> list[int]:
    return [call.record.offset for call in unit]


def test_calls_of_one_key_begin_one_after_the_other_and_others_pass_them():
    queue = call_window.CallQueue("key", 1)
    queue.add(calls(["a", "a", "b", None, None]))
    first = queue.take()
    assert offsets(first) == [0]
    assert [offsets(queue.take()) for _ in range(4)] == [[2], [3], [4], []]
    queue.done(first)
    assert offsets(queue.take()) == [1]


def test_without_an_order_all_calls_may_begin():
    queue = call_window.CallQueue("none", 1)
    queue.add(calls(["a", "a", "a"]))
    assert [offsets(queue.take()) for _ in range(4)] == [[0], [1], [2], []]


def test_a_list_takes_later_records_of_its_keys_along_in_their_order():
    queue = call_window.CallQueue("key", 4)
    queue.add(calls(["a", "b", "a", "a", "b"]))
    unit = queue.take()
    assert offsets(unit) == [0, 2, 3, 1]
    assert queue.take() == []
    queue.done(unit)
    assert offsets(queue.take()) == [4]


def test_a_call_that_was_dropped_never_begins_and_lets_its_key_go_on():
    queue = call_window.CallQueue("key", 1)
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
    queue = call_window.CallQueue(order, records_max)
    made: list[call_window.Call] = []
    flying: list[list[call_window.Call]] = []
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
            mine = offsets([call for call in made if call.key == key])
            assert mine == sorted(mine)


def test_answers_of_a_list_are_those_of_its_records_and_an_exception_fails_its_own():
    unit = calls([None, None, None])
    assert call_window.settle(unit, [Output(b"x"), ValueError("no"), None], ONCE, lists=True) == []
    assert unit[0].result == (Output(b"x"),)
    assert unit[1].result == Failure("ValueError", "no", 1)
    assert unit[2].result == ()


@pytest.mark.parametrize("answer", [[], [None], None, "ab", {"a": 1}])
def test_a_list_of_another_length_is_halved_until_it_names_the_function_as_wrong(answer):
    unit = calls([None, None])
    halves = call_window.settle(unit, answer, LIMITS, lists=True)
    assert halves == [unit[:1], unit[1:]]
    assert unit[0].result is call_window.PENDING
    assert call_window.settle(halves[0], [1, 2], LIMITS, lists=True) == []
    assert isinstance(unit[0].result, Failure)
    assert "a function of 1 records returns a list of as many answers" in unit[0].result.text


def test_a_record_that_fails_is_tried_again_up_to_its_attempts():
    unit = calls([None])
    assert call_window.fail(unit, ValueError("1"), LIMITS) == [unit]
    assert call_window.fail(unit, ValueError("2"), LIMITS) == [unit]
    assert call_window.fail(unit, ValueError("3"), LIMITS) == []
    assert unit[0].result == Failure("ValueError", "3", 3)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Poison("never"), "Poison"), (call_window.CallTimeoutError("late"), "timeout")],
)
def test_poison_and_a_call_that_was_cancelled_are_final(error, reason):
    unit = calls([None])
    assert call_window.fail(unit, error, LIMITS) == []
    result = unit[0].result
    assert isinstance(result, Failure)
    assert (result.reason, result.attempts) == (reason, 1)


# The stamps of calls: one that overlaps with another of its key is found, and one that was cut.


def stamps(folder: Path, *lines: str) -> Stamps:
    """Return the stamps of one process: a time, a word, and what belongs to it."""
    path = folder / "stamps"
    path.write_text("".join(f"7 {line}\n" for line in lines))
    return Stamps(path)


def test_calls_of_one_key_that_overlap_are_found_and_lists_that_have_one_in_common(tmp_path):
    found = stamps(tmp_path, "1 begin 0 0/0 a", "2 begin 1 0/1 a", "3 end 0", "4 end 1")
    ((one, two),) = found.overlaps()
    assert (one.places, two.places) == (((0, 0),), ((0, 1),))
    assert found.together_most() == 2
    lines = ("1 begin 0 0/0,1/0 a,b", "2 begin 1 0/1,1/1 c,b", "3 end 0", "4 end 1")
    found = stamps(tmp_path, *lines)
    assert len(found.overlaps()) == 1
    assert found.called() == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_calls_of_one_key_in_series_and_those_of_two_keys_are_no_overlap(tmp_path):
    series = ("1 begin 0 0/0 a", "2 end 0", "3 begin 1 0/1 a", "4 end 1")
    assert stamps(tmp_path, *series).overlaps() == []
    assert Stamps(tmp_path / "stamps").together_most() == 1
    keys = ("1 begin 0 0/0 a", "2 begin 1 0/1 b", "3 end 0", "4 end 1")
    assert stamps(tmp_path, *keys).overlaps() == []


def test_a_call_that_was_cut_has_no_end_and_overlaps_with_all_after_it(tmp_path):
    found = stamps(tmp_path, "1 setup", "2 begin 0 0/0 a", "9 begin 1 0/0 a", "10 end 1")
    assert [call.ended_ns for call in found.calls()] == [None, 10]
    assert len(found.overlaps()) == 1
    assert (found.times("setup"), found.times("teardown")) == (1, 0)


P0, P1 = ("in", 0), ("in", 1)
ANSWER = (Output(b"x"),)


def batch(*places: tuple[int, int], ends: Mapping[tuple[str, int], int] | None = None) -> Batch:
    records = [Record("in", at, offset, None, b"%d" % offset) for at, offset in places]
    first: dict[tuple[str, int], int] = {}
    for record in records:
        first.setdefault((record.topic, record.partition), record.offset)
    following = {(one.topic, one.partition): one.offset + 1 for one in records}
    return Batch(records, first, {**following, **(ends or {})})


def begun(
    count: int,
    preset: Mapping[int, Result | None] | None = None,
    *,
    unchecked: bool = False,
    taken_over: Collection[int] = (),
) -> Begun:
    found = Identified([b"id%d" % at for at in range(count)], [], {}, {})
    claimed = Claimed({}, unchecked=unchecked, taken_over=taken_over)
    return Begun(found, None, {}, claimed=claimed, preset=dict(preset or {}))


def admitted(window: call_window.Window, taken: Batch, **more: object) -> list[call_window.Call]:
    return window.admit(taken, begun(len(taken.records), **more))  # type: ignore[arg-type] # as above


def finish(calls: Sequence[call_window.Call], *offsets: int) -> None:
    for call in calls:
        if not offsets or call.record.offset in offsets:
            call.result = ANSWER


def left(
    window: call_window.Window, most: int = 100
) -> tuple[list[int], dict[tuple[str, int], int]]:
    ready = window.ready(most)
    return ([], {}) if ready is None else ([r.offset for r in ready[0].records], ready[0].next)


@pytest.fixture
def window():
    return call_window.Window()


def test_only_the_finished_prefix_of_a_partition_leaves(window):
    calls = admitted(window, batch((0, 5), (0, 6), (0, 7), (1, 1)))
    assert left(window) == ([], {})
    finish(calls, 6, 7)
    assert left(window) == ([], {})
    finish(calls, 5)
    assert left(window) == ([5, 6, 7], {P0: 8})
    finish(calls, 1)
    assert left(window) == ([5, 6, 7, 1], {P0: 8, P1: 2})
    assert left(window, 2) == ([5, 6], {P0: 7})


def test_the_last_record_takes_the_end_beyond_it_along_and_not_one_before(window):
    calls = admitted(window, batch((0, 5), (0, 6), ends={P0: 9, P1: 4}))
    finish(calls, 5)
    assert left(window) == ([5], {P0: 6, P1: 4})
    finish(calls, 6)
    assert left(window) == ([5, 6], {P0: 9, P1: 4})
    window.settle({P0: 9, P1: 4})
    assert (window.records, window.room.bytes, window.loose_ends()) == (0, 0, {})


def test_a_claim_that_was_taken_over_is_counted_with_its_record_also_after_an_abort(window):
    taken = batch((0, 5), (0, 6), (1, 1))
    calls = admitted(window, taken, taken_over={1, 2})
    finish(calls, 5, 1)

    def counted() -> tuple[list[int], list[int]]:
        batch_out, begun_out = window.ready(100)
        return [r.offset for r in batch_out.records], list(begun_out.claimed.taken_over)

    assert counted() == ([5, 1], [1])
    window.put_back()
    admitted(window, taken)  # they are the owners now: nothing is taken over again
    assert counted() == ([5, 1], [1])
    window.settle({P0: 6, P1: 2})
    finish(calls)
    assert counted() == ([6], [0])


def test_what_has_its_fate_is_not_called_and_leaves_in_its_place(window):
    calls = admitted(window, batch((0, 5), (0, 6)), preset={0: None})
    assert [call.record.offset for call in calls] == [6]
    assert left(window) == ([5], {P0: 6})
    finish(calls)
    ready = window.ready(10)
    assert ready[1].results == [None, ANSWER]
    assert ready[1].found.ids == [b"id0", b"id1"]


def test_records_with_and_without_claims_do_not_share_a_transaction(window):
    calls = admitted(window, batch((0, 5)))
    calls += admitted(window, batch((0, 6)), unchecked=True)
    finish(calls)
    assert left(window)[0] == [5]
    window.settle({P0: 6})
    ready = window.ready(10)
    assert (ready[0].next, ready[1].claimed.unchecked) == ({P0: 7}, True)


def test_after_an_abort_records_find_their_results_and_their_calls(window):
    calls = admitted(window, batch((0, 5), (0, 6), (1, 1)))
    for call in calls:
        call.started = True
    finish(calls, 5)
    assert window.put_back() == {P0: 5, P1: 1}
    assert (window.records, left(window)) == (0, ([], {}))
    assert admitted(window, batch((0, 5), (0, 6), (1, 1))) == []
    assert left(window) == ([5], {P0: 6})
    finish(calls, 6)  # the call that was under way when the transaction was aborted
    assert left(window) == ([5, 6], {P0: 7})


def test_a_duplicate_is_judged_again_when_it_is_read_again(window):
    calls = admitted(window, batch((0, 5), (0, 6)), preset={1: None})
    window.put_back()
    begun_now, judged_again = admitted(window, batch((0, 5), (0, 6)))
    assert [begun_now] == calls
    assert not judged_again.done


def test_another_record_at_the_same_place_has_a_call_of_its_own(window):
    (old,) = admitted(window, batch((0, 5)))
    finish([old])
    window.put_back()
    changed = batch((0, 5))
    changed.records = [Record("in", 0, 5, None, b"other")]
    (new,) = admitted(window, changed)
    assert new is not old
    assert left(window) == ([], {})


def test_a_partition_that_left_takes_its_calls_and_results_with_it(window):
    calls = admitted(window, batch((0, 5), (1, 1), ends={P0: 9}))
    finish(calls)
    assert window.forget([P0]) == calls[:1]
    assert left(window) == ([1], {P1: 2})
    window.put_back()
    assert window.forget([P1]) == calls[1:]
    assert len(admitted(window, batch((0, 5), (1, 1)))) == 2


def test_what_was_committed_although_the_answer_was_lost_is_forgotten(window):
    finish(admitted(window, batch((0, 5), (0, 6), (0, 7))))
    window.put_back()
    again = admitted(window, batch((0, 7)))  # 5 and 6 had been committed
    assert again == []
    window.settle({P0: 8})
    assert (window.forget([P0]), window.records) == ([], 0)


def test_a_stop_leaves_out_what_has_not_begun_and_what_follows_it(window):
    calls = admitted(window, batch((0, 5), (0, 6), (0, 7), (1, 1)))
    finish(calls, 5)
    window.cut({calls[2]})
    assert [call.dropped for call in calls] == [False, True, True, True]
    assert left(window) == ([5], {P0: 6})
    assert window.partitions() == [P0]


@pytest.mark.parametrize("count", [1, 3])
def test_room_is_counted_in_records_and_bytes(count, window):
    admitted(window, batch(*[(0, 10 + at) for at in range(count)]))
    assert (window.records, window.room.bytes, window.depth(P0)) == (count, 2 * count, count)
    window.put_back()
    assert (window.records, window.room.bytes, window.depth(P0)) == (0, 0, 0)


@given(
    places=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), max_size=40),
    sizes=st.lists(st.sampled_from([0, 1, 30, 90]), min_size=1),
    at_once=st.integers(1, 4),
    most=st.integers(1, 200),
    chance=st.randoms(use_true_random=False),
)
def test_results_stay_within_their_bound_and_no_call_waits_for_one_that_waits(
    places, sizes, at_once, most, chance
):
    window, queue = call_window.Window(), call_window.CallQueue("key", 1)
    running: list[list[call_window.Call]] = []
    window.room.most, window.room.bytes_max, window.room.share = most, most, most // 3
    records = [Record("in", at, n, key.encode(), b"") for n, (at, key) in enumerate(places)]
    queue.add(window.admit(Batch(records, {}, {}), begun(len(records))))
    largest = 0
    while window.records:
        while len(running) < at_once and (unit := queue.take()):
            running.append(unit)
        if running:
            unit = running.pop(chance.randrange(len(running)))
            size = chance.choice(sizes)
            largest = max(largest, size)
            unit[0].answer((Output(b"x" * size),), size)
            queue.done(unit)
        else:
            assert window.ready(100) is not None, "all wait"
        if not running or chance.random() < 0.3:
            ready = window.ready(100)
            window.settle({} if ready is None else ready[0].next)
        # Those that had begun when the bound was met, and the first of each partition.
        assert window.room.bytes <= most + len(records) + largest * (at_once + 3)


def test_a_partition_that_takes_too_much_is_held_until_it_is_released():
    told: list[tuple[object, bool]] = []
    source = SimpleNamespace(hold=lambda where, _why, *, held: told.append((where, held)))
    runner: Any = SimpleNamespace(source=source, _held=set())
    WindowRunner._hold(runner, {P0})
    assert runner._held == {P0}
    WindowRunner._release(runner, runner._held)
    assert runner._held == set()
    assert told == [(P0, True), (P0, False)]


def plain(record: Record) -> Output:
    return Output(record.value)


def yielding(record: Record) -> Iterator[Output]:
    yield Output(record.value)


def defaulted(record: Record, suffix: bytes = b"!") -> Output:
    return Output((record.value or b"") + suffix)


async def waiting(record: Record) -> Output:
    return Output(record.value)


def listed(records: list[Record]) -> list[Output]:
    return [Output(record.value) for record in records]


def sequenced(records: Sequence[Record]) -> list[Output]:
    return [Output(record.value) for record in records]


def unresolved(records: "list[NoSuchName]") -> list[Output]:  # type: ignore[name-defined] # noqa: F821, UP037
    return [Output(None) for _ in records]


async def waiting_for_lists(records: list[Record]) -> list[Output]:
    return [Output(record.value) for record in records]


class Enriched:
    def setup(self) -> None: ...

    async def __call__(self, record: Record) -> Output:
        return Output(record.value)

    async def teardown(self) -> None: ...


@contextmanager
def opened() -> Iterator[Callable[[Record], Output]]:
    yield plain


@asynccontextmanager
async def opened_later() -> AsyncIterator[Callable[[Record], Any]]:
    yield waiting


def traced(function: Callable[[Record], Any]) -> Callable[[Record], Any]:
    @wraps(function)
    def around(record: Record) -> Any:
        return function(record)

    return around


@pytest.mark.parametrize(
    ("found", "asynchronous", "lists", "context"),
    [
        (plain, False, False, False),
        (yielding, False, False, False),
        (traced(yielding), False, False, False),
        (defaulted, False, False, False),
        (partial(defaulted, suffix=b"?"), False, False, False),
        (len, False, False, False),
        (waiting, True, False, False),
        (listed, False, True, False),
        (sequenced, False, True, False),
        (unresolved, False, True, False),
        (waiting_for_lists, True, True, False),
        (Enriched, True, False, False),
        (Enriched(), True, False, False),
        (opened, False, False, True),
        (opened_later, True, False, True),
    ],
)
def test_a_form_is_told_by_its_signature(found, *, asynchronous, lists, context):
    form = form_of(found)
    assert (form.asynchronous, form.lists, form.context) == (asynchronous, lists, context)
    assert form.plain == (not (asynchronous or lists or context))


def test_what_a_class_opens_and_closes_belongs_to_its_form():
    form = form_of(Enriched)
    assert isinstance(form.function, Enriched)
    assert form.setup == form.function.setup
    assert form.teardown == form.function.teardown
    assert not TransformForm(plain, setup=form.setup).plain


class NeedsArguments:
    def __init__(self, url: str) -> None: ...

    def __call__(self, record: Record) -> None: ...


class NotCallable: ...


async def streaming(record: Record) -> AsyncIterator[Output]:
    yield Output(record.value)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (lambda: None, "a transform takes one record"),
        (lambda _one, _two: None, "a transform takes one record"),
        (lambda *, record: record, "a transform takes one record"),
        (streaming, "return a list of Outputs instead"),
        (NeedsArguments, "cannot be made without arguments"),
        (NotCallable, "has no __call__"),
    ],
)
def test_a_function_of_another_shape_says_what_is_wrong(found, why):
    with pytest.raises(ValueError, match=why):
        form_of(found)


def test_values_stay_bytes_only_where_both_sides_say_so():
    assert FormatOptions().plain
    for options in ({"input": "json"}, {"output": "json"}, {"input": "json", "output": "json"}):
        assert not FormatOptions(**options).plain  # type: ignore[arg-type] # test data
