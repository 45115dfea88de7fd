"""The DataFrame form, put together: a pipeline as one streaming query.

1. what can be refused without Spark: the function, brokers, topics, a foreign checkpoint
2. Spark, the input, the pipeline's own DataFrame
3. the query; from here on Spark drives (engines/spark/dataframe/query.py)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.engines.preflight import await_brokers
from hapax.engines.spark.dataframe import query as spark_pipeline
from hapax.engines.spark.dataframe.checkpoint import Checkpoint, session_properties
from hapax.engines.spark.dataframe.query import QueryRun, compare
from hapax.engines.spark.executors import Executors
from hapax.engines.spark.session import SparkOptions, connector_jars, open_session
from hapax.kafka.read.input_logs import LogLookup
from hapax.kafka.read.offsets_client import input_logs
from hapax.spark import open_publisher, register
from hapax.wiring import builders as parts

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.core.micro_batches import Marker
    from hapax.settings import Settings
    from hapax.wiring.builders import Shared


def run_pipeline(shared: Shared, stack: ExitStack) -> None:
    settings, spark = shared.settings, shared.settings.spark
    shared.lifecycle.unpausable = (
        "Spark drives the micro-batches of HAPAX_SPARK__DATAFRAME: stop the process instead"
    )
    pipeline = spark_pipeline.load_pipeline(spark.dataframe or "")
    if not _check_outside(shared):
        return
    shared.events.preflight_passed()
    options = SparkOptions.of(settings, session_properties(settings), connector_jars(spark.jars))
    executors = Executors(shared, options, spark.dataframe)
    session = executors.start(open_session)
    if session is None:
        return
    stack.callback(spark_pipeline.close, session)
    if not executors.prepare(session.sparkContext):
        return
    spark_pipeline.prepare(session, settings)
    register(session)
    records = spark_pipeline.read_input(session, settings)
    result = spark_pipeline.apply(pipeline, records, spark.dataframe or "")
    if shared.lifecycle.stopping:
        return
    start, logs = partial(spark_pipeline.start, result, settings), partial(input_logs, settings)
    run = QueryRun(shared, start, settings, partial(_refresh, settings), logs)
    parts.start_lag_monitor(shared, stack, run.group_progress)
    shared.events.service_ready()
    try:
        run.run()
    except spark_pipeline.DEATHS as error:
        raise spark_pipeline.died(error) from error


def _refresh(settings: Settings) -> Marker | None:
    with open_publisher(settings) as publisher:
        return publisher.refresh()


def _check_outside(shared: Shared) -> bool:
    """Raise PreflightError or PositionLostError before anything is started.

    Returns false when the service is to stop meanwhile.

    The marker is refreshed here, too, so that it expires only while nothing runs.
    """
    settings = shared.settings
    with open_publisher(settings) as publisher:
        if not await_brokers(parts.brokers(shared, publisher.list_topics)):
            return False
        marker = publisher.refresh()
    compare(settings, Checkpoint(settings.spark.checkpoint or ""), LogLookup(settings), marker)
    return True
