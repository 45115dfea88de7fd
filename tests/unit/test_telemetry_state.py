"""Probes: what they answer, why, and which events change it."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from structlog import processors

from hapax.core.ports import Stuck
from hapax.core.records import Coordinates
from hapax.telemetry.events import Events
from hapax.telemetry.line_queue import LineQueue, write_within
from hapax.telemetry.logs import ClientLogger, LibraryHandler, capture_library_logs, configure_logs
from tests.kit.waiting import await_
from tests.unit.test_telemetry_events import ORDERS, Told

STARTING = "starting: transactions are not initialised yet"
UNASSIGNED = "waiting for the first assignment of partitions"


@pytest.fixture
def ready(told):
    told.events.service_ready()
    told.events.partitions_assigned([ORDERS])
    assert told.health.readyz() == (True, [])
    return told


def test_a_service_that_starts_is_alive_and_says_what_it_waits_for(told):
    assert told.health.livez() == (True, [])
    assert told.health.startupz() == (False, [STARTING])
    assert told.health.readyz() == (False, [STARTING, UNASSIGNED])


def started(told: Told, **settings: str) -> None:
    told.events.service_started(
        settings, version="1", engine="worker", librdkafka="2", record_path="python"
    )


def test_ready_begins_with_the_first_assignment_ends_with_draining_and_is_a_metric_too(told):
    started(told)
    told.events.service_ready()
    assert told.health.startupz() == (True, [])
    assert told.health.readyz() == (False, [UNASSIGNED])
    assert told.value("ready") == 0
    told.events.partitions_assigned([])
    assert told.health.readyz() == (True, [])
    assert told.value("ready") == 1
    told.events.service_draining("SIGTERM")
    assert told.value("ready") == 0
    assert told.health.readyz() == (False, ["draining"])
    assert told.health.livez().ok
    assert told.health.startupz().ok


def test_a_stuck_partition_ends_readiness_and_has_its_series_until_it_moves(ready):
    labels = {"topic": "orders", "partition": "0"}
    ready.events.partition_stuck({ORDERS: Stuck(7, "bad codec")})
    (reason,) = ready.health.readyz().reasons
    assert "orders/0 is stuck: the set at offset 7 cannot be read (bad codec)" in reason
    assert "hapax offsets skip orders/0/7 --dead-letter" in reason
    assert ready.health.state() == "stuck"
    assert ready.health.livez().ok
    for at, values in ((9, [1, 9]), (None, [None, None])):
        ready.events.partition_stuck({} if at is None else {ORDERS: Stuck(at, "bad codec")})
        names = ("partition_stuck", "partition_stuck_offset")
        assert [ready.value(name, **labels) for name in names] == values
    assert ready.health.readyz() == (True, [])
    assert ready.health.state() == "running"


def test_a_loop_that_waits_is_not_ready_and_past_the_limit_not_alive(ready):
    ready.events.loop_moved()
    ready.monotonic_s += 6
    assert ready.health.readyz() == (False, ["the loop has not moved for 6 s"])
    ready.monotonic_s += 24
    assert ready.health.livez().ok
    ready.monotonic_s += 0.5
    assert ready.health.livez() == (False, ["the loop has not moved for 30.5 s (limit 30 s)"])
    ready.events.loop_moved()
    assert ready.health.livez().ok
    assert ready.health.readyz() == (True, [])


def test_failures_without_a_success_among_them_end_readiness(ready):
    for _ in range(5):
        assert ready.health.readyz() == (True, [])
        ready.events.batch_aborted("NOT_ENOUGH_REPLICAS", 3, 1, {ORDERS: 5})
        ready.monotonic_s += 0.7
    assert ready.health.readyz() == (False, ["nothing has been committed for 4 s of failures"])
    assert ready.health.livez().ok
    ready.events.idle_offsets_committed({ORDERS: 5})
    assert ready.health.readyz() == (True, [])


def test_failures_are_forgotten_when_there_is_nothing_more_to_do(ready):
    for wait_s in (4, 9):
        ready.events.producer_init_retried("none answers")
        ready.monotonic_s += wait_s
    assert not ready.health.readyz().ok
    ready.monotonic_s += 2
    assert ready.health.readyz() == (True, [])


def test_a_claim_store_that_deletes_claims_is_named_as_such_until_it_keeps_them(ready):
    ready.events.claims_evicted("Redis evicts keys", 0)
    assert ready.health.readyz().ok, "what follows from it is for the engine to say"
    ready.events.claims_unavailable("Redis evicts keys", "pause")
    reasons = ["the claim store deletes claims", "Redis evicts keys, since 22:13:20"]
    assert ready.health.readyz() == (False, reasons)
    ready.events.claims_evicted("", 0)
    ready.events.claims_recovered(3.0)
    assert ready.health.readyz().ok


def test_claims_that_are_away_end_readiness_under_pause_and_change_nothing_under_pass(ready):
    ready.events.claims_unavailable("timeout", "pass")
    assert ready.health.readyz() == (True, [])
    assert ready.value("dedup_store_up") == 0
    ready.events.claims_recovered(3.0)
    ready.events.claims_unavailable("timeout", "pause")
    reasons = ["the claim store does not answer", "timeout, since 22:13:20"]
    assert ready.health.readyz() == (False, reasons)
    assert ready.health.livez().ok
    ready.events.claims_recovered(3.0)
    assert ready.health.readyz().ok


def test_an_outage_of_claims_is_told_once_a_minute_and_counted_each_time(ready):
    for _ in range(5):
        ready.events.claims_unavailable("timeout", "pause")
    assert len([line for line in ready.lines if line["event"] == "claims_unavailable"]) == 1
    assert ready.value("dedup_lookups_total", result="error") == 5


def test_assignments_add_up_losses_take_away_and_a_member_without_partitions_stays_ready(ready):
    ready.events.partitions_assigned([("orders", 1)])
    ready.events.partitions_assigned([("orders", 2)])
    assert ready.value("assigned_partitions") == 3
    ready.events.partitions_revoked([ORDERS])
    ready.events.partitions_lost([("orders", 1), ("orders", 9)])
    assert ready.health.partitions == {("orders", 2)}
    assert ready.value("assigned_partitions") == 1
    ready.events.partitions_revoked([("orders", 2)])
    assert ready.health.readyz() == (True, [])


def test_settings_are_logged_as_given_and_the_build_becomes_a_metric(told):
    given = {"HAPAX_KAFKA__SECURITY__PASSWORD": "***"}
    started(told, **given)
    assert told.lines[0]["settings"] == given
    labels = {"version": "1", "engine": "worker", "python": told.lines[0]["python"]}
    assert told.value("build_info", app="shop", librdkafka="2", **labels) == 1


def test_the_last_poll_is_known_without_work_in_the_loop(told):
    started(told)
    assert told.value("last_poll_timestamp_seconds") == 0
    told.events.loop_moved()
    told.monotonic_s += 5
    told.wall_s += 5
    assert told.value("last_poll_timestamp_seconds") == 1_700_000_000
    assert [line["event"] for line in told.lines] == ["service_started"]


def test_the_watchdog_does_not_wait_for_a_stdout_that_hangs(monkeypatch):
    reader, writer = os.pipe()
    told = Told()
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        logger = configure_logs("info", "json")
    logger.info("more than any pipe holds", text="x" * (1 << 20))
    monkeypatch.setattr("hapax.telemetry.line_queue.flush_lines.__defaults__", (0.01,))
    Events(told.metrics, told.health, logger).watchdog_fired("commit", 61)
    assert told.value("watchdog_fired_total", call="commit") == 1
    os.close(reader)


def test_lines_that_were_dropped_are_counted_and_told_once_when_one_comes_through(told):
    for _ in range(3):
        told.events.log_line_dropped()
    assert told.value("log_lines_dropped_total") == 3
    told.events.log_lines_dropped()
    (line,) = told.lines
    assert (line["event"], line["level"], line["count"]) == ("log_lines_dropped", "warning", 3)


@pytest.fixture
def root():
    root = logging.getLogger()
    before = root.handlers
    yield root
    root.handlers = before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_time_is_utc_and_iso_and_text_of_strangers_bounded_and_without_commands(told, monkeypatch):
    full = SimpleNamespace(now=lambda tz: datetime(2026, 7, 1, 12, tzinfo=tz))
    monkeypatch.setattr(processors, "datetime", SimpleNamespace(datetime=full, timezone=timezone))
    evil = "\x1b[2J\r\nforged line" + "x" * 1_000
    told.events.dead_letter_written(Coordinates("t", 0, 1), "ValueError", 1, evil)
    (line,) = told.lines
    assert line["timestamp"] == "2026-07-01T12:00:00.000000Z"  # also at a full second
    assert len(line["error"]) == 300
    assert line["error"].isprintable()


@pytest.mark.parametrize("odd", ["\ud800", 1 << 80, {1: 2}, {"a", "b"}, b"\xff", object()])
def test_what_json_cannot_hold_does_not_lose_the_line(odd, told):
    told.events._logger.info("odd", value=odd)
    assert told.lines[0]["event"] == "odd"
    assert "value" in told.lines[0]


def test_a_crash_shows_its_traceback_and_no_values_of_variables(told):
    private = "hunter2"
    try:
        told.events._metrics.consumer_lag.of(private)
    except ValueError as error:
        told.events.service_crashed(error)
    (line,) = told.lines
    assert "ValueError: zip()" in line["exception"]
    assert "in _bind" in line["exception"]
    assert private not in json.dumps(line)


def test_a_terminal_gets_text_and_auto_finds_out(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    logger = configure_logs("info", "auto", stream=terminal, app="shop")
    logger.error("service_crashed", exc_info=ValueError("why"))
    text = terminal.getvalue()
    assert "service_crashed" in text
    assert "app=shop" in text
    assert "ValueError: why" in text
    assert "\x1b" not in text
    assert "╭" not in text


LOGS = """import io
from hapax.telemetry.logs import configure_logs
configure_logs('info', 'console', stream=io.StringIO())"""


@pytest.mark.parametrize(
    ("does", "absent"),
    [
        (LOGS, {"rich"}),
        ("import hapax.telemetry.events", {"structlog", "rich", "prometheus_client"}),
    ],
)
def test_structlog_comes_without_rich_and_events_without_both(does, absent):
    roots = "{name.split('.')[0] for name in sys.modules}"
    code = f"{does}\nimport sys\nassert not {absent} & {roots}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("line", "facility", "text"),
    [
        ((40, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "refused"), "FAIL", "refused"),
        ((30, "lost %d", 3), "?", "lost 3"),
    ],
)
def test_a_client_logger_takes_what_librdkafka_gives_and_other_forms(told, line, facility, text):
    ClientLogger(told.events, "consumer").log(*line)
    assert told.lines[0].items() >= {"facility": facility, "text": text}.items()


def test_a_client_logger_never_raises_even_when_nothing_can_be_written(told):
    logger = ClientLogger(told.events, "consumer")
    logger.log(30, "%d", "no number")
    assert told.lines[0].items() >= {"event": "telemetry_failed", "error": "TypeError"}.items()
    assert told.value("telemetry_failures_total") == 1
    told.stream.close()
    logger.log(40, "%s [%s] %s", "FAIL", "c", "refused")
    assert told.value("telemetry_failures_total") == 2


def test_the_real_client_logs_through_it(told):
    confluent_kafka: Any = pytest.importorskip("confluent_kafka")
    settings = {"group.id": "g", "bootstrap.servers": "127.0.0.1:1", "debug": "generic"}
    consumer = confluent_kafka.Consumer(settings, logger=ClientLogger(told.events, "consumer"))
    for _ in range(100):
        consumer.poll(0.1)
        if told.value("librdkafka_errors_total", facility="FAIL"):
            break
    consumer.close()
    facilities = {line["facility"] for line in told.lines if line["event"] == "librdkafka_logged"}
    assert "FAIL" in facilities


def test_what_business_code_logs_becomes_a_line_with_its_traceback(told, root):
    capture_library_logs(told.events)
    assert [type(handler) for handler in root.handlers] == [LibraryHandler]
    logger = logging.getLogger("shop.rules")
    logger.warning("odd price %s", "12\n")
    expected = {"event": "library_logged", "library": "shop.rules", "text": "odd price 12 "}
    assert told.lines[0].items() >= expected.items()
    try:
        os.environ["HAPAX_RATE"]
    except KeyError:
        logger.exception("no rate")
    assert "KeyError: 'HAPAX_RATE'" in told.lines[1]["exception"]
    logger.warning("%d", "no number")
    assert told.lines[2]["event"] == "telemetry_failed"


LONG = b"x" * 1000
WITHIN_S = 20.0


class Pipe:
    """A pipe, the queue that writes to it, and what the queue has told."""

    def __init__(self, bytes_max: int = 100_000) -> None:
        reader, writer = os.pipe()
        self.reader = os.fdopen(reader, "rb", 0)
        self.lines = LineQueue(writer, bytes_max)
        os.close(writer)
        self.drops = 0
        self.resumes: list[int] = []
        self.lines.on_drop = self._dropped
        self.lines.on_resume = lambda: self.resumes.append(self.drops)

    def read(self, until: bytes) -> bytes:
        found = b""
        while until not in found:
            found += self.reader.read(1 << 16)
        return found

    def _dropped(self) -> None:
        self.drops += 1


@pytest.fixture
def pipe():
    made = Pipe()
    yield made
    made.reader.close()


def test_lines_come_out_whole_and_in_order(pipe):
    for number in range(1000):
        pipe.lines.add(b"%d" % number)
    pipe.lines.flush(WITHIN_S)
    assert pipe.read(b"999\n") == b"".join(b"%d\n" % number for number in range(1000))
    assert pipe.drops == 0


def test_whoever_adds_a_line_does_not_write_it(pipe, monkeypatch):
    write, writers = os.write, set()

    def noted(descriptor: int, data: bytes) -> int:
        if data == b"one\n":
            writers.add(threading.get_ident())
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noted)
    pipe.lines.add(b"one")
    assert pipe.read(b"one\n") == b"one\n"
    assert len(writers - {threading.get_ident()}) == 1


def test_a_full_pipe_costs_lines_and_no_time_and_the_next_reader_is_told(pipe):
    for _ in range(2000):
        pipe.lines.add(LONG)
    assert pipe.drops > 1500  # what neither the pipe nor the queue holds
    last = threading.Thread(target=lambda: pipe.read(b"last"), daemon=True)
    last.start()
    await_(lambda: pipe.resumes[-1:] == [pipe.drops], WITHIN_S, str)
    pipe.lines.flush(WITHIN_S)
    pipe.lines.add(b"last")
    last.join(WITHIN_S)
    assert not last.is_alive()


def test_a_reader_that_goes_away_costs_lines_only(pipe):
    pipe.reader.close()
    for number in range(10):
        pipe.lines.add(b"%d" % number)
    pipe.lines.flush(WITHIN_S)
    await_(lambda: pipe.drops == 10, WITHIN_S, lambda: f"{pipe.drops} drops")
    assert pipe.resumes == []


def test_a_pipe_that_does_not_block_is_waited_for():
    pipe = Pipe(bytes_max=1 << 20)
    os.set_blocking(pipe.lines._descriptor, False)
    for _ in range(500):
        pipe.lines.add(LONG)
    pipe.lines.add(b"last")
    assert pipe.read(b"last\n").count(b"\n") == 501
    assert pipe.drops == 0


def test_a_number_that_business_code_closes_is_not_ours():
    reader, writer = os.pipe()
    lines = LineQueue(writer)
    os.close(writer)
    lines.add("text \ud800")
    assert os.read(reader, 100) == b"text \\ud800\n"


def test_a_flush_ends_in_its_time_though_nobody_reads(pipe):
    pipe.lines.add(b"x" * (1 << 20))
    pipe.lines.flush(0.01)
    write_within(threading.Event().wait, 0.01)


def test_a_forked_process_writes_its_lines(pipe):
    pipe.lines.flush(WITHIN_S)
    child = os.fork()
    if not child:
        signal.alarm(int(WITHIN_S))
        pipe.lines.add(b"child")
        pipe.lines.flush(WITHIN_S)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pipe.read(b"child\n") == b"child\n"
