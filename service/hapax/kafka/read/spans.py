"""Where a span begins and stops in each partition, looked up in the logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from hapax.core.errors import BatchAbortedError, ConfigurationError
from hapax.core.span import WORDS, Span, offsets_of, time_of
from hapax.kafka.errors import describe
from hapax.kafka.read.offset_queries import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.core.span import SpanWords
    from hapax.kafka.read.offset_queries import OffsetQueries


def spans(queries: OffsetQueries, places: Iterable[Where], words: SpanWords) -> dict[Where, Span]:
    """Return the span of each partition.

    A point in time is the first record at or after it, of an open transaction as well: what it
    holds before the end belongs to the span, if it is ever committed. Without such a record it is
    the end of the log. Raises BatchAbortedError when brokers do not answer: ask again.
    """
    wanted = list(places)
    now_ms = int(time.time() * 1000)
    # Ends before times: of what arrives in between, nothing is beyond an end and before a time.
    lows = _offsets(queries, dict.fromkeys(wanted, EARLIEST))
    highs = _offsets(queries, dict.fromkeys(wanted, LATEST))
    starts = lows
    if words.start == "latest" or words.start not in WORDS:
        starts = highs | _points(queries, wanted, words.start, now_ms)
    stops = highs
    if words.end == "latest":
        stops = _offsets(queries, dict.fromkeys(wanted, LATEST), committed=True)
    elif words.end is not None:
        stops = highs | _points(queries, wanted, words.end, now_ms)
    return {
        where: Span(min(starts[where], stops[where]), stops[where], words.name) for where in wanted
    }


def _points(queries: OffsetQueries, wanted: list[Where], text: str, now_ms: int) -> Progress:
    """Return the offsets of a point in time, without partitions that have no such record."""
    named = offsets_of(text)
    if named is not None:
        missing = [f"{topic}/{number}" for topic, number in wanted if (topic, number) not in named]
        if missing:
            raise ConfigurationError(
                [f"{text} names no offset of {', '.join(missing)}: name one of every partition"]
            )
        return {where: named[where] for where in wanted}
    time_ms = time_of(text, now_ms)
    assert time_ms is not None  # the settings take nothing else
    found = _answers(queries, dict.fromkeys(wanted, max(time_ms, 0)))
    return {where: offset for where, offset in found.items() if offset is not None}


def _offsets(queries: OffsetQueries, wanted: Mapping[Where, int], **how: bool) -> Progress:
    found = _answers(queries, wanted, **how)
    return {where: offset or 0 for where, offset in found.items()}


def _answers(
    queries: OffsetQueries, wanted: Mapping[Where, int], **how: bool
) -> dict[Where, int | None]:
    try:
        found = queries.offsets(wanted, **how)
    except KafkaException as error:
        reason = describe(error.args[0])
        raise BatchAbortedError(f"offsets of a span: {reason}", resolved=False) from error
    if errors := queries.take_errors():
        raise BatchAbortedError(f"offsets of a span: {errors[0]}", resolved=False)
    return found
