"""Calls that may never return wait on a thread of their own."""

from __future__ import annotations

import threading

import pytest

from hapax.kafka.produce.call_timeout import Caller, HangingError


def test_a_call_is_made_with_its_arguments_before_the_caller_goes_on():
    caller, seen = Caller(), []
    caller.call(lambda *arguments: seen.append(arguments), 1, "two", timeout_s=10)
    assert seen == [(1, "two")]
    caller.close()


def test_what_a_call_raises_is_raised_to_its_caller_and_the_next_call_works():
    caller = Caller()
    with pytest.raises(ValueError, match="no"):
        caller.call(int, "no", timeout_s=10)
    caller.call(int, "1", timeout_s=10)
    caller.close()


def test_a_call_that_hangs_is_left_behind_and_its_late_answer_reaches_nobody():
    gate, left = threading.Event(), threading.Event()

    def hang() -> None:
        gate.wait()
        left.set()

    caller = Caller()
    with pytest.raises(HangingError, match="no return"):
        caller.call(hang, timeout_s=0.01)
    gate.set()
    assert left.wait(10)
    caller._thread.join(10)
    assert not caller._thread.is_alive()


def test_a_call_under_suspicion_has_less_time_and_one_without_has_all():
    gate = threading.Event()
    caller = Caller()
    with pytest.raises(HangingError, match="no return after 0"):
        caller.call(gate.wait, timeout_s=60, suspect=lambda: True, suspect_timeout_s=0.05)
    gate.set()
    caller = Caller()
    caller.call(gate.wait, timeout_s=60, suspect=lambda: True)
    caller.close()
