"""The window: what may leave it, what an abort keeps, and what leaves with its partition."""

from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from hapax.core.batch_result import Begun
from hapax.core.call_window import Call, Window
from hapax.core.deduplicate import Claimed
from hapax.core.identity import Identified
from hapax.core.ports import Batch
from hapax.core.records import Output, Record
from hapax.core.transform import Result
from hapax.engines.batch_runner import WindowRunner

P0, P1 = ("in", 0), ("in", 1)
ANSWER = (Output(b"x"),)


def batch(*places: tuple[int, int], ends: Mapping[tuple[str, int], int] | None = None) -> Batch:
    """Return records at (partition, offset), in this order."""
    records = [Record("in", at, offset, None, b"%d" % offset) for at, offset in places]
    first: dict[tuple[str, int], int] = {}
    for record in records:
        first.setdefault((record.topic, record.partition), record.offset)
    following = {(one.topic, one.partition): one.offset + 1 for one in records}
    return Batch(records, first, {**following, **(ends or {})})


def begun(
    count: int,
    fates: Mapping[int, Result | None] | None = None,
    *,
    unchecked: bool = False,
    taken_over: Collection[int] = (),
) -> Begun:
    found = Identified([b"id%d" % at for at in range(count)], [], {}, {})
    claimed = Claimed({}, unchecked=unchecked, taken_over=taken_over)
    return Begun(found, None, {}, claimed=claimed, fates=dict(fates or {}))


def admitted(window: Window, taken: Batch, **more: object) -> list[Call]:
    return window.admit(taken, begun(len(taken.records), **more))  # type: ignore[arg-type] # as above


def finish(calls: Iterable[Call], *offsets: int) -> None:
    for call in calls:
        if not offsets or call.record.offset in offsets:
            call.result = ANSWER


def left(window: Window, most: int = 100) -> tuple[list[int], dict[tuple[str, int], int]]:
    """Return the offsets of the records that may leave, and the progress they make."""
    ready = window.ready(most)
    return ([], {}) if ready is None else ([r.offset for r in ready[0].records], ready[0].next)


@pytest.fixture
def window():
    return Window()


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
    assert (window.records, window.bytes, window.loose_ends()) == (0, 0, {})


def test_a_claim_that_was_taken_over_is_counted_with_its_record_also_after_an_abort(window):
    taken = batch((0, 5), (0, 6), (1, 1))
    calls = admitted(window, taken, taken_over={1, 2})
    finish(calls, 5, 1)

    def counted() -> tuple[list[int], list[int]]:
        batch_out, begun_out = window.ready(100) or (None, None)
        assert batch_out is not None
        assert begun_out is not None
        assert begun_out.claimed is not None
        return [r.offset for r in batch_out.records], list(begun_out.claimed.taken_over)

    assert counted() == ([5, 1], [1])
    window.put_back()
    admitted(window, taken)  # they are the owners now: nothing is taken over again
    assert counted() == ([5, 1], [1])
    window.settle({P0: 6, P1: 2})
    finish(calls)
    assert counted() == ([6], [0])


def test_what_has_its_fate_is_not_called_and_leaves_in_its_place(window):
    calls = admitted(window, batch((0, 5), (0, 6)), fates={0: None})
    assert [call.record.offset for call in calls] == [6]
    assert left(window) == ([5], {P0: 6})
    finish(calls)
    ready = window.ready(10)
    assert ready is not None
    assert ready[1].results == [None, ANSWER]
    assert ready[1].found.ids == [b"id0", b"id1"]


def test_records_with_and_without_claims_do_not_share_a_transaction(window):
    calls = admitted(window, batch((0, 5)))
    calls += admitted(window, batch((0, 6)), unchecked=True)
    finish(calls)
    assert left(window)[0] == [5]
    window.settle({P0: 6})
    ready = window.ready(10)
    assert ready is not None
    assert ready[1].claimed is not None
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


def test_a_call_that_had_not_begun_before_the_abort_begins_after_it(window):
    calls = admitted(window, batch((0, 5)))
    window.put_back()
    assert admitted(window, batch((0, 5))) == calls


def test_a_duplicate_is_judged_again_when_it_is_read_again(window):
    admitted(window, batch((0, 5)), fates={0: None})
    window.put_back()
    (call,) = admitted(window, batch((0, 5)))
    assert not call.done


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
    assert (window.records, window.bytes, window.depth(P0)) == (count, 2 * count, count)
    window.put_back()
    assert (window.records, window.bytes, window.depth(P0)) == (0, 0, 0)


def test_a_partition_that_takes_too_much_is_held_until_it_is_released():
    told: list[tuple[object, bool]] = []
    source = SimpleNamespace(hold=lambda where, *, held: told.append((where, held)))
    runner: Any = SimpleNamespace(source=source, _held=set())
    WindowRunner._hold(runner, {P0})
    assert runner._held == {P0}
    WindowRunner._release(runner, runner._held)
    assert runner._held == set()
    assert told == [(P0, True), (P0, False)]
