"""Spark, put together.

Records: a member of the group, Spark's jobs, and what runs in a task. DataFrames: one streaming
query, in this order:

1. what can be refused without Spark: the function, brokers, topics, a foreign checkpoint
2. Spark, the input, the pipeline's own DataFrame
3. the query; from here on Spark drives (engines/spark/dataframe/query.py)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.engines.idle_offsets import Bounds
from hapax.engines.overlapping_calls import load_calls
from hapax.engines.preflight import await_brokers, check
from hapax.engines.spark.dataframe import query as spark_pipeline
from hapax.engines.spark.dataframe.checkpoint import Checkpoint, session_properties
from hapax.engines.spark.dataframe.query import QueryRun, compare
from hapax.engines.spark.driver import Reports, SparkEngine
from hapax.engines.spark.executors import Executors, SparkJobs
from hapax.engines.spark.plan import Pacing
from hapax.engines.spark.session import SparkOptions, connector_jars, open_context, open_session
from hapax.engines.steps import dead_letter_rate
from hapax.kafka.consume.spark_sources import KafkaMember
from hapax.kafka.produce.standalone import LaneFences
from hapax.kafka.read.group_start import require_one_form, start_remarks
from hapax.kafka.read.input_logs import LogLookup
from hapax.kafka.read.lag_probe import TaskProgress
from hapax.kafka.read.offsets_client import input_logs
from hapax.spark import close_desks, open_publisher, register
from hapax.wiring import builders as parts
from hapax.wiring.task import run_plans

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.cluster.micro_batches import Marker
    from hapax.settings import Settings
    from hapax.wiring.builders import Shared


def run_records(shared: Shared, stack: ExitStack) -> None:
    settings = shared.settings
    load_calls(settings)  # a mistake in it is reported here, not by every task
    claims = parts.claims(shared, stack)
    member = parts.source(shared, KafkaMember)
    remarks = check(parts.brokers(shared, member.list_topics), member, claims)
    if remarks is None:
        return
    shared.events.preflight_passed(remarks + start_remarks(settings, member.told))
    options = SparkOptions.of(settings)
    executors = Executors(shared, options, settings.transform)
    context = executors.start(open_context)
    if context is None:
        return
    run = partial(run_plans, settings, cluster_id=None if claims is None else claims.cluster_id)
    remote = None if options.local else executors
    jobs = SparkJobs(context, run, lanes=settings.spark.lanes, executors=remote)
    stack.callback(jobs.close)
    if not executors.prepare(context) or shared.lifecycle.stopping:
        return
    stack.callback(member.close)
    member.subscribe()
    rate = dead_letter_rate(settings)
    engine = SparkEngine(
        shared,
        member,
        jobs,
        fences=LaneFences(settings),
        reports=Reports(shared.events, claims, parts.limits(settings), rate),
        pacing=_pacing(settings),
    )
    parts.start_lag_monitor(shared, stack, TaskProgress(settings, engine.group_progress))
    shared.events.service_ready()
    engine.run()


def _pacing(settings: Settings) -> Pacing:
    range_ms = settings.spark.range_interval_ms
    return Pacing(
        duration_s=range_ms / 1000,
        task_max_s=(range_ms + settings.group.max_poll_interval_ms) / 1000,
        attempts_max=settings.retry.attempts,
        sticky=settings.group.protocol == "consumer",
        bounds=Bounds.of(settings),
    )


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
    stack.callback(close_desks)
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
    checkpoint = Checkpoint(settings.spark.checkpoint or "")
    if marker is None and checkpoint.query_id() is None:
        require_one_form(settings, rows=True)
    compare(settings, checkpoint, LogLookup(settings), marker)
    return True
