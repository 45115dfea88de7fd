"""What operators see of workers: alerts, probes, logs and spans."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped] # psutil has no types
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hapax.sandbox import machine
from tests.deploy.test_monitoring import everywhere
from tests.kit.commands import run_captured
from tests.kit.managed_process import HANG_S, SERVICE, WorkerProcess, child
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.prometheus import firing, impatient_rules, query
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

# -- A new operator's first outage: the alert, the probe, the doctor, the runbook. All of it real.


ALERT = "HapaxClaimStoreDown"
PAGE = Path(__file__).parents[2] / "docs/alerts.md"
PATIENCE_S = 90.0


@contextmanager
def sandbox_up(*options: str) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """Type ``hapax sandbox up`` and read what it prints; whatever happens, it ends."""
    command = [sys.executable, "-m", "hapax", "sandbox", "up", "--json", *options]
    with child(command, stdout=subprocess.PIPE, text=True) as started:  # its servers die with it
        printed = started.stdout.readline()
        assert printed, "the sandbox did not start"
        yield json.loads(printed), started


class Stopped(NamedTuple):
    """A Redis that was killed: where it listened, and where its data are."""

    port: str
    folder: str


def stop_redis(command: subprocess.Popen[str], port: str) -> Stopped:
    children = psutil.Process(command.pid).children()
    (redis,) = (one for one in children if one.name() == "redis-server")
    folder = redis.cwd()
    redis.kill()
    return Stopped(port, folder)


@contextmanager
def redis_with_its_data(stopped: Stopped) -> Iterator[None]:
    options = ["--bind", "127.0.0.1", "--port", stopped.port, "--dir", stopped.folder]
    policy = ["--appendonly", "yes", "--maxmemory-policy", "noeviction"]
    with child([machine.redis_server(), *options, *policy], stdout=subprocess.DEVNULL):
        yield


class Operator:
    """What somebody does who has the printed variables and the pages."""

    def __init__(self, variables: dict[str, str], folder: Path) -> None:
        self.bootstrap = variables["HAPAX_KAFKA__BOOTSTRAP_SERVERS"]
        self.prometheus = variables["PROMETHEUS_URL"]
        self.port = int(variables["HAPAX_TELEMETRY__PORT"])
        self.redis_port = str(urlsplit(variables["HAPAX_DEDUP__REDIS_URL"]).port)
        self._environment = {
            **os.environ,
            **variables,
            "HAPAX_APP": "orders-clean",
            "HAPAX_INPUT__TOPICS": "orders",
            "HAPAX_OUTPUT__TOPIC": "orders-clean",
            "HAPAX_TELEMETRY__LOG_FORMAT": "json",
        }
        self.worker = WorkerProcess(self._environment, "one", folder / "worker.log")

    def send(self, *ids: str) -> None:
        records = [
            Given(name.encode(), headers=(("message-id", name.encode()),), partition=0)
            for name in ids
        ]
        produce(self.bootstrap, "orders", *records)

    def await_outputs(self, *ids: str) -> None:
        await_(
            lambda: len(read_back(self.bootstrap, "orders-clean")) >= len(ids),
            PATIENCE_S,
            self.worker.text,
        )
        values = [one.value for one in read_back(self.bootstrap, "orders-clean")]
        assert values == [name.encode() for name in ids]

    def await_ready(self) -> None:
        await_(lambda: ready(self.port)[0], PATIENCE_S, self.worker.text)

    def await_alert(self, *, fires: bool) -> None:
        await_(
            lambda: (ALERT in firing(self.prometheus)) is fires,
            PATIENCE_S,
            lambda: f"{ALERT}: {not fires}\n{self.worker.text()}",
        )

    def hapax(self, *words: str) -> Any:
        answer = run_captured(
            [sys.executable, "-m", "hapax", *words, "--json"], env=self._environment
        )
        assert answer.stdout.startswith("{"), answer.stdout + answer.stderr
        return json.loads(answer.stdout)

    def doctor(self) -> dict[str, str]:
        findings = self.hapax("doctor")["findings"]
        return {one["check"]: one["fix"] for one in findings if one["verdict"] == "FAIL"}

    def await_doctor_content(self) -> None:
        await_(lambda: "claim-store" not in self.doctor(), PATIENCE_S, self.worker.text)


def test_redis_stops_and_an_operator_learns_it_finds_out_why_and_ends_it_by_the_runbook(tmp_path):
    rules = impatient_rules(tmp_path)
    topics = ["--topic", "orders:1", "--topic", "orders-clean:1"]
    with sandbox_up("--monitoring", "--rules", str(rules), *topics) as (variables, command):
        operator = Operator(variables, tmp_path)
        try:
            outage(operator, command)
        finally:
            operator.worker.close()


def outage(operator: Operator, command: subprocess.Popen[str]) -> None:
    operator.worker.start()
    operator.await_ready()
    operator.send("one", "two")
    operator.await_outputs("one", "two")
    await_(
        lambda: (
            "HapaxWorkerAbsent" not in firing(operator.prometheus)
            and bool(query(operator.prometheus, "hapax_records_consumed_total > 1"))
        ),
        PATIENCE_S,
        lambda: f"not scraped: {firing(operator.prometheus)}",
    )
    assert ALERT not in firing(operator.prometheus)
    operator.await_doctor_content()

    redis = stop_redis(command, operator.redis_port)
    operator.send("two", "three")
    operator.await_alert(fires=True)

    # What the alert's page says: the probe, the doctor, and the way out of it.
    page = firing(operator.prometheus)[ALERT]["annotations"]["runbook_url"]
    assert page.endswith(f"docs/alerts.md#{ALERT.lower()}")
    section = re.search(rf"(?ms)^## {ALERT}\n(.*?)^## ", PAGE.read_text())
    assert section
    assert "is not ready" in section[1]
    is_ready, reasons = ready(operator.port)
    assert not is_ready
    assert "the claim store does not answer" in reasons
    assert "$ hapax doctor" in section[1]
    assert "claim-store" in operator.doctor()
    assert "Bring Redis back with its data" in section[1]
    with redis_with_its_data(redis):
        operator.await_ready()
        operator.await_alert(fires=False)
        operator.await_outputs("one", "two", "three")  # the second "two" is known: claims are back
        operator.await_doctor_content()
        every_panel_has_an_answer(operator)
        _status, exposition = ask(operator.port, "/metrics")
        checked = run_captured([machine.promtool(), "check", "metrics"], input=exposition)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
        assert operator.worker.terminate() == 0
        servers = psutil.Process(command.pid).children(recursive=True)
        assert {"java", "prometheus"} <= {one.name() for one in servers}
        command.terminate()
        assert command.wait(60) == 0
    assert psutil.wait_procs(servers, timeout=30)[1] == []


def every_panel_has_an_answer(operator: Operator) -> None:
    """Ask Prometheus what the dashboard asks; most of it a pipeline of one worker has."""
    answers = {title: query(operator.prometheus, expression) for title, expression in everywhere()}
    assert answers["Workers"][0]["value"][1] == "1"
    silent = {title for title, series in answers.items() if not series}
    assert not silent & {"Records in", "Records out", "Age of records at commit", "By outcome"}
    assert not silent & {"Lookups", "Answer of the claim store", "Unread records", "Memory"}


# -- Nobody reads the log, or not any more: the work goes on, and a stop is a stop ---------

SMALL = 4096
RECORDS = [b"%d" % number for number in range(200)]
route = a_route(TRANSACTION__RECORDS_MAX="1", TELEMETRY__LOG_LEVEL="debug")


class Piped:
    """A worker whose output goes into a small pipe, which is read for as long as wanted."""

    def __init__(self, route: PipelineUnderTest, *, errors_too: bool) -> None:
        self.port = free_port()
        reader, writer = os.pipe()
        self.reader = os.fdopen(reader, "rb", 0)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL)
        self.process = subprocess.Popen(
            SERVICE,
            env=route.environment(INSTANCE="w-0", TELEMETRY__PORT=str(self.port)),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer if errors_too else subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(writer)

    def read_until(self, word: bytes) -> None:
        found = b""
        while word not in found:
            more = self.reader.read(SMALL)
            assert more, found
            found = found[-len(word) :] + more

    def dropped(self) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            return metric(page.read().decode(), "hapax_log_lines_dropped_total")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.close()


@pytest.fixture(params=[False, True], ids=["stdout", "with stderr"])
def piped(route, request) -> Iterator[Piped]:
    worker = Piped(route, errors_too=request.param)
    worker.read_until(b"service_ready")
    yield worker
    worker.close()


def test_a_reader_that_goes_away_ends_nothing_and_a_stop_leaves_with_0(route, piped):
    piped.reader.close()
    route.write(*RECORDS)
    route.await_lag_0()
    assert piped.dropped() > 0
    assert piped.stop() == 0
    assert len(route.outputs()) == len(RECORDS)


def test_a_full_pipe_holds_nothing_and_a_stop_leaves_with_0(route, piped):
    route.write(*RECORDS)
    route.await_lag_0()
    assert piped.stop() == 0
    assert len(route.outputs()) == len(RECORDS)


def test_without_any_standard_stream_it_works_and_stops(route):
    environment = route.environment(INSTANCE="w-0")
    words = " ".join(("exec", *SERVICE, "<&-", ">&-", "2>&-"))
    route.write(*RECORDS)
    process = subprocess.Popen(["/bin/sh", "-c", words], env=environment, start_new_session=True)
    route.await_lag_0()
    process.terminate()
    assert process.wait(HANG_S) == 0
    assert len(route.outputs()) == len(RECORDS)


# -- Spans of real processes, as a collector gets them; and what the Spark engine shows of itself.


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()


class Collector:
    """Takes spans over HTTP, as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.names: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            for attribute in resource.resource.attributes:
                if attribute.key == "service.name":
                    self.names.add(attribute.value.string_value)
            for scope in resource.scope_spans:
                self.spans += scope.spans


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = Thread(target=collector.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        collector.server.server_close()
        thread.join(30)


@pytest.fixture
def collector(monkeypatch):
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield collector


def traced(value: bytes) -> Given:
    return Given(value, partition=0, headers=(("traceparent", PARENT),))


def test_a_workers_spans_reach_the_collector_before_it_leaves(route_of, collector):
    route = route_of(TELEMETRY__TRACING="on", TELEMETRY__LOG_LEVEL="debug")
    route.write(traced(b"1"), traced(b"2"))
    worker = route.run_to_end()
    assert collector.names == {route.app}
    lines = worker.lines("transaction_committed")
    assert {span.span_id.hex() for span in collector.spans} == {line["span_id"] for line in lines}
    assert {span.trace_id.hex() for span in collector.spans} == {line["trace_id"] for line in lines}
    assert {link.span_id.hex() for span in collector.spans for link in span.links} == {SPAN}
    assert [dict(output.headers)["traceparent"] for output in route.outputs()] == [PARENT] * 2


def test_a_collector_that_is_away_costs_no_record_and_holds_up_no_stop(route_of, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    route = route_of(TELEMETRY__TRACING="on", TELEMETRY__LOG_LEVEL="debug")
    route.write(b"1", b"2")
    assert route.run_to_end().lines("transaction_committed")
    assert sorted(output.value or b"" for output in route.outputs()) == [b"1", b"2"]


@pytest.mark.long
def test_on_spark_tasks_make_the_spans_and_the_driver_shows_its_partitions(route_of, collector):
    port = free_port()
    route = route_of(
        kind=SparkProcess,
        TELEMETRY__TRACING="on",
        TELEMETRY__PORT=str(port),
        TELEMETRY__LAG_INTERVAL="1s",
    )
    driver = route.worker()
    route.write(traced(b"1"), traced(b"2"))
    route.await_outputs(2)
    await_(lambda: bool(collector.spans), 60, driver.text)
    await_(lambda: bool(driver.lines("transaction_committed")), 60, driver.text)
    route.await_lag_0()

    def marks() -> dict[str, Any]:
        (row,) = json.loads(ask(port, "/status.json")[1])["partitions"]
        return dict(row)

    await_(lambda: marks().get("committed") == 2 == marks().get("high_watermark"), 60, driver.text)
    assert marks()["retention_margin_seconds"] is None
    told = {line["span_id"] for line in driver.lines("transaction_committed")}
    assert told == {span.span_id.hex() for span in collector.spans}
