"""Later tries, put together: the calls around which records wait, and the source of those."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hapax.core.errors import BatchAbortedError
from hapax.core.lag import GroupProgress
from hapax.core.line_calls import with_waits
from hapax.core.line_window import LineWindow
from hapax.core.retry_line import RetryLine
from hapax.core.window import Window
from hapax.engines.gathered_calls import retrying
from hapax.kafka.consume.line_source import KafkaLineSource
from hapax.kafka.consume.retry_source import KafkaRetrySource, WaitingSource
from hapax.kafka.properties import consumer_properties
from hapax.telemetry.logs import ClientLogger

if TYPE_CHECKING:
    from hapax.core.ports import AppliesAll
    from hapax.core.retry_later import RetryTopic
    from hapax.kafka.consume.source import KafkaSource
    from hapax.settings import Settings
    from hapax.wiring.builders import Shared


def with_later_tries(
    settings: Settings, calls: AppliesAll, line: RetryLine | None = None
) -> AppliesAll:
    """Return step 4 with records that wait, where they may; ``line``: that of the source."""
    return with_waits(calls, retrying(settings), line, now_ms=_now_ms)


def retry_source(shared: Shared, topic: RetryTopic) -> KafkaSource:
    """Return the consumer of a pipeline whose records may wait; it joins nothing yet."""
    settings = shared.settings
    parts: dict[str, Any] = {
        "now_ms": _now_ms,
        "start": settings.start,
        "logger": ClientLogger(shared.events, "consumer"),
        "clock": shared.clock,
        "watch": shared.watchdog.watch,
    }
    properties, topics = consumer_properties(settings), settings.input.topics
    if topic.by_key:
        return KafkaLineSource(properties, topics, line=RetryLine(topic), **parts)
    return KafkaRetrySource(properties, topics, retry=topic.name, **parts)


def line_of(source: KafkaSource) -> RetryLine | None:
    """Return what waits in the order of its key, as the source knows it; None: nothing does."""
    return source.line if isinstance(source, KafkaLineSource) else None


def window(source: KafkaSource) -> Window:
    """Return what holds the records whose calls overlap."""
    line = line_of(source)
    return Window() if line is None else LineWindow(line, now_ms=_now_ms)


def group_progress(shared: Shared, source: KafkaSource) -> GroupProgress:
    """Return how far the group is in the inputs; what waits is no lag, and is counted apart."""
    found = GroupProgress(source.processed(), source.positions())
    if not isinstance(source, WaitingSource):
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
    if isinstance(source, WaitingSource) and shared.settings.bounded:
        with suppress(BatchAbortedError):  # it is only a remark
            topic = str(shared.settings.retry_topic)
            shared.events.records_left_waiting(source.waiting(), source.unread(), topic)


def _now_ms() -> int:
    return int(time.time() * 1000)
