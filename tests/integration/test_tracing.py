"""Spans of real processes, as a collector gets them; and what the Spark engine shows of itself."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

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


def test_a_workers_spans_reach_the_collector_before_it_leaves(sandbox, tmp_path, collector):
    route = PipelineUnderTest(
        sandbox, tmp_path, TELEMETRY__TRACING="on", TELEMETRY__LOG_LEVEL="debug"
    )
    route.create()
    try:
        route.write(traced(b"1"), traced(b"2"))
        worker = route.run_to_end()
    finally:
        route.close()
    assert collector.names == {route.app}
    lines = worker.lines("transaction_committed")
    assert {span.span_id.hex() for span in collector.spans} == {line["span_id"] for line in lines}
    assert {span.trace_id.hex() for span in collector.spans} == {line["trace_id"] for line in lines}
    links = {link.span_id.hex() for span in collector.spans for link in span.links}
    assert links == {SPAN}
    assert [dict(output.headers)["traceparent"] for output in route.outputs()] == [PARENT] * 2


def test_a_collector_that_is_away_costs_no_record_and_holds_up_no_stop(
    sandbox, tmp_path, monkeypatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    route = PipelineUnderTest(
        sandbox, tmp_path, TELEMETRY__TRACING="on", TELEMETRY__LOG_LEVEL="debug"
    )
    route.create()
    try:
        route.write(b"1", b"2")
        worker = route.run_to_end()
    finally:
        route.close()
    assert worker.lines("transaction_committed")
    assert sorted(output.value or b"" for output in route.outputs()) == [b"1", b"2"]


@pytest.mark.long
def test_on_spark_tasks_make_the_spans_and_the_driver_shows_its_partitions(
    sandbox, tmp_path, collector
):
    port = free_port()
    route = PipelineUnderTest(
        sandbox,
        tmp_path,
        kind=SparkProcess,
        TELEMETRY__TRACING="on",
        TELEMETRY__PORT=str(port),
        TELEMETRY__LAG_INTERVAL="1s",
    )
    route.create()
    try:
        driver = route.worker()
        route.write(traced(b"1"), traced(b"2"))
        route.await_outputs(2)
        await_(lambda: bool(collector.spans), 60, driver.text)
        await_(lambda: bool(driver.lines("transaction_committed")), 60, driver.text)
        route.await_lag_0()

        def marks() -> dict[str, Any]:
            (row,) = json.loads(ask(port, "/status.json")[1])["partitions"]
            return dict(row)

        await_(
            lambda: marks().get("committed") == 2 == marks().get("high_watermark"), 60, driver.text
        )
        assert marks()["retention_margin_seconds"] == "never"
    finally:
        route.close()
    told = {line["span_id"] for line in driver.lines("transaction_committed")}
    assert told == {span.span_id.hex() for span in collector.spans}
