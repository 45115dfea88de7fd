"""Lines: one JSON object each for machines, plain text for people, nothing for what is off."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from hapax.core.records import Coordinates
from hapax.telemetry.logs import (
    ClientLogger,
    LibraryHandler,
    capture_library_logs,
    configure_logs,
)
from tests.unit.test_telemetry_events import Told


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def root():
    root = logging.getLogger()
    before = root.handlers
    yield root
    root.handlers = before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_time_is_utc_and_iso(told):
    told.events.service_ready()
    stamp = told.lines[0]["timestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", stamp)


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


def test_text_of_strangers_is_bounded_and_cannot_move_a_terminal(told):
    evil = "\x1b[2J\r\nforged line" + "x" * 1_000
    told.events.dead_letter_written(Coordinates("t", 0, 1), "ValueError", 1, evil)
    text = told.lines[0]["error"]
    assert len(text) == 300
    assert text.isprintable()


def test_structlog_comes_without_rich():
    code = (
        "import sys, io; from hapax.telemetry.logs import configure_logs;"
        "configure_logs('info', 'console', stream=io.StringIO());"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'rich'];"
        "import rich.console"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_events_come_without_structlog_and_rich():
    code = (
        "import sys, hapax.telemetry.events;"
        "assert not {'structlog', 'rich', 'prometheus_client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_client_logger_takes_what_librdkafka_gives(told):
    logger = ClientLogger(told.events, "consumer")
    logger.log(40, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "refused")
    assert told.lines[0].items() >= {"facility": "FAIL", "text": "refused"}.items()


def test_a_client_logger_takes_other_forms_too(told):
    ClientLogger(told.events, "consumer").log(30, "lost %d", 3)
    assert told.lines[0].items() >= {"facility": "?", "text": "lost 3"}.items()


def test_a_client_logger_never_raises(told):
    ClientLogger(told.events, "consumer").log(30, "%d", "no number")
    assert told.lines[0].items() >= {"event": "telemetry_failed", "error": "TypeError"}.items()
    assert told.value("telemetry_failures_total") == 1


def test_a_client_logger_never_raises_even_when_nothing_can_be_written(told):
    told.stream.close()
    ClientLogger(told.events, "consumer").log(40, "%s [%s] %s", "FAIL", "c", "refused")
    assert told.value("telemetry_failures_total") == 1


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


@pytest.mark.usefixtures("root")
def test_what_business_code_logs_becomes_a_line(told):
    capture_library_logs(told.events)
    logging.getLogger("shop.rules").warning("odd price %s", "12\n")
    expected = {"event": "library_logged", "library": "shop.rules", "text": "odd price 12 "}
    assert told.lines[0].items() >= expected.items()


def test_the_traceback_of_business_code_is_kept(told, root):
    capture_library_logs(told.events)
    assert [type(handler) for handler in root.handlers] == [LibraryHandler]
    try:
        os.environ["HAPAX_RATE"]
    except KeyError:
        logging.getLogger("shop.rules").exception("no rate")
    assert "KeyError: 'HAPAX_RATE'" in told.lines[0]["exception"]


@pytest.mark.usefixtures("root")
def test_a_log_call_that_is_wrong_does_not_break_business_code(told):
    capture_library_logs(told.events)
    logging.getLogger("shop.rules").warning("%d", "no number")
    assert told.lines[0]["event"] == "telemetry_failed"
