"""Calls on an event loop and on threads: limits, cancellation, failures, set-up and farewell."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch, Identified
from hapax.core.records import Output, Record
from hapax.core.results import Failure
from hapax.engines.overlapping_calls import GatheredCalls, make_calls
from hapax.processing.batch_result import Begun
from hapax.processing.call_window import PENDING, Call, CallLimits, Window
from hapax.processing.deduplicate import Claimed
from hapax.processing.retry_later import Retrying
from hapax.processing.transform import form_of
from tests.kit import leaving
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from hapax.engines.overlapping_calls import SlotCalls

WITHIN_S = 20.0


@pytest.fixture
def opened():
    """Return a function that opens calls of a transform; they are closed in the end."""
    made: list[SlotCalls] = []

    def open_calls(function: Callable[..., Any], **limits: Any) -> SlotCalls:
        blocked: list[Record | None] = []
        calls = make_calls(form_of(function), CallLimits(**limits), blocked.append)
        calls.blocked = blocked  # type: ignore[attr-defined] # for the test alone
        calls.open()
        made.append(calls)
        return calls

    yield open_calls
    for calls in made:
        calls.close()


def records(count: int, key: bytes | None = None) -> list[Call]:
    return [
        Call(Record("in", 0, at, key, b"%d" % at), b"", key, unchecked=False) for at in range(count)
    ]


def done(calls: SlotCalls, made: Sequence[Call]) -> list[Any]:
    until_s = time.monotonic() + WITHIN_S
    while not all(call.done for call in made) and time.monotonic() < until_s:
        calls.wait(0.05)
    return [call.result for call in made]


class Meeting:
    """Business code that ends only when so many calls are in flight at once."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=WITHIN_S)

    def __call__(self, record: Record) -> Output:
        self._barrier.wait()
        return Output(record.value)


def test_as_many_threads_call_at_once_as_are_allowed(opened):
    calls, made = opened(Meeting(4), concurrency=4), records(4)
    calls.start(made)
    assert done(calls, made) == [(Output(b"%d" % at),) for at in range(4)]


def test_as_many_coroutines_overlap_as_are_allowed(opened):
    flying, most = 0, 0

    async def function(record: Record) -> Output:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.01)
        flying -= 1
        return Output(record.value)

    calls, made = opened(function, concurrency=3), records(20)
    calls.start(made)
    assert done(calls, made) == [(Output(b"%d" % at),) for at in range(20)]
    assert most == 3
    await_(lambda: len(calls.begun()) == 0)


@pytest.mark.parametrize("threads", [False, True])
def test_calls_of_one_key_do_not_overlap(opened, *, threads):
    order: list[tuple[str, int]] = []

    def blocking(record: Record) -> None:
        order.append(("begin", record.offset))
        time.sleep(0.002)
        order.append(("end", record.offset))

    async def waiting(record: Record) -> None:
        order.append(("begin", record.offset))
        await asyncio.sleep(0.002)
        order.append(("end", record.offset))

    calls, made = opened(blocking if threads else waiting, concurrency=8), records(10, b"k")
    calls.start(made)
    done(calls, made)
    assert order == [(what, at) for at in range(10) for what in ("begin", "end")]


@pytest.mark.parametrize("threads", [False, True])
def test_a_failing_record_is_tried_again_and_the_others_do_not_wait_for_it(opened, *, threads):
    tries: list[int] = []

    def blocking(record: Record) -> Output:
        tries.append(record.offset)
        if record.offset == 1:
            raise ConnectionError("away")
        return Output(record.value)

    async def waiting(record: Record) -> Output:
        return blocking(record)

    calls, made = opened(blocking if threads else waiting, concurrency=2), records(3)
    calls.start(made)
    results = done(calls, made)
    assert results[1] == Failure("ConnectionError", "away", 3)
    assert results[::2] == [(Output(b"0"),), (Output(b"2"),)]
    assert tries.count(1) == 3


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_list_that_raises_is_halved_to_its_culprit(opened, *, asynchronous):
    seen: list[int] = []

    def plain(records: list[Record]) -> list[Output]:
        seen.append(len(records))
        if any(record.offset == 5 for record in records):
            raise ValueError("five")
        return [Output(record.value) for record in records]

    async def waiting(records: list[Record]) -> list[Output]:
        return plain(records)

    function = waiting if asynchronous else plain
    calls, made = opened(function, records_max=8, attempts_max=2), records(8)
    calls.start(made)
    results = done(calls, made)
    assert results[5] == Failure("ValueError", "five", 2)
    assert [result for at, result in enumerate(results) if at != 5] == [
        (Output(b"%d" % at),) for at in range(8) if at != 5
    ]
    assert max(seen) <= 8


