"""Spans around transactions, on the SDK's own exporter in memory."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hapax.core import errors
from hapax.core.record_path import Batch
from hapax.core.records import Output, Record
from hapax.settings import Settings, load_settings
from hapax.telemetry import tracing
from hapax.telemetry.tracing import (
    LINKS_MAX,
    TracedCore,
    build,
    close_tracing,
    flush_tracing,
    links,
)
from hapax.wiring.builders import start_tracing, traced
from tests.kit.commands import output_of, run_captured
from tests.kit.managed_process import required
from tests.kit.pipeline import Pipeline, filled, opened, run
from tests.unit.test_telemetry_events import Told

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def core_of(**given: Any) -> Any:
    return SimpleNamespace(**{"ask": None, "admit": None, "end": None, **given})


class Spans:
    """A provider, and the spans that ended there."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def core(self, core: Any = None, **given: Any) -> TracedCore:
        return TracedCore(
            core or core_of(**given), self.provider, {"messaging.client.id": "shop-shop-0"}
        )

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def one(self) -> ReadableSpan:
        (span,) = self.ended
        return span


@pytest.fixture
def spans():
    return Spans()


def record(*headers: tuple[str, bytes | None], offset: int = 0) -> Record:
    return Record("in", 0, offset, None, b"v", headers)


def carrying(parent: str, offset: int = 0) -> Record:
    return record(("traceparent", parent.encode()), offset=offset)


def settings(**given: str) -> Settings:
    return load_settings(
        required(app="shop", servers="b:9092", INSTANCE="shop-0")
        | {f"HAPAX_{name}": value for name, value in given.items()}
    )


# -- one span for each transaction --------------------------------------------------------


def test_a_transaction_is_one_span_with_the_words_of_the_conventions_that_its_line_names(spans):
    pipeline, told = filled(), Told("info")
    pipeline.core = spans.core(pipeline.core)  # in place of the bare one
    settled = run(pipeline)
    span = spans.one
    assert (span.name, span.kind, span.status.status_code) == (
        "process in",
        SpanKind.CONSUMER,
        StatusCode.UNSET,
    )
    attributes = dict(span.attributes or {})
    phases = {name: attributes.pop(name) for name in [*attributes] if ".phase." in name}
    assert attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.batch.message_count": 6,
        "messaging.client.id": "shop-shop-0",
        "messaging.destination.name": "in",
        "hapax.attempt": 1,
        "hapax.outcome": "committed",
        "hapax.records": 6,
        "hapax.outputs": 5,
        "hapax.duplicates": 1,
        "hapax.filtered": 1,
        "hapax.dead_letters": 1,
    }
    assert phases == {f"hapax.transaction.phase.{one}": s for one, s in settled.phases_s.items()}
    named = (
        trace.format_trace_id(span.context.trace_id),
        trace.format_span_id(span.context.span_id),
    )
    assert settled.trace == named
    told.events.transaction_committed(settled)
    (line,) = [line for line in told.lines if line["event"] == "transaction_committed"]
    assert (line["trace_id"], line["span_id"]) == named
    pipeline.judge()


@pytest.mark.parametrize(
    ("first", "name", "partition"),
    [({("in", 3): 0}, "process in", "3"), ({("a", 0): 0, ("b", 0): 0}, "process", None)],
)
def test_a_batch_of_one_partition_names_it_and_one_of_several_topics_none(
    spans, first, name, partition
):
    core = spans.core(run=lambda *_: run(filled()))
    core.run(Batch([record()], first, dict.fromkeys(first, 1)), {}, 1)
    assert spans.one.name == name
    attributes = spans.one.attributes or {}
    assert attributes.get("messaging.destination.partition.id") == partition
    assert ("messaging.destination.name" in attributes) is (partition is not None)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.BatchAbortedError("NOT_ENOUGH_REPLICAS"), "aborted"),
        (errors.ProducerDeadError("fenced", fenced=True), "fenced"),
        (errors.ProducerDeadError("expired", fenced=False), "fatal"),
        (errors.ClaimsUnavailableError("timeout"), "held"),
        (errors.DeadLetterLimitError("too many"), "stopped"),
    ],
)
def test_a_transaction_that_did_not_commit_says_so_and_raises_as_before(spans, error, outcome):
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        spans.core(run=fail).run(Batch([record()], {("in", 0): 0}, {}), {}, 2)
    assert caught.value is error
    span = spans.one
    assert (span.attributes or {})["hapax.outcome"] == outcome
    assert (span.attributes or {})["error.type"] == type(error).__name__
    assert (span.attributes or {})["hapax.attempt"] == 2
    assert span.status.status_code == StatusCode.ERROR
    assert span.events == ()  # a stack trace may hold what a record holds


