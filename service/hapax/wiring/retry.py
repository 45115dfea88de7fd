"""Later tries, put together: the calls around which records wait, and the source of those."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError
from hapax.core.lag import GroupProgress
from hapax.core.later_calls import LaterCalls
from hapax.engines.gathered_calls import retrying
from hapax.kafka.consume.retry_source import KafkaRetrySource
from hapax.kafka.properties import consumer_properties
from hapax.telemetry.logs import ClientLogger

if TYPE_CHECKING:
    from hapax.core.ports import AppliesAll
    from hapax.kafka.consume.source import KafkaSource
    from hapax.settings import Settings
    from hapax.wiring.builders import Shared


def with_later_tries(settings: Settings, calls: AppliesAll) -> AppliesAll:
    """Return step 4 with records that wait, where they may."""
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
