"""What repeats is told first and counted after."""

import math

import pytest

from hapax.core.records import Coordinates
from hapax.telemetry.events.service import OVERFLOW, Repeats, Withheld
from tests.unit.test_telemetry_events import Told

REFUSED = "[thrd:b:9092/1]: b:9092/1: Connect failed: refused (after {})"


@pytest.fixture
def repeats():
    return Repeats(window_s=60)


def test_the_first_is_told_and_the_rest_of_its_window_counted(repeats):
    assert repeats.admit(("a",), 0)
    assert repeats.due_s == math.inf
    assert [repeats.admit(("a",), now_s) for now_s in (1, 59)] == [False, False]
    assert repeats.due_s == 60
    assert repeats.ended(59) == []
    assert repeats.ended(60) == [Withheld(("a",), 2)]
    assert repeats.due_s == math.inf
    assert repeats.ended(1_000) == []
    assert repeats.admit(("a",), 60)


def test_a_count_survives_a_new_window_that_opens_before_the_report(repeats):
    for now_s in (0, 1, 2, 70):
        repeats.admit(("a",), now_s)
    assert repeats.due_s == 60
    assert repeats.ended(71) == [Withheld(("a",), 2)]


def test_keys_are_told_apart_up_to_a_limit_and_share_one_beyond():
    repeats = Repeats(window_s=60, keys_max=2)
    assert [repeats.admit((key,), 0) for key in ("a", "b", "c", "d")] == [True, True, True, False]
    assert repeats.ended(60) == [Withheld(OVERFLOW, 1)]


def test_windows_that_are_over_make_room_for_new_keys():
    repeats = Repeats(window_s=60, keys_max=1)
    repeats.admit(("a",), 0)
    assert repeats.admit(("b",), 60)
    assert not repeats.admit(("b",), 61)
    assert repeats.ended(200) == [Withheld(("b",), 1)]


def test_ten_dead_letters_a_minute_are_told_in_full_then_one_line_counts(told):
    for offset in range(25):
        told.events.dead_letter_written(Coordinates("orders", 0, offset), "KeyError", 3)
    assert len(told.lines) == 10
    told.monotonic_s += 60
    told.events.loop_moved()
    assert len(told.lines) == 11
    last = told.lines[-1]
    assert (last["event"], last["of"], last["count"]) == (
        "log_lines_suppressed",
        "dead_letter_written",
        15,
    )


def test_what_was_withheld_is_told_before_the_last_line(told):
    for _ in range(3):
        told.events.librdkafka_logged("consumer", 40, "FAIL", "gone")
    told.events.service_stopped(0, "drained")
    assert [line["event"] for line in told.lines] == [
        "librdkafka_logged",
        "log_lines_suppressed",
        "service_stopped",
    ]
    assert told.lines[1]["count"] == 2


def test_lines_of_the_client_that_differ_in_times_only_are_repeats_unless_they_are_debug(told):
    for times in ("0ms in state UP", "17ms in state UP", "9ms, 30 identical error(s) suppressed"):
        told.events.librdkafka_logged("consumer", 40, "FAIL", REFUSED.format(times))
    assert [line["text"] for line in told.lines] == [REFUSED.format("0ms in state UP")]
    for broker in ("b-1:9092/1", "b-2:9092/2"):  # about two brokers are not
        told.events.librdkafka_logged("consumer", 40, "FAIL", f"{broker}: refused (after 1ms)")
    assert len(told.lines) == 3
    assert told.value("librdkafka_errors_total", facility="FAIL") == 5
    for _ in range(3):
        told.events.librdkafka_logged("consumer", 10, "BROKER", "state")
    assert [line["level"] for line in told.lines[3:]] == ["debug"] * 3
    assert told.value("librdkafka_errors_total", facility="BROKER") is None


def test_a_coordinator_that_loads_is_no_warning_within_a_start_and_one_after_it(told):
    text = "b:9092: Failed to acquire transactional PID: Broker: Coordinator load in progress"
    for passed_s in (0, 29, 1, 1):
        told.monotonic_s += passed_s
        told.events.librdkafka_logged("transaction", 30, "GETPID", text)
    told.events.librdkafka_logged("transaction", 40, "GETPID", f"{text}: fatal")
    assert [line["level"] for line in told.lines] == ["info", "warning", "warning"]
    assert told.value("librdkafka_errors_total", facility="GETPID") == 1


def test_what_the_level_hides_is_not_remembered_either():
    told = Told("warning")
    told.events.librdkafka_logged("consumer", 20, "VERSION", "hello")
    told.events.librdkafka_logged("consumer", 10, "BROKER", "state")
    told.monotonic_s += 60
    assert told.events._repeats.ended(math.inf) == []
    assert told.lines == []
