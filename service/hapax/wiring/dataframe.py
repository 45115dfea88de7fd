"""The DataFrame form: a pipeline as one streaming query, from the start to the last micro-batch.

1. what can be refused without Spark: the function, brokers, topics, a foreign checkpoint
2. Spark, the input, the pipeline's own DataFrame
3. the query; from here on Spark drives, and this loop tells what it did
4. drain: the micro-batch under way is finished, or dropped and taken again at the next start
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import PositionLostError
from hapax.engines.preflight import await_brokers
from hapax.engines.spark.connector import connector_jars
from hapax.engines.spark.dataframe import query as spark_pipeline
from hapax.engines.spark.dataframe.query import Progress
from hapax.engines.spark.dataframe.source_options import java_option
from hapax.engines.spark.dataframe.staging import Place, query_id
from hapax.engines.spark.jvm_start import StartAbandonedError
from hapax.engines.spark.session import SparkOptions, open_session
from hapax.spark import open_publisher, register
from hapax.wiring import builders as parts
from hapax.wiring.watches import start_lag_monitor

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.engines.spark.dataframe.query import Query
    from hapax.wiring.builders import Shared

TURN_S = 0.2
DRAIN_TURN_S = 0.05
REFRESH_S = 12 * 3600.0
"""The marker is a committed offset: brokers forget those that stand still, after
``offsets.retention.minutes`` (7 days unless set; a day in old clusters)."""


def run_pipeline(shared: Shared, stack: ExitStack) -> None:
    """Run the pipeline until it is asked to stop, or until its bounded input is used up."""
    settings, spark = shared.settings, shared.settings.spark
    shared.lifecycle.unpausable = (
        "Spark drives the micro-batches of HAPAX_SPARK__DATAFRAME: stop the process instead"
    )
    pipeline = spark_pipeline.load_pipeline(spark.dataframe or "")
    if not _check_outside(shared):
        return
    shared.events.preflight_passed()
    options = SparkOptions(
        settings.app, spark.master, _properties(shared), connector_jars(spark.jars)
    )
    try:
        session = open_session(options, lambda: shared.lifecycle.stopping)
    except StartAbandonedError:
        return
    stack.callback(spark_pipeline.close, session)
    spark_pipeline.prepare(session, settings)
    register(session)
    records = spark_pipeline.read_input(session, settings)
    result = spark_pipeline.apply(pipeline, records, spark.dataframe or "")
    if shared.lifecycle.stopping:
        return
    query = spark_pipeline.start(result, settings)
    shared.events.query_started(str(query.id), str(query.runId), spark.checkpoint or "")
    start_lag_monitor(shared, stack)  # a query's positions are in its checkpoint: outputs only
    shared.events.service_ready()
    try:
        _Run(shared, query).run()
    except spark_pipeline.DEATHS as error:
        raise spark_pipeline.died(error) from error


def _properties(shared: Shared) -> dict[str, str]:
    """Return the user's properties, with what executors need to fetch tokens."""
    settings, name = shared.settings, "spark.executor.extraJavaOptions"
    option, properties = java_option(settings), settings.spark.properties
    if option is None:
        return properties
    return properties | {name: f"{properties.get(name, '')} {option}".strip()}


class _Run:
    """One query, watched."""

    def __init__(self, shared: Shared, query: Query) -> None:
        self._shared = shared
        self._query = query
        self._progress = Progress(query, shared.settings)
        self._marked_s = shared.clock.monotonic()

    def run(self) -> None:
        """Tell what the query does until it ends, or until it is to end."""
        lifecycle, events = self._shared.lifecycle, self._shared.events
        while not lifecycle.stopping:
            events.loop_moved()
            ended = spark_pipeline.ended(self._query, TURN_S)
            self._tell()
            if ended:
                events.service_draining("the input is used up")
                return
            self._keep_marker()
        events.service_draining(lifecycle.reason)
        self._drain()

    def _drain(self) -> None:
        """Let the micro-batch under way finish while there is time, then stop the query.

        Spark may begin the next one meanwhile: it is dropped, and taken again at the next start.
        """
        lifecycle, events, last = self._shared.lifecycle, self._shared.events, self._progress.last
        while not lifecycle.overdue and self._progress.last == last:
            if not self._query.status["isTriggerActive"]:
                break
            if spark_pipeline.ended(self._query, DRAIN_TURN_S):
                break
            self._tell()
        if lifecycle.overdue:
            events.batch_abandoned("the shutdown timeout has passed: the micro-batch is repeated")
        if spark_pipeline.stop(self._query):
            self._tell()

    def _tell(self) -> None:
        for numbers in self._progress.news():
            self._marked_s = self._shared.clock.monotonic()
            self._shared.events.micro_batch_completed(numbers)
            self._shared.events.lag_observed(numbers.lags)

    def _keep_marker(self) -> None:
        """Commit the marker again when no micro-batch has done so for long."""
        clock = self._shared.clock
        if clock.monotonic() - self._marked_s < REFRESH_S:
            return
        if self._query.status["isTriggerActive"]:
            return  # a micro-batch brings the marker with it
        self._marked_s = clock.monotonic()
        with open_publisher(self._shared.settings) as publisher:
            marker = publisher.refresh()
        self._shared.events.marker_refreshed(0 if marker is None else marker.next)


def _check_outside(shared: Shared) -> bool:
    """Raise PreflightError or PositionLostError before anything is started.

    Returns false when the service is to stop meanwhile.

    The marker is refreshed here, too, so that it expires only while nothing runs.
    """
    settings = shared.settings
    query = query_id(Place(settings.spark.checkpoint or ""))
    with open_publisher(settings) as publisher:
        if not await_brokers(parts.brokers(shared, publisher.list_topics)):
            return False
        marker = publisher.refresh()
    if query is None and settings.input.start == "refuse":
        raise PositionLostError(
            f"HAPAX_SPARK__CHECKPOINT={settings.spark.checkpoint} holds no query and"
            " HAPAX_INPUT__START=refuse: restore the checkpoint, or choose earliest or latest"
        )
    if marker is not None and marker.query != query:
        found = "holds no query" if query is None else f"belongs to query {query}"
        raise PositionLostError(
            f"HAPAX_SPARK__CHECKPOINT={settings.spark.checkpoint} {found}, but micro-batches up to"
            f" {marker.next - 1} of HAPAX_APP={settings.app} were published by query"
            f" {marker.query}: the checkpoint was lost or is another one. docs/dataframes.md,"
            " section Stops, describes how to continue"
        )
    return True
