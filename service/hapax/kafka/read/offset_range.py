"""A stretch of one partition, read from its start to its end, under both isolations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.errors import HapaxError
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC, describe
from hapax.kafka.properties import build
from hapax.kafka.read.records import record_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from hapax.core.records import Record

AT_ONCE, WAIT_S, SILENCE_S = 10_000, 0.5, 60.0
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
    """Reads a stretch to an end-of-partition event, or to a record behind its end.

    Never to a count: offsets of markers, of aborted and of compacted records are not delivered.
    """

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
            offsets = [message.offset() or 0 for message in messages]
            yield [offset for offset in offsets if not seen[offset - start]]

    def _read(self, isolation: str, start: int, end: int) -> Iterator[list[Message]]:
        topic, partition = self._stretch.topic, self._stretch.partition
        properties = {**self._properties, **_BOUNDED, "isolation.level": isolation}
        consumer = build(Consumer, properties, None)
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            heard_s = time.monotonic()
            done = False
            while not done:
                head = consumer.poll(WAIT_S)
                messages = [] if head is None else [head, *consumer.consume(AT_ONCE, 0)]
                kept, done = _within(messages, end)
                if kept:
                    heard_s = time.monotonic()
                    yield kept
                elif not done and time.monotonic() - heard_s > SILENCE_S:
                    raise RangeReadError(
                        f"{topic}/{partition}: nothing came for {SILENCE_S:.0f} s before {end}"
                    )
        finally:
            consumer.close()


def _within(messages: list[Message], end: int) -> tuple[list[Message], bool]:
    """Return the records before ``end``, and whether there can be no more."""
    kept: list[Message] = []
    for message in messages:
        error = message.error()
        offset = message.offset() or 0
        if error is None:
            if offset >= end:
                return kept, True
            kept.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if offset >= end:
                return kept, True
        else:
            _check(message, error)
    return kept, False


def _check(message: Message, error: KafkaError) -> None:
    """Raise for what no patience heals; the rest ends in silence, or is over soon."""
    where = f"{message.topic()}/{message.partition()}"
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise RangeReadError(f"{where}: records were deleted while they were read; audit again")
    if error.code() in FORBIDDEN | UNKNOWN_TOPIC or error.fatal():
        raise RangeReadError(f"{where}: cannot be read: {describe(error)}")


def _records(messages: list[Message]) -> tuple[list[Record], frozenset[int]]:
    records, unreadable = [], set()
    for index, message in enumerate(messages):
        record, readable = record_of(message)
        records.append(record)
        if not readable:
            unreadable.add(index)
    return records, frozenset(unreadable)
