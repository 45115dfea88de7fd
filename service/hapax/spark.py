"""Exactly-once Kafka for any PySpark job: the public door (docs/dataframes.md).

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

import atexit
import logging
import os
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter

from hapax.cluster.micro_batches import Marker
from hapax.core import errors
from hapax.engines.spark.dataframe.parts import (
    DeskAddress,
    JobDesk,
    LanePlan,
    LaneReport,
    Publishing,
)
from hapax.engines.spark.dataframe.rows import check_columns
from hapax.engines.spark.dataframe.sink import SinkOptions, SinkWriter
from hapax.engines.spark.dataframe.staging import StagedRowsError
from hapax.engines.spark.session import connector_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from hapax.kafka.produce.micro_batch import KafkaPublisher
    from hapax.settings import Settings

    Publish = Callable[[Iterable[LanePlan]], Iterator[LaneReport]]
    Run = Callable[[Sequence[LanePlan]], list[LaneReport]]
    Around = dict[str, Any]

__all__ = ["HapaxSink", "connector_jars", "refresh_marker", "register", "set_marker"]

_log = logging.getLogger("hapax.sink")
_desks = ExitStack()
close_desks = atexit.register(_desks.close)  # for a process that leaves by os._exit
_NONE = "_"
_OF_RECORDS = "DEDUP__ TRANSFORM DEAD_LETTER__ INPUT__FORMAT INPUT__END OUTPUT__FORMAT REGISTRY__"
_OF_SERVICE = "ENGINE SPARK__MASTER SPARK__DATAFRAME SPARK__CHECKPOINT"
_OTHERS = tuple(f"HAPAX_{name}" for name in f"{_OF_RECORDS} {_OF_SERVICE}".split())
COMPLETE = (
    "outputMode complete replaces what was written before, which a topic cannot: use append, and a"
    " watermark where the pipeline aggregates"
)
NO_DESK = (
    "publish=parallel needs a session that runs in the process of its driver, and in it"
    " hapax.spark.register(spark) in place of spark.dataSource.register(HapaxSink): Spark Connect"
    " has no such process; choose together"
)
BATCH = (
    "a batch write has no checkpoint, so a repetition would write its rows once more: use"
    ' frame.writeStream.format("hapax").trigger(availableNow=True), on a frame of readStream; files'
    " are published once by hapax publish"
)


def register(session: SparkSession, sink: type[HapaxSink] | None = None) -> None:
    """Make ``writeStream.format("hapax")`` known to this session.

    ``sink``: a subclass of one's own instead of ``HapaxSink``.
    """

    class Registered(sink or HapaxSink):  # type: ignore[misc] # the base is a parameter
        """Travels by value: the process that commits learns the desk from it."""

        desk = _desk(session)

    session.dataSource.register(Registered)


def _desk(session: SparkSession) -> DeskAddress | None:
    """Return who runs jobs for the sink; None for a session of Spark Connect, which has none."""
    try:
        desk = JobDesk(session.sparkContext)
    except (PySparkException, OSError):
        return None
    _desks.callback(desk.close)
    return desk.address


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

    While no query runs, once the output was checked. Options as for ``refresh_marker``.
    """
    with open_publisher(_marker_settings(options)) as publisher:
        publisher.overwrite(Marker(number, query))


class HapaxSink(DataSource):
    """The data source that writes to Kafka."""

    desk: ClassVar[DeskAddress | None] = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "hapax"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark calls it so
        """Return the writer. Spark calls it again for each micro-batch, in any process."""
        if overwrite:
            raise errors.ConfigurationError(COMPLETE)
        check_columns(schema)
        return SinkWriter(type(self), self.check(SinkOptions.parse(self.options)))

    def writer(self, *_how: Any, **_named: Any) -> DataSourceWriter:
        """Refuse a batch write."""
        raise errors.ConfigurationError(BATCH)

    @classmethod
    def check(cls, options: SinkOptions) -> SinkOptions:
        """Return what the options mean; raise ConfigurationError for what cannot work."""
        settings = settings_of(options)
        parallel = settings.spark.publish == "parallel"
        if parallel and cls.desk is None:
            raise errors.ConfigurationError(NO_DESK)
        inputs = frozenset(settings.input.topics) - {_NONE}
        return msgspec.structs.replace(
            options, durable=parallel, inputs=inputs, topic=settings.output.topic
        )

    @classmethod
    @contextmanager
    def publishing(cls, options: SinkOptions) -> Iterator[Publishing]:
        """Give a publisher for these options."""
        from hapax.kafka.admin.topics import refused_rows
        from hapax.kafka.read.input_logs import LogLookup

        settings = settings_of(options)
        publish = partial(publish_lanes, settings)
        run: Run = lambda plans: [*publish(plans)]  # noqa: E731 - one after the other
        lanes = 0
        if options.durable and cls.desk is not None:
            lanes = settings.spark.lanes or cls.desk.lanes()
            run = partial(cls.desk.run, f"hapax-sink-{settings.app}", publish)
        with open_publisher(settings) as publisher:
            rows = (settings.app, settings.output.topic, options.inputs)
            asked = (LogLookup(settings), partial(refused_rows, settings))
            yield Publishing(publisher, *rows, run, lanes, *asked)


