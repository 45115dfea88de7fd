"""The wish to stop."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from hapax.core.interrupt import Interrupt
from hapax.engines.lifecycle import Lifecycle
from tests.kit.doubles import Ticking

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def lifecycle() -> tuple[Lifecycle, Interrupt, Ticking]:
    clock, interrupt = Ticking(), Interrupt()
    return Lifecycle(clock, interrupt, timeout_s=25.0), interrupt, clock


def test_nothing_is_wished_at_the_start():
    life, interrupt, _ = lifecycle()
    assert (life.stopping, life.overdue, interrupt.due, life.reason) == (False, False, False, "")


def test_the_first_wish_leaves_time_to_finish_the_batch():
    life, interrupt, clock = lifecycle()
    life.stop("SIGTERM")
    assert (life.stopping, life.overdue, interrupt.due) == (True, False, True)
    clock.wait(25.1)
    assert life.overdue


def test_the_second_wish_leaves_none_and_keeps_the_first_reason():
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
