"""Where spans go: the SDK, configured by the standard OTEL_* variables.

Imported where tracing is on.

The SDK and its exporters read most of them by themselves. Read here: which exporter, and the
name of the service where no variable has it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.trace import TracerProvider

FLUSH_MAX_S = 3.0
"""A stop waits so long for a collector that is away; the spans are lost then."""
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_MISSING = (
    "HAPAX_TELEMETRY__TRACING=on needs an OpenTelemetry SDK, and none is installed: run"
    " pip install 'hapax-kafka[tracing]', or set HAPAX_TELEMETRY__TRACING=off"
)


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
        from opentelemetry.sdk.resources import (
            OTELResourceDetector,
            Resource,
        )
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError([_MISSING]) from error
    exporter = _exporter(environ)
    who = {"service.name": app, "service.instance.id": instance, "service.version": version}
    said = OTELResourceDetector().detect().attributes  # OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
    provider = sdk.TracerProvider(resource=Resource.create({**who, **said}), shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def close_tracing(provider: TracerProvider) -> None:
    _bounded(getattr(provider, "shutdown", None))


def flush_tracing(provider: TracerProvider) -> None:
    """Export what is left, within ``FLUSH_MAX_S``."""
    _bounded(getattr(provider, "force_flush", None))


def _bounded(call: Callable[[], object] | None) -> None:
    """Call on a thread: exporters repeat what a collector does not take, for too long."""
    if call is None:
        return

    def run() -> None:
        with suppress(Exception):  # spans are lost then, and the exporter has logged why
            call()

    thread = Thread(target=run, name="tracing", daemon=True)
    thread.start()
    thread.join(FLUSH_MAX_S)


def _exporter(environ: Mapping[str, str]) -> Any:
    name = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name == "none":
        return None
    if name == "otlp":
        protocol = (
            environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            or "http/protobuf"
        )
        name = _PROTOCOLS.get(protocol, protocol)
    for entry in entry_points(group="opentelemetry_traces_exporter", name=name):
        return entry.load()()
    problem = (
        f"OTEL_TRACES_EXPORTER: no exporter {name} is installed; hapax-kafka[tracing] brings otlp"
        " with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, others come with their own package"
    )
    raise ConfigurationError([problem])