def test_a_coroutine_that_takes_too_long_is_cancelled_and_fails_with_timeout(opened):
    async def function(record: Record) -> Output:
        if record.offset == 0:
            await asyncio.sleep(WITHIN_S * 10)
        return Output(record.value)

    calls, made = opened(function, concurrency=2, timeout_s=0.2), records(2)
    calls.start(made)
    await_(lambda: made[1].done)
    assert made[0].result is PENDING
    while not made[0].done:
        assert calls.tick() is None
        calls.wait(0.05)
    assert isinstance(made[0].result, Failure)
    assert (made[0].result.reason, made[0].result.attempts) == ("timeout", 1)
    assert "0.2 s" in made[0].result.text


def test_a_coroutine_that_ignores_its_cancellation_hangs_and_is_named(opened):
    released = threading.Event()

    async def function(_record: Record) -> None:
        while not released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    calls, made = opened(function, timeout_s=0.1), records(1)
    calls.start(made)
    await_(lambda: len(calls.begun()) == 1)
    hung = next(found for _ in range(100) if (found := calls.tick()) is not None)
    released.set()
    done(calls, made)
    assert hung[0] is made[0].record
    assert hung[1] > 0.2


def test_while_one_coroutine_holds_the_loop_time_passes_for_it_alone(opened):
    entered, released = threading.Event(), threading.Event()

    async def function(record: Record) -> Output:
        if record.offset == 0:
            await asyncio.sleep(0.01)
            entered.set()
            released.wait(WITHIN_S)  # what it must not do
        else:
            await asyncio.sleep(0.2)
        return Output(record.value)

    calls, made = opened(function, concurrency=4, timeout_s=1.0), records(4)
    calls.start(made)
    assert entered.wait(WITHIN_S)
    assert [calls.tick() for _ in range(20)] == [None] * 20
    released.set()
    results = done(calls, made)
    assert isinstance(results[0], Failure)
    assert results[0].reason == "timeout"
    assert results[1:] == [(Output(b"%d" % at),) for at in (1, 2, 3)]
    assert calls.blocked == [made[0].record], "named once"
    calls.close()
    assert calls.tick() is None, "a loop that is closed has no more beats"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_pause_between_two_attempts_is_no_part_of_either(opened, *, asynchronous):
    tried: list[Record] = []

    def function(record: Record) -> Output:
        tried.append(record)
        if len(tried) == 1:
            raise ConnectionError("once")
        return Output(record.value)

    async def waiting(record: Record) -> Output:
        return function(record)

    limits = {"concurrency": 2, "timeout_s": 0.2, "retrying": Retrying(backoff_ms=1000)}
    calls, made = opened(waiting if asynchronous else function, **limits), records(1)
    calls.start(made)
    await_(lambda: len(tried) == 1 and all(slot.resting for slot in calls._slots))
    assert [calls.tick() for _ in range(100)] == [None] * 100
    assert done(calls, made) == [(Output(b"0"),)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_outputs_that_wait_for_an_earlier_call_are_bounded_in_bytes(opened, *, asynchronous):
    released = threading.Event()

    def function(record: Record) -> Output:
        if (record.partition, record.offset) == (0, 0):
            released.wait(WITHIN_S)
        return Output(b"x" * 1000)

    async def waiting(record: Record) -> Output:
        return await asyncio.to_thread(function, record)

    calls, window = opened(waiting if asynchronous else function, concurrency=4), Window()
    window.room.bytes_max, window.room.share = 20_000, 10_000
    taken = Batch([Record("in", at % 2, at // 2, None, b"v") for at in range(200)], {}, {})
    found = Identified([b""] * 200, [], {}, {})
    made = window.admit(taken, Begun(found, None, {}, claimed=Claimed({})))
    calls.start(made)
    await_(lambda: all(call.done for call in made if call.where[1]))
    assert 9 <= sum(call.done for call in made if not call.where[1]) <= 10 + 4, "and those in calls"
    released.set()
    while not all(call.done for call in made):
        calls.wait(0.05)
        if (ready := window.ready(100)) is not None:
            window.settle({(one.topic, one.partition): one.offset + 1 for one in ready[0].records})
        calls.start(())
    window.settle({("in", 0): 100, ("in", 1): 100})
    assert (window.room.bytes, window.records) == (0, 0)


@pytest.mark.parametrize("answers", [False, True])
def test_a_thread_that_hangs_is_named(opened, *, answers):
    """Also in what its answer yields."""
    released = threading.Event()

    def yielding() -> Iterator[Output]:
        released.wait(WITHIN_S)
        yield Output(b"v")

    def function(_record: Record) -> Iterator[Output]:
        return yielding() if answers else iter(list(yielding()))

    calls, made = opened(function, concurrency=2, timeout_s=0.35), records(1)
    calls.start(made)
    await_(lambda: len(calls.begun()) == 1)
    assert [calls.tick() for _ in range(3)] == [None] * 3
    assert calls.tick()[0] is made[0].record
    ((record, seconds),) = calls.running()
    assert record is made[0].record
    assert seconds == pytest.approx(0.4)
    released.set()
    done(calls, made)


def test_calls_that_are_dropped_do_not_begin_and_coroutines_are_cancelled(opened):
    cancelled: list[int] = []

    async def function(record: Record) -> None:
        try:
            await asyncio.sleep(WITHIN_S * 10)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    calls, made = opened(function, concurrency=1), records(3)
    calls.start(made)
    await_(lambda: len(calls.begun()) == 1)
    calls.drop(made)
    await_(lambda: len(calls.begun()) == 0)
    assert cancelled == [0]


class Client:
    """A transform that is opened once and closed once."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def setup(self) -> None:
        self.told.append("open")

    async def __call__(self, record: Record) -> Output:
        self.told.append("call")
        return Output(record.value)

    async def teardown(self) -> None:
        self.told.append("close")


def test_what_is_opened_before_the_first_call_is_closed_after_the_last():
    client = Client()
    calls, made = make_calls(form_of(client), CallLimits()), records(2)
    calls.open()
    calls.start(made)
    done(calls, made)
    calls.close()
    assert client.told == ["open", "call", "call", "close"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_context_manager_is_entered_and_left_once(*, asynchronous):
    told: list[str] = []

    @contextmanager
    def plain() -> Iterator[Callable[[Record], Output]]:
        told.append("open")
        yield lambda record: Output(record.value)
        told.append("close")

    @asynccontextmanager
    async def waiting() -> AsyncIterator[Callable[[list[Record]], Any]]:
        told.append("open")

        async def function(records: list[Record]) -> list[Output]:
            return [Output(record.value) for record in records]

        yield function
        told.append("close")

    calls, made = make_calls(form_of(waiting if asynchronous else plain), CallLimits()), records(2)
    calls.open()
    calls.start(made)
    assert done(calls, made) == [(Output(b"0"),), (Output(b"1"),)]
    calls.close()
    assert told == ["open", "close"]


def test_a_set_up_that_fails_is_a_mistake_of_the_configuration():
    class Broken(Client):
        async def setup(self) -> None:
            raise OSError("no route")

    calls = make_calls(form_of(Broken()), CallLimits())
    with pytest.raises(ConfigurationError, match="OSError: no route"):
        calls.open()


def test_a_batch_is_gathered_in_its_order_and_cut_when_it_is_due(opened):
    interrupt = Interrupt()

    async def function(record: Record) -> Output:
        if record.offset == 3:
            interrupt.due = True
        await asyncio.sleep(0.05)
        return Output(record.value)

    gathered = GatheredCalls(opened(function, concurrency=2))
    batch = [Record("in", 0, at, None, b"%d" % at) for at in range(50)]
    results = gathered.apply_all(Batch(batch), interrupt, {1: None})
    assert results[:2] == [(Output(b"0"),), None]
    assert 4 <= len(results) < 50


@pytest.mark.parametrize("value", leaving.DEEDS)
@pytest.mark.parametrize("named", [leaving.function, leaving.coroutine, leaving.batch])
def test_what_is_no_exception_fails_its_record_alone(opened, named, value):
    calls = opened(named, concurrency=2, attempts_max=1)
    made = [
        Call(Record("in", 0, at, None, each), b"", None, unchecked=False)
        for at, each in enumerate((b"1", value, b"2"))
    ]
    calls.start(made)
    first, failure, last = done(calls, made)
    assert (first, last) == ((Output(b"1"),), (Output(b"2"),))
    assert failure.reason == type(leaving.DEEDS[value]()).__name__


def test_a_function_that_leaves_before_it_has_a_coroutine_holds_no_slot(opened):
    class Leaving:
        async def __call__(self, record: Record) -> Output:
            return Output(record.value)

    calls = opened(Leaving(), concurrency=1, attempts_max=1)
    calls._function = leaving.function
    made = [Call(Record("in", 0, 0, None, b"exit-0"), b"", None, unchecked=False)]
    calls.start(made)
    assert done(calls, made) == [Failure("SystemExit", "0", 1)]
