"""Calls that take too long: a coroutine is cancelled, a thread ends its process."""

import json
from typing import Any

import pytest

from tests.kit.at_work import await_told
from tests.kit.calls import MODULE
from tests.kit.killers import supervise
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest, header, metric
from tests.kit.probes import ask, free_port
from tests.kit.topics import Given
from tests.kit.waiting import await_

COROUTINE = {"TRANSFORM": f"{MODULE}:coroutine", "CALL__CONCURRENCY": "16"}
THREADS = {"TRANSFORM": f"{MODULE}:function", "CALL__CONCURRENCY": "8"}
LIST = {"TRANSFORM": f"{MODULE}:batch", "CALL__TIMEOUT": "20s"}
"""One call at a time, which may take longer than the poll interval."""
POLL = {
    "GROUP__MEMBERSHIP": "dynamic",
    "GROUP__SESSION_TIMEOUT": "6s",
    "GROUP__MAX_POLL_INTERVAL": "7s",
    "TRANSACTION__TIMEOUT": "4s",
    "WATCHDOG__TIMEOUT": "5s",
}
DEATHS_MAX = 3


def quick(*numbers: int, partition: int = 0) -> list[Given]:
    return [Given(b"%d" % each, b"key-%d" % each, (), partition) for each in numbers]


def slow(seconds: float, name: str = "sleep-s", partition: int = 0) -> Given:
    return Given(b"slow", b"slow", ((name, b"%g" % seconds),), partition)


def values(route: PipelineUnderTest) -> list[bytes]:
    return sorted(each.value or b"" for each in route.outputs())


def expected(*numbers: int, more: tuple[bytes, ...] = ()) -> list[bytes]:
    return sorted([*(b"%d" % number for number in numbers), *more])


@pytest.mark.parametrize("form", ["coroutine", "coroutine_batch"])
def test_a_coroutine_past_its_time_is_cancelled_and_a_dead_letter_and_the_others_go_on(route, form):
    route.write(*quick(*range(20)), slow(3600), *quick(*range(20, 40)))
    worker = route.worker(
        TRANSFORM=f"{MODULE}:{form}",
        CALL__CONCURRENCY="16",
        CALL__TIMEOUT="500ms",
        CALL__RECORDS_MAX="4",
    )
    route.await_lag_0()
    assert worker.terminate() == 0, worker.text()
    (letter,) = route.dead()
    assert letter.value == b"slow"
    assert "timeout" in header(letter, "hapax-error").lower()
    assert values(route) == expected(*range(40))
    assert worker.lines("call_hung") == []


def test_while_one_call_runs_other_partitions_are_committed_and_its_own_waits_for_it(route):
    route.write(*quick(0), slow(8), *quick(*range(1, 20)), *quick(*range(20, 40), partition=1))
    port = free_port()
    worker = route.worker(**COROUTINE, TELEMETRY__PORT=str(port))
    await_(lambda: route.committed() == {0: 1, 1: 20}, 6, worker.text)
    assert values(route) == expected(0, *range(20, 40))
    metrics = ask(port, "/metrics")[1]
    assert metric(metrics, "hapax_calls_in_flight") >= 1
    assert metric(metrics, "hapax_call_oldest_seconds") > 0
    assert '"in_flight"' in ask(port, "/status.json")[1]
    route.await_lag_0()
    assert values(route) == expected(*range(40), more=(b"slow",))
    assert metric(ask(port, "/metrics")[1], "hapax_calls_in_flight") == 0
    assert worker.terminate() == 0


def test_a_record_in_a_call_is_traced_as_waiting_for_it_by_the_port_of_its_process(route):
    route.write(*quick(0), slow(3600), *quick(2))
    port = free_port()
    worker = route.worker(**COROUTINE, TELEMETRY__PORT=str(port), TELEMETRY__LAG_INTERVAL="1s")
    await_(lambda: route.committed().get(0) == 1, 20, worker.text)
    desk = Desk(route)

    def traced(at: int, *words: str) -> dict[str, Any]:
        (one,) = desk.ask("trace", f"{route.source}/0/{at}", *words)["records"]
        assert isinstance(one, dict)
        return one

    asked = ("--port", str(port))
    assert traced(0, *asked)["verdict"] == "done: 1 output"
    assert traced(1)["verdict"] == "waiting: not processed yet", "only the process knows more"
    called = traced(1, *asked)
    assert called["verdict"].startswith("waiting for its call, which has taken")
    assert called["in_call_seconds"] > 0
    behind = f"waiting for its call or its commit: read by w-0, alongside {route.source}/0/1"
    await_(lambda: traced(2, *asked)["verdict"].startswith(behind), 10, worker.text)
    other = Desk(route, APP="other").type("trace", f"{route.source}/0/1", *asked)
    assert other.exit_code == 1, other.output
    assert "is none of other" in other.stderr
    worker.kill()


@pytest.mark.parametrize("form", [COROUTINE, THREADS, LIST], ids=["coroutine", "threads", "list"])
def test_a_call_longer_than_the_poll_interval_does_not_cost_the_membership(route, stamps, form):
    route.write(slow(10), *quick(*range(20)))
    worker = route.worker(**form, **POLL)
    route.await_lag_0()
    assert worker.terminate() == 0, worker.text()
    assert values(route) == expected(*range(20), more=(b"slow",))
    assert worker.lines("partitions_lost") == worker.lines("call_hung") == []
    assert worker.lines("partitions_assigned")[1:] == []
    assert len(stamps.called()) == 21, "nothing was called again"


def test_a_thread_that_hangs_ends_with_8_and_names_the_record(route):
    records = quick(*range(40))
    route.write(*records[:20], slow(3600), *records[20:])
    codes, workers = supervise(
        route, starts_max=DEATHS_MAX + 1, within_s=60, **THREADS, CALL__TIMEOUT="1s"
    )
    assert codes[-1] == 0, workers[-1].text()
    assert set(codes[:-1]) == {8}
    assert len(codes) - 1 <= DEATHS_MAX
    (line,) = workers[0].lines("call_hung")[:1]
    assert line["record"] == f"{route.source}/0/20"
    (letter,) = route.dead()
    assert letter.value == b"slow"
    assert values(route) == expected(*range(40))


def test_a_coroutine_that_blocks_the_loop_is_named_after_a_second(route):
    route.write(*quick(*range(5)), slow(2.5, "block-s"), *quick(*range(5, 10)))
    worker = route.worker(**COROUTINE)
    await_told(worker, "event_loop_blocked")
    route.await_lag_0()
    (line,) = worker.lines("event_loop_blocked")
    assert line["level"] == "warning"
    told = json.dumps(line)
    assert "tests/kit/calls.py" in told or f"{route.source}/0/5" in told, told
    assert values(route) == expected(*range(10), more=(b"slow",))
    assert worker.terminate() == 0