def publish_lanes(settings: Settings, plans: Iterable[LanePlan]) -> Iterator[LaneReport]:
    """Publish what each lane has; this is the function that executors import.

    Nothing is raised that a repetition of the task would only meet again.
    """
    for plan in plans:
        yield _publish_lane(settings, plan)


def _publish_lane(settings: Settings, plan: LanePlan) -> LaneReport:
    from hapax.kafka.produce.micro_batch import (
        LanePublished,
        MarkedTransaction,
        publish_lane,
        sink_lane_names,
    )

    published, problem, lost = LanePublished(), "", False
    try:
        with _watched(settings) as around:
            names = sink_lane_names(settings.app, plan.lane)
            with closing(MarkedTransaction(settings, names, **around)) as marked:
                given = (plan.lane, plan.manifest, plan.parcels())
                publish_lane(marked, *given, published, attempts_max=settings.retry.attempts)
    except StagedRowsError as error:
        problem, lost = error.what, True
    except errors.PositionLostError as error:
        problem, lost = str(error), True
    except (errors.StopError, errors.BatchAbortedError, errors.ProducerDeadError) as error:
        problem = str(error)
    done = (published.done, len(plan.shares), published.records, published.attempts)
    return LaneReport(plan.lane, *done, problem, lost)


def _marker_settings(options: dict[str, str]) -> Settings:
    named = {"kafka.bootstrap.servers" if n == "servers" else n: v for n, v in options.items()}
    return settings_of(SinkOptions.parse({"checkpointLocation": "unused", **named}))


def settings_of(options: SinkOptions) -> Settings:
    """Return settings from the options and from the environment; options win."""
    from hapax.kafka.properties import check_client_properties
    from hapax.settings import load_settings

    # The settings are those of a whole pipeline, of which a job of others has only the end; what
    # the environment says of the rest is about another one.
    ours = {name: text for name, text in os.environ.items() if not name.startswith(_OTHERS)}
    rest = {
        "HAPAX_ENGINE": "spark",
        "HAPAX_INPUT__TOPICS": _NONE,
        "HAPAX_SPARK__DATAFRAME": f"{_NONE}:{_NONE}",
        "HAPAX_SPARK__CHECKPOINT": options.checkpoint,
    }
    try:
        settings = load_settings(rest | ours | options.variables)
        if options.properties:
            more = {"properties": settings.kafka.properties | options.properties}
            kafka = settings.kafka.model_copy(update=more)
            settings = settings.model_copy(update={"kafka": kafka})
            check_client_properties(settings)
    except errors.ConfigurationError as error:
        raise errors.ConfigurationError([*map(options.names, error.problems)]) from None
    return settings


@contextmanager
def open_publisher(settings: Settings) -> Iterator[KafkaPublisher]:
    """Give a publisher to this process, watched over: a call that hangs ends the process."""
    from hapax.kafka.produce.micro_batch import KafkaPublisher

    with _watched(settings) as around:
        publisher = KafkaPublisher(settings, **around)
        try:
            yield publisher
        finally:
            publisher.close()


@contextmanager
def _watched(settings: Settings) -> Iterator[Around]:
    """Give what the clients of this process are built with; a call that hangs ends it."""
    from hapax.engines.watchdog import Watchdog

    watchdog = Watchdog(
        settings.watchdog.timeout_ms / 1000,
        on_overrun=lambda *hung: _log.critical("hapax sink: %s hangs for %.0f s", *hung),
    )
    watchdog.start()
    try:
        lines = SimpleNamespace(log=_consumer_logged)
        yield {"clock": time, "forward": _forward, "logger": lines, "watch": watchdog.watch}
    finally:
        watchdog.stop()


def _consumer_logged(level: int, _form: str, *parts: object) -> None:
    _forward("consumer", level, str(parts[0]) if parts else "", str(parts[-1:]))


def _forward(client: str, level: int, facility: str, text: str) -> None:
    # What matters goes to Python's logging, and so to standard error.
    if level >= logging.WARNING:
        _log.warning("hapax sink: %s: %s: %s", client, facility, text[:300])
