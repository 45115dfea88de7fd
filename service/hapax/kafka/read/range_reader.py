"""Records of ranges of offsets, read by consumers that join nothing.

Every read of a range goes through RangeFetch. A partition has come to its end with an
end-of-partition event or a record at or after the end, never with a count: offsets of markers, of
aborted and of compacted records are not delivered.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.changes import Stuck
from hapax.core.errors import PreflightError
from hapax.core.records import Record
from hapax.kafka.errors import (
    FORBIDDEN,
    NO_TEXT,
    UNKNOWN_TOPIC,
    client_headers,
    describe,
    offset_of,
    place_of,
)
from hapax.kafka.properties import build
from hapax.kafka.read.offset_client import reader_properties
from hapax.kafka.read.too_large import TooLarge, too_large
from hapax.kafka.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from confluent_kafka import Message

    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

    Isolation = Literal["read_committed", "read_uncommitted"]

_EOF = KafkaError._PARTITION_EOF
REFUSED = FORBIDDEN | UNKNOWN_TOPIC | {KafkaError._AUTO_OFFSET_RESET}
AT_ONCE, WAIT_S, SILENCE_S = 5_000, 0.5, 20.0


class ReadRecord(NamedTuple):
    """A record, and whether its headers could be read: their names may be no text."""

    record: Record
    readable: bool


def record_of(message: Message) -> tuple[Record, bool]:
    """Return the record, and whether its headers can be read; those that cannot are left out.

    For readers beside the pipeline. The worker's own path builds records in its loop.
    """
    try:
        headers: Any = client_headers(message)
        readable = True
    except NO_TEXT:  # a name that is not UTF-8
        headers, readable = None, False
    record = Record(
        *place_of(message),
        offset_of(message),
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
        message.timestamp()[1],
    )
    return record, readable


class RangeFetch:
    """Ranges of partitions, assigned to a consumer; each is read up to but without its end.

    ends         of the partitions that are not read to their end yet
    undecodable  sets that the client could not decode; nothing after them is read
    heard_s      when the last record of a range, or the end of one, came
    """

    def __init__(
        self,
        consumer: Consumer,
        spans: Mapping[Where, tuple[int, int]],
        *,
        refused: Callable[[str, KafkaError], Exception],
        undecodable: dict[Where, Stuck] | None = None,
        over: Container[int] = (),
    ) -> None:
        """Assign the ranges that are not empty.

        ``refused``: what is raised for topic/partition and an error that no patience heals.
        ``over``: errors after which nothing more comes of a partition, wherever it is.
        """
        self.ends = {where: end for where, (start, end) in spans.items() if start < end}
        self.undecodable = {} if undecodable is None else undecodable
        self.heard_s = time.monotonic()
        self._consumer = consumer
        self._refused = refused
        self._over = over
        consumer.assign([TopicPartition(*where, spans[where][0]) for where in self.ends])

    def poll(self, wait_s: float = WAIT_S, at_once: int = AT_ONCE) -> list[Message]:
        """Return the next messages before the ends; those of one partition in order."""
        head = self._consumer.poll(wait_s)
        messages = [] if head is None else [head, *self._consumer.consume(at_once, 0)]
        kept: list[Message] = []
        before = len(self.ends)
        for message in messages:
            where, error = place_of(message), message.error()
            end = self.ends.get(where)
            if end is None or where in self.undecodable:
                continue
            if error is None:
                offset = offset_of(message)
                if offset < end:
                    kept.append(message)
                at_end = offset + 1 >= end
            else:
                at_end = self._ended_by(error, where, message.offset())
            if at_end:
                del self.ends[where]
        if kept or len(self.ends) < before:
            self.heard_s = time.monotonic()
        return kept

    def silent(self, timeout_s: float) -> bool:
        """Whether nothing has come for so long, with something still to come."""
        return bool(self.ends) and time.monotonic() - self.heard_s > timeout_s

    def pause(self, places: Iterable[Where]) -> None:
        """Fetch no more of these partitions. The pause stays as long as the consumer."""
        done = [TopicPartition(*where) for where in places]
        if done:
            self._consumer.pause(done)

    def _ended_by(self, error: KafkaError, where: Where, offset: int | None) -> bool:
        code, end = error.code(), self.ends[where]
        if code in self._over:
            return True
        if code in UNDECODABLE | {_EOF} and offset is not None:
            if code != _EOF and 0 <= offset < end:
                self.undecodable[where] = Stuck(offset, describe(error))
            return offset >= end
        if code in REFUSED or error.fatal():
            raise self._refused(f"{where[0]}/{where[1]}", error)
        return False


class RangeReader:
    """Reads, per partition, from a first offset up to but without a last one.

    Raises PreflightError when brokers do not let us, or fall silent.

    undecodable  sets that the client could not decode; nothing beyond them was read
    """

    def __init__(self, settings: Settings, isolation: Isolation = "read_committed") -> None:
        self.undecodable: dict[Where, Stuck] = {}
        self._properties: dict[str, Any] = {
            **reader_properties(settings),
            "log_level": 3,  # for TooLarge, which passes nothing on
            # What is fetched beyond a span is thrown away.
            "queued.max.messages.kbytes": 16_384,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may pass the start meanwhile
            "isolation.level": isolation,
        }

    def read(self, spans: Mapping[Where, tuple[int, int]]) -> Iterator[list[ReadRecord]]:
        """Yield records, some at a time; those of one partition in order."""
        if all(start >= end for start, end in spans.values()):
            return
        heard = TooLarge()
        with closing(build(Consumer, self._properties, heard)) as consumer:
            fetch = self._fetch(consumer, spans)
            while fetch.ends:
                due = set(fetch.ends)
                found = _records(fetch.poll())
                for where in fetch.ends.keys() & self.undecodable.keys():
                    raise PreflightError([undecodable_problem(where, self.undecodable[where])])
                fetch.pause(due - fetch.ends.keys())
                if fetch.silent(SILENCE_S):
                    raise PreflightError([_silent(fetch.ends, heard.reason)])
                if found:
                    yield found
                    fetch.heard_s = time.monotonic()  # the caller may have taken its time

    def firsts(
        self, starts: Mapping[Where, tuple[int, int]], within_s: float
    ) -> dict[Where, ReadRecord | None]:
        """Return, per partition, the first record of its span; None where the span holds none.

        A partition whose broker is silent for ``within_s`` is left out, and so is one whose first
        record cannot be decoded (``undecodable``).
        """
        found: dict[Where, ReadRecord | None] = {}
        if all(start >= end for start, end in starts.values()):
            return found
        properties = {**self._properties, "queued.min.messages": 1, "fetch.wait.max.ms": 20}
        give_up_s, heard = time.monotonic() + within_s, TooLarge()
        with closing(build(Consumer, properties, heard)) as consumer:
            fetch = self._fetch(consumer, starts)
            while fetch.ends and time.monotonic() < give_up_s:
                due = set(fetch.ends)
                for one in _records(fetch.poll(min(WAIT_S, within_s))):
                    found.setdefault((one.record.topic, one.record.partition), one)
                found |= dict.fromkeys(due - fetch.ends.keys() - found.keys())
                for where in found.keys() & self.undecodable.keys():
                    del self.undecodable[where]  # it comes later
                for where in fetch.ends.keys() & (found.keys() | self.undecodable.keys()):
                    del fetch.ends[where]
                fetch.pause(due - fetch.ends.keys())
        for where in fetch.ends if heard.reason else ():
            if reason := too_large(properties, where, starts[where][0]):
                self.undecodable[where] = Stuck(starts[where][0], reason)
        return found

    def _fetch(self, consumer: Consumer, spans: Mapping[Where, tuple[int, int]]) -> RangeFetch:
        return RangeFetch(consumer, spans, refused=_refused, undecodable=self.undecodable)


def _records(messages: list[Message]) -> list[ReadRecord]:
    return [ReadRecord(*record_of(message)) for message in messages]


def _refused(place: str, error: KafkaError) -> PreflightError:
    return PreflightError([f"{place}: cannot be read: {describe(error)}"])


def undecodable_problem(where: Where, one: Stuck) -> str:
    """Return what is to be done about a set that cannot be read."""
    place = f"{where[0]}/{where[1]}/{one.offset}"
    return (
        f"{place}: the set that begins there cannot be read ({one.reason});"
        f" hapax offsets skip {place} --dead-letter passes it"
    )


def _silent(ends: Mapping[Where, int], why: str) -> str:
    places = ", ".join(f"{topic}/{number}" for topic, number in sorted(ends)[:3])
    return f"{places}: nothing came for {SILENCE_S:.0f} s; {why or 'are its brokers up?'}"
