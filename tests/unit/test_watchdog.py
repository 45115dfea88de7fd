"""The watchdog: a call or a stop that never ends is ended; a long batch is cut."""

import os
import signal
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.records import Output, Record
from hapax.core.results import Failure
from hapax.engines import watchdog as module
from hapax.engines.lifecycle import Lifecycle
from hapax.engines.watchdog import Watchdog
from hapax.processing.transform import Transformer
from tests.kit.doubles import Ticking

WAIT_S = 10.0


class Left:
    """Stands for the end of the process."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.seconds: list[float] = []
        self.codes: list[int] = []
        self.left = threading.Event()

    def overrun(self, call: str, seconds: float) -> None:
        self.told.append(call)
        self.seconds.append(seconds)

    def leave(self, code: int) -> None:
        self.codes.append(code)
        self.left.set()


@pytest.fixture
def left():
    return Left()


@pytest.fixture
def watchdog(left, monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 0.002)
    dog = Watchdog(0.02, on_overrun=left.overrun, leave=left.leave)
    dog.start()
    yield dog
    dog.stop()


def test_a_call_that_overruns_ends_the_process_and_is_named(watchdog, left):
    with watchdog.watch("commit_transaction"):
        assert left.left.wait(WAIT_S)
    assert (left.told, left.codes) == (["commit_transaction"], [7])
    assert left.seconds == [pytest.approx(11 * module.TICK_S)]


ONE = Record("in", 0, 0, None, b"v")


@pytest.mark.parametrize(("whole_s", "attempts"), [(99.0, 3), (1.4, 2)])
def test_attempts_at_a_record_are_timed_apart_and_none_begins_when_the_group_would_not_wait(
    left, whole_s, attempts
):
    dog, calls = Watchdog(9.0, on_overrun=left.overrun), Interrupt()
    dog.limit_calls(calls, 0.5, print, whole_s)

    def away(_record: Record) -> Output:
        dog._hanging()  # the tick that meets the attempt
        assert [dog._hanging() for _ in range(5)] == [None] * 5
        raise ConnectionError("away")

    (result,) = Transformer(away, 3).apply_all(Batch([ONE]), calls, {})
    assert result == Failure("ConnectionError", "away", attempts)
    calls.record, calls.pausing = ONE, True
    assert [dog._hanging() for _ in range(99)] == [None] * 99
    calls.pausing = False
    assert [dog._hanging() for _ in range(6)][-2:] == [None, ONE]


def test_what_is_followed_may_fail_and_a_stop_that_hangs_is_still_cut(watchdog, left):
    watchdog.follow(Mock(side_effect=RuntimeError("Event loop is closed")))
    watchdog.limit_stop(lambda: True, 0.02)
    assert left.left.wait(WAIT_S)
    assert left.codes == [7]


def test_an_inner_call_gives_its_outer_one_back(watchdog, left):
    with watchdog.watch("outer"):
        with watchdog.watch("inner"):
            pass
        assert left.left.wait(WAIT_S)
    assert left.told == ["outer"]


def test_a_call_that_raises_is_no_longer_watched(watchdog, left):
    with pytest.raises(ValueError, match="no"), watchdog.watch("seek"):
        raise ValueError("no")
    assert watchdog._call is None
    assert not left.codes


def test_time_between_calls_is_not_counted(watchdog, left):
    seen = watchdog._ticks
    while watchdog._ticks < seen + 20:  # twice the bound, without a call
        assert not left.left.wait(0.002)
    with watchdog.watch("poll"):
        assert watchdog._ticks <= 1
    assert not left.codes


def test_a_call_in_progress_is_known_with_its_seconds_also_when_it_is_repeated(monkeypatch):
    dog = Watchdog(60.0, on_overrun=lambda _call, _s: None)
    dog._owner, seen = threading.get_ident(), []

    def ticks() -> Iterator[bool]:
        yield False
        for _attempt in range(2):
            with dog.watch("commit_transaction"):
                for _tick in range(3):
                    yield False
                    seen.append(dog.waiting())
        yield False
        seen.append(dog.waiting())
        yield True

    each = ticks()
    monkeypatch.setattr(dog._stopped, "wait", lambda _seconds: next(each))
    dog._run()
    assert [None if one is None else round(one[1] * 10) for one in seen] == [0, 1, 2, 3, 4, 5, None]


def test_a_stop_that_outlasts_its_time_and_the_margin_ends_the_process(watchdog, left):
    overdue = threading.Event()
    watchdog.limit_stop(overdue.is_set, 0.02)
    assert not left.left.wait(0.1)
    overdue.set()
    assert left.left.wait(WAIT_S)
    assert (left.told, left.codes) == (["stop"], [7])


def test_a_stop_that_hangs_in_a_call_is_told_with_its_name(left, monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 0.002)
    dog = Watchdog(60.0, on_overrun=left.overrun, leave=left.leave)
    dog.limit_stop(lambda: True, 0.02)
    dog.start()
    with dog.watch("close"):
        assert left.left.wait(WAIT_S)
    dog.stop()
    assert (left.told, left.codes) == (["close"], [7])


def test_an_alarm_makes_its_interrupt_due_once(monkeypatch):
    dog = Watchdog(60.0, on_overrun=lambda _call, _s: None)
    interrupt, waited = Interrupt(), []

    def ticks() -> Iterator[bool]:
        for tick in range(20):
            waited.append((tick, interrupt.due))
            if tick == 15:
                interrupt.due = False
            yield False
        yield True

    each = ticks()
    monkeypatch.setattr(dog._stopped, "wait", lambda _seconds: next(each))
    dog.alarm(1.0, interrupt)
    dog._run()
    assert next(tick for tick, due in waited if due) == 10
    assert not interrupt.due


# -- The wish to stop ---------------------------------------------------------------------


@pytest.fixture
def _handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def lifecycle() -> tuple[Lifecycle, Interrupt, Ticking]:
    clock, interrupt = Ticking(), Interrupt()
    return Lifecycle(clock, interrupt, timeout_s=25.0), interrupt, clock


def test_the_first_wish_leaves_time_to_finish_the_batch_and_the_second_none_and_keeps_its_reason():
    life, interrupt, clock = lifecycle()
    assert (life.stopping, life.overdue, interrupt.due, life.reason) == (False, False, False, "")
    life.stop("SIGTERM")
    assert (life.stopping, life.overdue, interrupt.due) == (True, False, True)
    clock.wait(25.1)
    assert life.overdue
    life, _, _ = lifecycle()
    life.stop("SIGTERM")
    life.stop("SIGINT")
    assert life.overdue
    assert life.reason == "SIGTERM"


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_recorded_by_name(number):
    life, _, _ = lifecycle()
    life.listen()
    os.kill(os.getpid(), number)
    assert life.stopping
    assert life.reason == number.name


def test_nobody_rests_who_should_leave():
    life, _, _ = lifecycle()
    life.rest(0.001)
    life.stop("SIGTERM")
    life.rest(3600.0)
