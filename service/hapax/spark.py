"""Exactly-once Kafka for anybody's PySpark job: the public door (docs/dataframes.md).

from hapax.spark import register

register(spark)
query = (
    frame.writeStream.format("hapax")
    .option("checkpointLocation", "/durable/orders")
    .option("app", "orders").option("topic", "orders-clean")
    .option("kafka.bootstrap.servers", "kafka-0:9092")
    .start()
)
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hapax.core.errors import ConfigurationError
from hapax.core.micro_batches import Marker
from hapax.engines.spark.connector import connector_jars
from hapax.engines.spark.dataframe.sink import ExactlyOnceSink, Publishing, SinkOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from hapax.kafka.produce.micro_batch import KafkaPublisher
    from hapax.settings import Settings

__all__ = ["HapaxSink", "connector_jars", "refresh_marker", "register", "set_marker"]

OPTIONS = {
    "app": "HAPAX_APP",
    "topic": "HAPAX_OUTPUT__TOPIC",
    "partitioner": "HAPAX_OUTPUT__PARTITIONER",
    "kafka.bootstrap.servers": "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
    "transactiontimeout": "HAPAX_TRANSACTION__TIMEOUT",
}
"""Options of a query, and the variable of the environment that says the same.

Everything else, secrets above all, comes from the driver's environment: options show up in plans.
"""
_OURS = {"checkpointlocation", "spool", "inlinebytesmax", "report", "path", "queryname"}
_NONE = "_"


def register(session: SparkSession) -> None:
    """Make ``writeStream.format("hapax")`` known to this session."""
    session.dataSource.register(HapaxSink)


def refresh_marker(**options: str) -> int | None:
    """Commit the marker of an idle query again, so that it does not expire; return its number.

    Options as those of the query: ``app``, ``topic`` and, with another name, ``servers`` for
    ``kafka.bootstrap.servers``; what is not given is read from the environment.
    """
    with open_publisher(_marker_settings(options)) as publisher:
        marker = publisher.refresh()
    return None if marker is None else marker.next


def set_marker(query: str, number: int, **options: str) -> None:
    """Say that micro-batch ``number`` of this query is the next to publish.

    For a person who has looked at the output, while no query runs. Options as for
    ``refresh_marker``.
    """
    with open_publisher(_marker_settings(options)) as publisher:
        publisher.overwrite(Marker(number, query))


class HapaxSink(ExactlyOnceSink):
    """The data source with Kafka behind it."""

    @classmethod
    def check(cls, options: SinkOptions) -> None:
        """Raise ConfigurationError for options that cannot work, before any row is taken."""
        settings_of(options)

    @classmethod
    @contextmanager
    def publishing(cls, options: SinkOptions) -> Iterator[Publishing]:
        """Give a publisher for these options."""
        settings = settings_of(options)
        inputs = frozenset(settings.input.topics) - {_NONE}
        with open_publisher(settings) as publisher:
            yield Publishing(publisher, settings.app, settings.output.topic, inputs)


def _marker_settings(options: dict[str, str]) -> Settings:
    named = {
        ("kafka.bootstrap.servers" if name == "servers" else name): options[name]
        for name in options
    }
    return settings_of(SinkOptions.parse({"checkpointLocation": "unused", **named}))


def settings_of(options: SinkOptions) -> Settings:
    """Return settings from the options and from the environment; options win."""
    from hapax.settings import load_settings

    unknown = sorted(options.named.keys() - OPTIONS.keys() - _OURS)
    if unknown:
        raise ConfigurationError(
            [f"option {name} is unknown: there are {', '.join(OPTIONS)}" for name in unknown]
        )
    named = {OPTIONS[name]: value for name, value in options.named.items() if name in OPTIONS}
    # The settings are those of a whole pipeline, of which a job of others has only the end.
    rest = {
        "HAPAX_ENGINE": "spark",
        "HAPAX_INPUT__TOPICS": _NONE,
        "HAPAX_SPARK__DATAFRAME": f"{_NONE}:{_NONE}",
        "HAPAX_SPARK__CHECKPOINT": options.checkpoint,
    }
    return load_settings(rest | dict(os.environ) | named)


@contextmanager
def open_publisher(settings: Settings) -> Iterator[KafkaPublisher]:
    """Give a publisher to this process, watched over: a call that hangs ends the process."""
    from hapax.engines.watchdog import Watchdog
    from hapax.kafka.produce.micro_batch import KafkaPublisher

    log = logging.getLogger("hapax.sink")
    watchdog = Watchdog(
        settings.watchdog.timeout_ms / 1000,
        on_overrun=lambda call, seconds: log.critical(
            "hapax sink: %s hangs for %.0f s", call, seconds
        ),
    )
    publisher = KafkaPublisher(
        settings, clock=time, forward=_forward, logger=_ClientLines(), watch=watchdog.watch
    )
    watchdog.start()
    try:
        yield publisher
    finally:
        publisher.close()
        watchdog.stop()


class _ClientLines:
    """Lines of the consumer: what matters goes to Python's logging, and so to standard error."""

    def log(self, level: int, _form: str, *parts: object) -> None:
        _forward("consumer", level, str(parts[0]) if parts else "", str(parts[-1:]))


def _forward(client: str, level: int, facility: str, text: str) -> None:
    if level >= logging.WARNING:
        logging.getLogger("hapax.sink").warning(
            "hapax sink: %s: %s: %s", client, facility, text[:300]
        )
