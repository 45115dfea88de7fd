"""A stretch of one partition, read from its start to its end, under both isolations."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError

from hapax.core.errors import HapaxError
from hapax.kafka.errors import describe, offset_of
from hapax.kafka.properties import build
from hapax.kafka.read.range_reader import RangeFetch, record_of, undecodable_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from hapax.core.records import Record

SILENCE_S = 60.0
_BOUNDED = {
    # What is fetched beyond the stretch is thrown away: not more than a few fetches of it.
    "queued.max.messages.kbytes": 8192,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}


class OffsetRange(NamedTuple):
    """Offsets of one partition from ``start`` up to but without ``end``; ``place`` names it."""

    place: int
    topic: str
    partition: int
    start: int
    end: int


class RangeReadError(HapaxError):
    """A stretch could not be read to its end; nothing may be concluded from the part that was."""


class AuditRangeReader:
    """Reads a stretch for an audit: its committed records, then the offsets of the others."""

    def __init__(self, properties: Mapping[str, Any], stretch: OffsetRange) -> None:
        self._properties = properties
        self._stretch = stretch
        self._seen = bytearray(stretch.end - stretch.start)

    def committed(self) -> Iterator[tuple[list[Record], frozenset[int]]]:
        """Yield what a read_committed reader sees, and by index whose headers are unreadable."""
        start, seen = self._stretch.start, self._seen
        for messages in self._read("read_committed", start, self._stretch.end):
            records, unreadable = _records(messages)
            for record in records:
                seen[record.offset - start] = 1
            yield records, unreadable

    def hidden(self) -> Iterator[list[int]]:
        """Yield the offsets of aborted records; call when ``committed`` is exhausted.

        They can only lie where no committed record was found, so only that part is read again.
        """
        first, last = self._seen.find(0), self._seen.rfind(0)
        if first < 0:
            return
        start, seen = self._stretch.start, self._seen
        for messages in self._read("read_uncommitted", start + first, start + last + 1):
            offsets = [offset_of(message) for message in messages]
            yield [offset for offset in offsets if not seen[offset - start]]

    def _read(self, isolation: str, start: int, end: int) -> Iterator[list[Message]]:
        topic, partition = self._stretch.topic, self._stretch.partition
        properties = {**self._properties, **_BOUNDED, "isolation.level": isolation}
        with closing(build(Consumer, properties, None)) as consumer:
            fetch = RangeFetch(consumer, {(topic, partition): (start, end)}, refused=_refused)
            while fetch.ends:
                kept = fetch.poll()
                for where, stuck in fetch.undecodable.items():
                    raise RangeReadError(undecodable_problem(where, stuck))
                if kept:
                    yield kept
                    fetch.heard_s = time.monotonic()  # the caller may have taken its time
                if fetch.silent(SILENCE_S):
                    raise RangeReadError(
                        f"{topic}/{partition}: nothing came for {SILENCE_S:.0f} s before {end}"
                    )


def _refused(place: str, error: KafkaError) -> RangeReadError:
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        reason = "records were deleted while they were read; audit again"
    else:
        reason = f"cannot be read: {describe(error)}"
    return RangeReadError(f"{place}: {reason}")


def _records(messages: list[Message]) -> tuple[list[Record], frozenset[int]]:
    records, unreadable = [], set()
    for index, message in enumerate(messages):
        record, readable = record_of(message)
        records.append(record)
        if not readable:
            unreadable.add(index)
    return records, frozenset(unreadable)
