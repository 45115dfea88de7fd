"""Tracing, put together. Where it is off nothing of it is imported, and the core runs bare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax import __version__
from hapax.core.errors import ConfigurationError
from hapax.kafka.properties import transactional_id

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.core.ports import Core
    from hapax.settings import Settings


def start_tracing(settings: Settings, stack: ExitStack) -> None:
    """Raise ConfigurationError when spans have no way out; export the rest at the end."""
    if not settings.telemetry.tracing:
        return
    if settings.spark.dataframe is not None:
        problem = (
            "HAPAX_TELEMETRY__TRACING=on is for records; the micro-batches of"
            " HAPAX_SPARK__DATAFRAME have no spans: set it to off"
        )
        raise ConfigurationError([problem])
    from hapax.telemetry.tracing import close_tracing, open_tracing

    provider = open_tracing(settings.app, settings.instance, __version__)
    stack.callback(close_tracing, provider)


def traced(settings: Settings, core: Core) -> Core:
    if not settings.telemetry.tracing:
        return core
    from hapax.telemetry.tracing import TracedCore, open_tracing

    provider = open_tracing(settings.app, settings.instance, __version__)
    return TracedCore(core, provider, group=settings.app, client=transactional_id(settings))


def flush_traces(settings: Settings) -> None:
    """Export the spans of a task: Spark may end its Python process at any time."""
    if not settings.telemetry.tracing:
        return
    from hapax.telemetry.tracing import flush_tracing, open_tracing

    flush_tracing(open_tracing(settings.app, settings.instance, __version__))
