"""Counts the records of stretches of offsets, by consumers that join nothing.

They are those by which offsets are queried, so that there is no further connection.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition

from hapax.core.errors import PreflightError
from hapax.kafka.errors import describe, offset_of, place_of
from hapax.kafka.read.range_reader import AT_ONCE, SILENCE_S, RangeFetch, undecodable_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

    from hapax.core.reader_lag import Counted
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.read.offset_queries import OffsetQueries
    from hapax.kafka.read.range_reader import Isolation

COUNTING: Mapping[str, Any] = {
    # What is fetched beyond a stretch is thrown away.
    "queued.max.messages.kbytes": 4096,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # retention may pass the start meanwhile
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 20,
}
"""Properties of a consumer that counts."""
FEW = 500
"""Records that are taken from the client at once where other threads must not wait for this one:
the interpreter is held for a millisecond, instead of ten."""


def count_records(
    queries: OffsetQueries,
    isolation: Isolation,
    counted: Mapping[Where, Counted],
    ends: Mapping[Where, int],
    tell: Callable[[int], None] = lambda _count: None,
    *,
    within_s: float | None = None,
) -> dict[Where, str]:
    """Count on to the ends, as far as the time allows; return what cannot be read, and why.

    ``queries``: with ``COUNTING``. ``tell`` hears now and then how many more were counted.
    ``within_s``: of a process that has other things to do. Raises PreflightError when brokers fall
    silent, or do not let us read.
    """
    spans = {where: (one.end, ends[where]) for where, one in counted.items()}
    if all(start >= end for start, end in spans.values()):
        return {}
    give_up_s = math.inf if within_s is None else time.monotonic() + within_s
    at_once = AT_ONCE if within_s is None else FEW
    consumer = queries.of(isolation)
    fetch = RangeFetch(consumer, spans, refused=_refused)
    assigned = [TopicPartition(*where) for where in fetch.ends]
    try:
        while fetch.ends and time.monotonic() < give_up_s:
            due = set(fetch.ends)
            found = fetch.poll(at_once=at_once)
            _add(found, counted)
            for where in due - fetch.ends.keys():
                counted[where].end = ends[where]
            for where in fetch.ends.keys() & fetch.undecodable.keys():
                del fetch.ends[where]
            fetch.pause(due - fetch.ends.keys())
            tell(len(found))
            if fetch.silent(SILENCE_S):
                raise _silent(*min(fetch.ends))
    finally:
        consumer.resume(assigned)  # a pause would outlive the assignment
        consumer.unassign()
    return {where: undecodable_problem(where, one) for where, one in fetch.undecodable.items()}


def _add(messages: list[Message], counted: Mapping[Where, Counted]) -> None:
    for message in messages:
        one, offset = counted[place_of(message)], offset_of(message)
        if offset >= one.end:  # else of a log that has replaced this one
            one.add(offset)


def _silent(topic: str, partition: int) -> PreflightError:
    problem = f"{topic}/{partition}: nothing came for {SILENCE_S:.0f} s; are its brokers up?"
    return PreflightError([problem])


def _refused(place: str, error: KafkaError) -> PreflightError:
    topic = place.rpartition("/")[0]
    reason = describe(error)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        reason = f"grant READ on topic {topic} ({reason})"
    return PreflightError([f"{place}: its records cannot be read: {reason}"])
