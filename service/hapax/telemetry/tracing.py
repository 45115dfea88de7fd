"""Traces: one span for each transaction, linked to the producers of its records.

Imported only where tracing is on. The span wraps the core from outside, so that nothing of the way
of a record asks whether it is traced. It is current while business code runs: spans that a
transform opens become its children. Names and attributes follow OpenTelemetry's conventions for
messaging; what they have no word for begins with ``hapax``.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, get_current_span

from hapax.core import errors
from hapax.telemetry.events.service import printable
from hapax.telemetry.line_queue import write_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.trace import Span, TracerProvider

    from hapax.core.record_path import Batch
    from hapax.core.records import Coordinates, Record
    from hapax.core.results import Failure
    from hapax.processing.batch_result import BatchResult, Begun, Core

LINKS_MAX = 128
"""What an SDK keeps unless configured otherwise (OTEL_SPAN_LINK_COUNT_LIMIT)."""
HEADER_CHARS_MAX = 512
"""The longest ``tracestate`` that the standard asks to be passed on."""
FLUSH_MAX_S = 3.0
"""A stop waits so long for a collector that is away; the spans are lost then."""
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_MISSING = (
    "HAPAX_TELEMETRY__TRACING=on needs an OpenTelemetry SDK, and none is installed: run"
    " pip install 'hapax-kafka[tracing]', or set HAPAX_TELEMETRY__TRACING=off"
)

Attributes = dict[str, str | int | float]

try:
    from opentelemetry.propagate import get_global_textmap
except ValueError as error:  # it reads the variable when it is imported
    raise errors.ConfigurationError(
        f"OTEL_PROPAGATORS: {error} The default: tracecontext"
    ) from error


class TracedCore:
    """Runs batches as the core inside does, each within a span, which begins when its turn comes.

    Progress without records has none: an idle input would fill the store of spans.
    """

    def __init__(self, core: Core, provider: TracerProvider, who: Attributes) -> None:
        self._core = core
        self.ask, self.admit, self.end = core.ask, core.admit, core.end
        self._tracer = provider.get_tracer("hapax")
        self._who = who

    def run(
        self,
        batch: Batch,
        rejected: Mapping[Coordinates, Failure],
        attempt: int,
        begun: Begun | None = None,
    ) -> BatchResult:
        """Give every record its one effect, as ``ExactlyOnce.run``; the answer names the span."""
        topics = sorted({topic for topic, _partition in batch.first})
        name = f"process {topics[0]}" if len(topics) == 1 else "process"
        with self._tracer.start_as_current_span(
            name,
            kind=SpanKind.CONSUMER,
            attributes=self._attributes(batch, topics, attempt),
            links=links(batch.records),
            record_exception=False,  # a stack trace may hold what a record holds
            set_status_on_exception=False,
        ) as span:
            try:
                settled = self._core.run(batch, rejected, attempt, begun)
            except BaseException as error:
                _fail(span, error)
                raise
            span.set_attributes(_outcome(settled))
            context = span.get_span_context()
            ids = (f"{context.trace_id:032x}", f"{context.span_id:016x}")
            return msgspec.structs.replace(settled, trace=ids)

    def _attributes(self, batch: Batch, topics: list[str], attempt: int) -> Attributes:
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            **self._who,
            "messaging.batch.message_count": len(batch.records),
            "hapax.attempt": attempt,
        }
        if len(topics) == 1:
            attributes["messaging.destination.name"] = topics[0]
        if len(batch.first) == 1:
            ((_topic, partition),) = batch.first
            attributes["messaging.destination.partition.id"] = str(partition)
        return attributes


def links(records: Iterable[Record]) -> list[Link]:
    """Return each once, at most ``LINKS_MAX``; what ``OTEL_PROPAGATORS`` cannot read is ignored."""
    found: dict[tuple[int, int], Link] = {}
    propagator = get_global_textmap()
    carried = propagator.fields
    for record in records:
        carrier = {
            name: value.decode("ascii", "replace")
            for name, value in record.headers
            if name in carried and value is not None and len(value) <= HEADER_CHARS_MAX
        }
        if not carrier:
            continue
        context = get_current_span(propagator.extract(carrier, Context())).get_span_context()
        if context.is_valid:
            found.setdefault((context.trace_id, context.span_id), Link(context))
            if len(found) == LINKS_MAX:
                break
    return list(found.values())


def _outcome(settled: BatchResult) -> Attributes:
    return {
        "hapax.outcome": settled.outcome,
        "hapax.records": settled.records,
        "hapax.outputs": sum(settled.outputs.values()),
        "hapax.duplicates": settled.duplicates,
        "hapax.filtered": settled.filtered,
        "hapax.dead_letters": settled.dead_letters,
        **{f"hapax.transaction.phase.{name}": s for name, s in settled.phases_s.items()},
    }


def _fail(span: Span, error: BaseException) -> None:
    match error:
        case errors.BatchAbortedError():
            outcome = "aborted"
        case errors.ProducerDeadError():
            outcome = "fenced" if error.fenced else "fatal"
        case errors.ClaimsUnavailableError():
            outcome = "held"
        case _:
            outcome = "stopped"
    span.set_attributes({"hapax.outcome": outcome, "error.type": type(error).__name__})
    span.set_status(Status(StatusCode.ERROR, printable(str(error))))


# -- where spans go: the SDK, which reads most of the standard OTEL_* variables by itself -----


def open_tracing(app: str, instance: str, version: str) -> TracerProvider:
    """Raise ConfigurationError without an SDK, or for variables that name what is missing."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        provider = build(app, instance, version, os.environ)
        trace.set_tracer_provider(provider)
    return provider


def build(app: str, instance: str, version: str, environ: Mapping[str, str]) -> TracerProvider:
    try:
        from opentelemetry.sdk import trace as sdk
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise errors.ConfigurationError(_MISSING) from error
    exporter = _exporter(environ)
    who = {"service.name": app, "service.instance.id": instance, "service.version": version}
    said = OTELResourceDetector().detect().attributes  # OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
    provider = sdk.TracerProvider(resource=Resource.create({**who, **said}), shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def close_tracing(provider: TracerProvider) -> None:
    write_within(getattr(provider, "shutdown", bool), FLUSH_MAX_S)


def flush_tracing(provider: TracerProvider) -> None:
    """Export what is left; exporters repeat what a collector does not take, for too long."""
    write_within(getattr(provider, "force_flush", bool), FLUSH_MAX_S)


def _exporter(environ: Mapping[str, str]) -> Any:
    name = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name == "none":
        return None
    if name == "otlp":
        names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = next(filter(None, map(environ.get, names)), "http/protobuf")
        name = _PROTOCOLS.get(protocol, protocol)
    for entry in entry_points(group="opentelemetry_traces_exporter", name=name):
        return entry.load()()
    raise errors.ConfigurationError(
        f"OTEL_TRACES_EXPORTER: no exporter {name} is installed; hapax-kafka[tracing] brings otlp"
        " with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, others come with their own package"
    )