def test_spans_of_business_code_are_children_of_the_transaction(spans):
    def call(record: Record) -> Output:
        with spans.provider.get_tracer("shop").start_as_current_span("look up"):
            return Output(record.value)

    pipeline = opened(Pipeline(transform=call))
    pipeline.write(b"a")
    pipeline.core = spans.core(pipeline.core)  # in place of the bare one
    run(pipeline)
    inner, outer = spans.ended
    assert inner.parent is not None
    assert (inner.name, inner.parent.span_id) == ("look up", outer.context.span_id)


def test_progress_alone_is_no_span(spans):
    ended: list[object] = []
    spans.core(end=lambda progress, *_marks: ended.append(progress)).end({("in", 0): 7})
    assert ended == [{("in", 0): 7}]
    assert spans.ended == ()


def test_a_span_is_linked_to_the_contexts_of_its_inputs_each_once_with_its_state():
    other = f"00-{TRACE}-00f067aa0ba902b7-00"
    first = ("traceparent", other.encode())  # the last is of who sent the record
    stated = record(first, ("traceparent", PARENT.encode()), ("tracestate", b"vendor=1"))
    found = links([stated, carrying(other), carrying(PARENT), record(("x", b"1"))])
    assert [trace.format_span_id(link.context.span_id) for link in found] == [
        SPAN,
        "00f067aa0ba902b7",
    ]
    assert {trace.format_trace_id(link.context.trace_id) for link in found} == {TRACE}
    assert all(link.context.is_remote for link in found)
    assert found[0].context.trace_state.get("vendor") == "1"
    many = [carrying(f"00-{TRACE}-{n:016x}-01", offset=n) for n in range(1, LINKS_MAX + 50)]
    assert len(links(many)) == LINKS_MAX


def test_contexts_are_read_as_the_global_propagator_reads_them(monkeypatch):
    def extract(carrier: dict[str, str], context: Context) -> Context:  # as B3's, not installed
        found = {"traceparent": f"00-{carrier['b3']}-01"}
        return TraceContextTextMapPropagator().extract(found, context)

    of_b3 = SimpleNamespace(fields={"b3"}, extract=extract)
    monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", of_b3)
    (link,) = links([record(("b3", f"{TRACE}-{SPAN}".encode())), carrying(PARENT, 1)])
    assert trace.format_span_id(link.context.span_id) == SPAN


@pytest.mark.parametrize(
    ("wanted", "says"), [("none", "[]"), ("tracecontext,b33", "Propagator b33 not found")]
)
def test_the_standard_variable_chooses_propagators_and_one_not_installed_is_named(wanted, says):
    asks = f"""import os
os.environ["OTEL_PROPAGATORS"] = "{wanted}"
from hapax.core.errors import ConfigurationError
from hapax.core.records import Record
try:
    from hapax.telemetry.tracing import links
    print(links([Record("in", 0, 0, None, b"v", (("traceparent", b"{PARENT}"),))]))
except ConfigurationError as error:
    print(error)"""
    assert says in output_of([sys.executable, "-c", asks])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"nonsense",
        b"\xff\xfe\x00",
        b"00-" + b"0" * 32 + b"-" + SPAN.encode() + b"-01",
        b"00-" + TRACE.encode() + b"-" + b"0" * 16 + b"-01",
        b"ff-" + TRACE.encode() + b"-" + SPAN.encode() + b"-01",
        PARENT.encode() + b"x" * 5_000,
        None,
    ],
)
def test_what_is_no_context_is_ignored(value):
    assert links([record(("traceparent", value))]) == []


def test_the_context_of_an_input_is_carried_to_its_outputs(spans):
    pipeline = opened(Pipeline())
    pipeline.broker.write("in", b"a", headers=(("traceparent", PARENT.encode()),))
    pipeline.core = spans.core(pipeline.core)  # in place of the bare one
    run(pipeline)
    (output,) = pipeline.broker.records("out")
    assert dict(output.headers)["traceparent"] == PARENT.encode()
    assert len(spans.one.links) == 1


# -- off, and where spans go --------------------------------------------------------------


