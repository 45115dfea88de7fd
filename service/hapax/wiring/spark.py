"""The Spark engine, put together: a member of the group, Spark's jobs, and what runs in a task."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.core.errors import ConfigurationError
from hapax.engines.idle_offsets import Bounds
from hapax.engines.overlapping_calls import load_calls
from hapax.engines.preflight import check
from hapax.engines.spark.driver import Reports, SparkEngine
from hapax.engines.spark.executors import Executors
from hapax.engines.spark.jobs import SparkJobs
from hapax.engines.spark.plan import Pacing
from hapax.engines.spark.session import SparkOptions, open_context
from hapax.kafka.consume.spark_sources import KafkaMember
from hapax.kafka.produce.standalone import LaneFences
from hapax.kafka.read.group_start import start_remarks
from hapax.kafka.read.lag_probe import TaskProgress
from hapax.wiring import builders as parts
from hapax.wiring.task import run_plans

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.settings import Settings
    from hapax.wiring.builders import Shared


def run_records(shared: Shared, stack: ExitStack) -> None:
    settings = shared.settings
    if "spark" not in settings.mode.engines:
        problem = f"HAPAX_GUARANTEE={settings.guarantee} is for the worker; Spark runs exactly_once"
        raise ConfigurationError([problem])
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
    engine = SparkEngine(
        shared,
        member,
        jobs,
        fences=LaneFences(settings),
        reports=Reports(
            shared.events, claims, parts.limits(settings), parts.dead_letter_rate(settings)
        ),
        pacing=_pacing(settings),
    )
    parts.start_lag_monitor(shared, stack, TaskProgress(settings, engine.group_progress))
    shared.events.service_ready()
    engine.run()
    shared.events.service_draining(shared.lifecycle.reason)


def _pacing(settings: Settings) -> Pacing:
    range_ms = settings.spark.range_interval_ms
    return Pacing(
        duration_s=range_ms / 1000,
        task_max_s=(range_ms + settings.group.max_poll_interval_ms) / 1000,
        attempts_max=settings.retry.attempts,
        sticky=settings.group.protocol == "consumer",
        bounds=Bounds.of(settings),
    )
