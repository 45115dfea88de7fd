"""Business code, put together: its form, its calls and later tries, and a process for suspects."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from hapax.core.crash_markers import Isolation
from hapax.core.errors import BatchAbortedError
from hapax.core.lag import GroupProgress
from hapax.core.later_calls import LaterCalls
from hapax.engines.isolated_calls import IsolatedCalls
from hapax.engines.overlapping_calls import GatheredCalls, call_limits, open_transformer, retrying
from hapax.kafka.consume.retry_source import KafkaRetrySource
from hapax.kafka.properties import consumer_properties
from hapax.telemetry.logs import ClientLogger

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from hapax.core.ports import AppliesAll
    from hapax.core.records import Coordinates, Record
    from hapax.core.transform import Transformer, TransformForm
    from hapax.engines.overlapping_calls import Making
    from hapax.kafka.consume.source import KafkaSource
    from hapax.settings import Settings
    from hapax.telemetry.events import Events
    from hapax.wiring.builders import Shared

CALL_SHARE = 0.9
"""Of ``max.poll.interval.ms``: a batch that takes longer is taken away anyway."""


def call_limit_s(settings: Settings) -> float:
    """Return seconds; unset: so long that the group has all but given the partition away."""
    timeout_ms = settings.call.timeout_ms
    if timeout_ms is None:
        return CALL_SHARE * settings.group.max_poll_interval_ms / 1000
    return timeout_ms / 1000


def transformer(
    shared: Shared, form: TransformForm, stack: ExitStack
) -> Transformer | GatheredCalls:
    events = shared.events
    made = open_transformer(form, call_limits(shared.settings), events.event_loop_blocked)
    if isinstance(made, GatheredCalls):
        stack.callback(made.close)
        shared.watchdog.follow(partial(_follow, made.calls, events))
    return made


def _follow(calls: Making, events: Events) -> tuple[Record, float] | None:
    events.calls_observed(calls.running())
    return calls.tick()


def isolation(
    settings: Settings,
    transformer: Transformer | GatheredCalls,
    *,
    on_death: Callable[[Coordinates, str, int], object],
    on_failure: Callable[[str], object],
) -> Isolation:
    return Isolation(
        transformer,
        IsolatedCalls(settings.transform, call_limits(settings), call_limit_s(settings)),
        on_death=lambda record, how, deaths: on_death(record.coordinates, how, deaths),
        on_failure=on_failure,
        at_once=transformer.calls.at_once if isinstance(transformer, GatheredCalls) else 1,
    )


def with_later_tries(settings: Settings, calls: AppliesAll) -> AppliesAll:
    policy = retrying(settings)
    return calls if policy.topic is None else LaterCalls(calls, policy, now_ms=_now_ms)


def retry_source(shared: Shared, retry: str) -> KafkaSource:
    """Return the consumer of a pipeline whose records may wait; it joins nothing yet."""
    settings = shared.settings
    return KafkaRetrySource(
        consumer_properties(settings),
        settings.input.topics,
        retry=retry,
        now_ms=_now_ms,
        start=settings.start,
        logger=ClientLogger(shared.events, "consumer"),
        clock=shared.clock,
        watch=shared.watchdog.watch,
    )


def group_progress(shared: Shared, source: KafkaSource) -> GroupProgress:
    """Return how far the group is in the inputs; what waits is no lag, and is counted apart."""
    found = GroupProgress(source.processed(), source.positions())
    if not isinstance(source, KafkaRetrySource):
        return found
    shared.events.records_wait(source.waiting())
    topic = shared.settings.retry_topic
    return GroupProgress(
        *(
            {where: at for where, at in each.items() if where[0] != topic}
            for each in (found.committed, found.positions)
        )
    )


def tell_waiting(shared: Shared, source: KafkaSource) -> None:
    """Say how many records wait when a bounded run ends: it does not wait for them."""
    if isinstance(source, KafkaRetrySource) and shared.settings.bounded:
        with suppress(BatchAbortedError):  # it is only a remark
            topic = str(shared.settings.retry_topic)
            shared.events.records_left_waiting(source.waiting(), source.unread(), topic)


def _now_ms() -> int:
    return int(time.time() * 1000)
