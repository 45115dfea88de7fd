"""A task of Spark, put together on an executor. What happens in it is in engines/spark/task.py."""

from __future__ import annotations

import os
import platform
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from hapax.core.errors import ClaimsUnavailableError
from hapax.core.interrupt import Interrupt, without_ctrl_c
from hapax.engines import overlapping_calls
from hapax.engines.idle_offsets import Bounds
from hapax.engines.overlapping_calls import GatheredCalls
from hapax.engines.spark.task import Task, hung, overrun
from hapax.engines.steps import steps
from hapax.engines.watchdog import Watchdog
from hapax.kafka.consume.spark_sources import KafkaRange
from hapax.kafka.native import record_path
from hapax.kafka.produce.standalone import named_transaction
from hapax.kafka.properties import consumer_properties, lane_id
from hapax.processing.exactly_once import ExactlyOnce
from hapax.processing.limits import RetryPolicy
from hapax.processing.transform import load_form
from hapax.settings.secrets import Strike, secrets_around, secrets_of
from hapax.telemetry.logs import ClientLogger, configure_logs, who
from hapax.wiring import builders as parts
from hapax.wiring.builders import claim_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import ExitStack

    from hapax.core.ports import Clock, Source, Transaction
    from hapax.engines.spark.plan import RangePlan, RangeReport, RangeSource, TaskTransaction
    from hapax.processing.batch_result import Core
    from hapax.processing.call_window import CallLimits
    from hapax.processing.crash_markers import Isolation
    from hapax.processing.transform import Transformer
    from hapax.settings import Settings

FETCH_WAIT_MS = 5
"""A range has an end that is known to be there; brokers need not wait for more than that. The last
records' control record is only noticed by an empty fetch, so its wait would be added to the range.
"""


def run_plans(
    settings: Settings, plans: Iterable[RangePlan], *, cluster_id: str | None = None
) -> Iterator[RangeReport]:
    """Refuse claims of another ``cluster_id`` than the driver's. Executors import this."""
    configure_logs(  # of business code: it goes where the log of executors goes
        settings.telemetry.log_level,
        "json",
        stream=sys.stderr,
        strike=Strike({*secrets_of(settings), *secrets_around(os.environ)}),
        **who(settings),
    )
    with without_ctrl_c():
        for plan in plans:
            report = RangeTask(settings, plan, cluster_id=cluster_id).run()
            report.counted = overlapping_calls.take_counted()
            yield report


def _transformer(name: str | None, limits: CallLimits) -> Transformer | GatheredCalls:
    form = load_form(name)
    if overlapping_calls.overlapping(form, limits):
        return _opened(name, limits)
    return overlapping_calls.open_transformer(form, limits)


@cache
def _opened(name: str | None, limits: CallLimits) -> Transformer | GatheredCalls:
    """Set a transform up once for the Python process of an executor, which runs many ranges."""
    return overlapping_calls.open_transformer(load_form(name), limits)


class RangeTask(Task):
    """A task on Kafka, by the settings."""

    def __init__(
        self, settings: Settings, plan: RangePlan, *, cluster_id: str | None = None
    ) -> None:
        super().__init__(plan)
        self._settings = settings
        self._cluster_id = cluster_id
        self.clock: Clock = time
        self.interrupt = Interrupt()
        self.watchdog = Watchdog(settings.watchdog.timeout_ms / 1000, on_overrun=overrun)
        attempt_s, whole_s = parts.call_limits_s(settings)
        self.watchdog.limit_calls(self.interrupt, attempt_s, hung, whole_s)
        retry = RetryPolicy(settings.retry.attempts)
        retry.records_max = plan.batch_max
        bounds = Bounds(records_max=plan.records_max, at_end=False)
        self.sizing = parts.sizing(settings, retry, bounds, start=plan.pace)
        self.records_max = settings.transaction.records_max
        self.transaction_timeout_s = settings.transaction.timeout_ms / 1000

    def clients(self) -> tuple[RangeSource, TaskTransaction]:
        settings, plan, executor = self._settings, self._plan, platform.node()
        name = lane_id(settings, plan.lane)
        choice = record_path(settings, executor)
        self._events.executor_seen(executor, str(choice))
        around: dict[str, Any] = {"clock": self.clock, "watch": self.watchdog.watch}
        source = KafkaRange(
            consumer_properties(settings) | {"client.id": name, "fetch.wait.max.ms": FETCH_WAIT_MS},
            plan.starts,
            member=plan.member,
            cluster_id=plan.cluster_id,
            start=settings.start,
            logger=ClientLogger(self._events, "consumer"),
            native=choice.path,
            **around,
        )
        around |= {"forward": self._events.librdkafka_logged, "meet_cluster": source.meet_cluster}
        return source, named_transaction(settings, name, choice.path, **around)

    def isolation(self) -> Isolation:
        settings = self._settings
        transformer = _transformer(settings.transform, overlapping_calls.call_limits(settings))
        if isinstance(transformer, GatheredCalls):
            self.watchdog.follow(transformer.calls.tick)
        return parts.isolation(settings, transformer, self._events)

    def core(
        self, source: Source, transaction: Transaction, isolation: Isolation, on: ExitStack
    ) -> Core:
        settings = self._settings
        claims = claim_store(
            settings, on_emptied=self._events.claims_lost, cluster_id=self._cluster_id
        )
        if claims is not None:
            on.callback(claims.close)
            with suppress(ClaimsUnavailableError):
                claims.ping()  # where it deletes claims, it refuses to claim from here on
        owners = parts.owners(settings, self.watchdog.watch, on)
        made = steps(settings, claims, owners, isolation, failed=self._plan.failed)
        bare = ExactlyOnce(made, source, transaction, clock=self.clock, interrupt=self.interrupt)
        core = parts.traced(settings, bare, lane_id(settings, self._plan.lane))
        on.callback(parts.flush_traces, settings)
        return core
