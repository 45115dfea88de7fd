"""Counts the records of stretches of offsets, by consumers that join nothing."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError

from hapax.core.errors import PreflightError
from hapax.kafka.errors import describe, offset_of, place_of
from hapax.kafka.properties import build
from hapax.kafka.read.range_reader import SILENCE_S, RangeFetch, undecodable_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.reader_lag import Counted
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.read.range_reader import Isolation

_PROPERTIES = {
    # What is fetched beyond a stretch is thrown away.
    "queued.max.messages.kbytes": 16_384,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # retention may pass the start meanwhile
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 20,
}


def count_records(
    properties: Mapping[str, Any],
    isolation: Isolation,
    counted: Mapping[Where, Counted],
    ends: Mapping[Where, int],
    tell: Callable[[int], None] = lambda _count: None,
    *,
    within_s: float = float("inf"),
) -> dict[Where, str]:
    """Count on to the ends, as far as the time allows; return what cannot be read, and why.

    ``properties``: of a consumer. ``tell`` hears now and then how many more were counted. Raises
    PreflightError when brokers fall silent, or do not let us read.
    """
    spans = {where: (one.end, ends[where]) for where, one in counted.items()}
    if all(start >= end for start, end in spans.values()):
        return {}
    own = {**properties, **_PROPERTIES, "isolation.level": isolation}
    give_up_s = time.monotonic() + within_s
    problems: dict[Where, str] = {}
    with closing(build(Consumer, own, None)) as consumer:
        fetch = RangeFetch(consumer, spans, refused=_refused)
        while fetch.ends and time.monotonic() < give_up_s:
            due = set(fetch.ends)
            messages = fetch.poll()
            for message in messages:
                counted[place_of(message)].add(offset_of(message))
            for where in due - fetch.ends.keys():
                counted[where].end = ends[where]
            for where in fetch.ends.keys() & fetch.undecodable.keys():
                problems[where] = undecodable_problem(where, fetch.undecodable[where])
                del fetch.ends[where]
            fetch.pause(due - fetch.ends.keys())
            tell(len(messages))
            if fetch.silent(SILENCE_S):
                where = min(fetch.ends)
                raise PreflightError([f"{where[0]}/{where[1]}: nothing came for {SILENCE_S:.0f} s"])
    return problems


def _refused(place: str, error: KafkaError) -> PreflightError:
    topic = place.rpartition("/")[0]
    reason = describe(error)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        reason = f"grant READ on topic {topic} ({reason})"
    return PreflightError([f"{place}: its records cannot be read: {reason}"])