def test_where_tracing_is_off_nothing_of_it_is_imported_and_the_core_is_bare():
    core: Any = object()
    assert traced(settings(), core) is core
    code = (
        # Without the claim store: the Redis client imports OpenTelemetry wherever it finds it.
        "import sys, hapax.__main__, hapax.wiring, hapax.wiring.task;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    run_ = run_captured([sys.executable, "-c", code], timeout=120)
    assert (run_.stdout.strip(), run_.returncode) == ("[]", 0), run_.stderr


@pytest.fixture
def unset(monkeypatch):
    """No provider is set in this process; what would be set is in the list."""
    made: list[Any] = []
    monkeypatch.setattr(
        trace, "get_tracer_provider", lambda: made[-1] if made else trace.ProxyTracerProvider()
    )
    monkeypatch.setattr(trace, "set_tracer_provider", made.append)
    yield made
    for provider in made:
        close_tracing(provider)


def test_where_tracing_is_on_the_core_runs_within_spans_of_one_provider(unset, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    core = core_of()
    on = settings(TELEMETRY__TRACING="on")
    of_a_worker, of_a_lane = traced(on, core), traced(on, core, "shop/shop-0/3")
    assert isinstance(of_a_worker, TracedCore)
    assert isinstance(of_a_lane, TracedCore)
    assert of_a_worker._who == {
        "messaging.client.id": "shop-shop-0",
        "messaging.consumer.group.name": "shop",
        "server.address": "b",
        "server.port": 9092,
    }
    assert of_a_lane._who["messaging.client.id"] == "shop/shop-0/3"
    assert len(unset) == 1


def test_without_an_sdk_or_for_data_frames_the_start_says_why_there_are_no_spans(
    unset, monkeypatch
):
    frames = {"ENGINE": "spark", "SPARK__DATAFRAME": "a:daily", "SPARK__CHECKPOINT": "/checkpoint"}
    with ExitStack() as stack:
        with pytest.raises(errors.ConfigurationError, match="have no spans"):
            start_tracing(settings(TELEMETRY__TRACING="on", **frames), stack)
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
        with pytest.raises(
            errors.ConfigurationError, match=r"pip install 'hapax-kafka\[tracing\]'"
        ):
            start_tracing(settings(TELEMETRY__TRACING="on"), stack)
        start_tracing(settings(), stack)


def attributes_of(environ: dict[str, str]) -> dict[str, Any]:
    provider: Any = build("shop", "shop-0", "1.2.3", environ | {"OTEL_TRACES_EXPORTER": "none"})
    return dict(provider.resource.attributes)


def test_the_service_is_named_after_the_app_unless_the_variables_say_otherwise(monkeypatch):
    own = {"name": "shop", "instance.id": "shop-0", "version": "1.2.3"}
    assert attributes_of({}).items() >= {f"service.{key}": own[key] for key in own}.items()
    monkeypatch.setenv("OTEL_SERVICE_NAME", "other")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    given = {"service.name": "other", "deployment.environment": "test"}
    assert attributes_of({}).items() >= given.items()


@pytest.mark.parametrize(
    ("environ", "absent"),
    [
        ({}, ""),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ""),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ""),
        ({"OTEL_TRACES_EXPORTER": "console"}, ""),
        ({"OTEL_TRACES_EXPORTER": "nowhere"}, "nowhere"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"}, "carrier/pigeon"),
    ],
)
def test_the_standard_variables_choose_the_exporter_and_one_not_installed_is_named(environ, absent):
    if not absent:
        close_tracing(build("shop", "shop-0", "1", environ))
        return
    with pytest.raises(errors.ConfigurationError, match=f"no exporter {absent}"):
        build("shop", "shop-0", "1", environ)


def test_a_collector_that_is_away_holds_up_a_stop_for_a_bounded_time(monkeypatch):
    monkeypatch.setattr(tracing, "FLUSH_MAX_S", 0.05)
    released, reached = Event(), Event()

    def shutdown() -> None:
        reached.set()
        released.wait(60)

    provider: Any = SimpleNamespace(shutdown=shutdown)
    close_tracing(provider)
    assert reached.wait(30)
    assert not released.is_set()
    released.set()


def test_a_provider_that_fails_or_cannot_be_stopped_does_no_harm():
    def fail() -> None:
        raise ValueError("collector")

    failing: Any = SimpleNamespace(shutdown=fail, force_flush=fail)
    close_tracing(failing)
    flush_tracing(failing)
    close_tracing(cast("Any", SimpleNamespace()))
