"""Records of ranges of offsets, read by consumers that join nothing.

Every read of a range goes through RangeFetch. A partition has come to its end with an
end-of-partition event or a record at or after the end, never with a count: offsets of markers, of
aborted and of compacted records are not delivered.

RangeReader       records of ranges of many partitions
AuditRangeReader  one range, under both isolation levels
count_records     how many records ranges hold
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.errors import HapaxError, PreflightError
from hapax.core.ports import Stuck
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
from hapax.kafka.read.offsets_client import reader_properties
from hapax.kafka.read.too_large import TooLarge, too_large
from hapax.kafka.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from confluent_kafka import Message

    from hapax.core.reader_lag import Counted
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.read.offsets_client import Isolation, OffsetsClient
    from hapax.settings import Settings

_EOF = KafkaError._PARTITION_EOF
REFUSED = FORBIDDEN | UNKNOWN_TOPIC | {KafkaError._AUTO_OFFSET_RESET}
AT_ONCE, WAIT_S, SILENCE_S = 5_000, 0.5, 20.0
AUDIT_SILENCE_S = 60.0
_BOUNDED = {
    # What is fetched beyond the stretch is thrown away: not more than a few fetches of it.
    "queued.max.messages.kbytes": 8192,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
FEW = 500
"""Records that are taken from the client at once where other threads must not wait for this one:
the interpreter is held for a millisecond, instead of ten."""


class ReadRecord(NamedTuple):
    """A record, and whether its headers could be read: their names may be no text."""

    record: Record
    readable: bool


def record_of(message: Message) -> tuple[Record, bool]:
    """Return the record, and whether its headers can be read; those that cannot are left out.

    For readers alongside the pipeline. The worker's own path builds records in its loop.
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

    Raises PreflightError when brokers do not allow it, or fall silent.

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
    place = f"{where[0]}/{where[1]}/{one.offset}"
    return (
        f"{place}: the set that begins there cannot be read ({one.reason});"
        f" hapax offsets skip {place} --dead-letter passes it"
    )


def _silent(ends: Mapping[Where, int], why: str) -> str:
    places = ", ".join(f"{topic}/{number}" for topic, number in sorted(ends)[:3])
    return f"{places}: nothing came for {SILENCE_S:.0f} s; {why or 'are its brokers up?'}"


# -- A stretch of one partition, read from its start to its end, under both isolations ---------


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
            records, unreadable = _audit_records(messages)
            for record in records:
                seen[record.offset - start] = 1
            yield records, unreadable

    def hidden(self) -> Iterator[list[int]]:
        """Read again where no committed record was found; call after ``committed`` is exhausted."""
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
            fetch = RangeFetch(consumer, {(topic, partition): (start, end)}, refused=_audit_refused)
            while fetch.ends:
                kept = fetch.poll()
                for where, stuck in fetch.undecodable.items():
                    raise RangeReadError(undecodable_problem(where, stuck))
                if kept:
                    yield kept
                    fetch.heard_s = time.monotonic()  # the caller may have taken its time
                if fetch.silent(AUDIT_SILENCE_S):
                    raise RangeReadError(
                        f"{topic}/{partition}: nothing came for {AUDIT_SILENCE_S:.0f} s "
                        f"before {end}"
                    )


def _audit_refused(place: str, error: KafkaError) -> RangeReadError:
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        reason = "records were deleted while they were read; audit again"
    else:
        reason = f"cannot be read: {describe(error)}"
    return RangeReadError(f"{place}: {reason}")


def _audit_records(messages: list[Message]) -> tuple[list[Record], frozenset[int]]:
    records, unreadable = [], set()
    for index, message in enumerate(messages):
        record, readable = record_of(message)
        records.append(record)
        if not readable:
            unreadable.add(index)
    return records, frozenset(unreadable)


# -- Counts the records of stretches of offsets, by consumers that join nothing ----------------
#
# They are those by which offsets are queried, so that there is no further connection.

COUNTING: Mapping[str, Any] = {
    # What is fetched beyond a stretch is thrown away.
    "queued.max.messages.kbytes": 4096,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # retention may pass the start meanwhile
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 20,
}
"""Properties of a consumer that counts."""


def count_records(
    queries: OffsetsClient,
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
    silent, or do not allow to read.
    """
    spans = {where: (one.end, ends[where]) for where, one in counted.items()}
    if all(start >= end for start, end in spans.values()):
        return {}
    give_up_s = math.inf if within_s is None else time.monotonic() + within_s
    at_once = AT_ONCE if within_s is None else FEW
    consumer = queries.of(isolation)
    fetch = RangeFetch(consumer, spans, refused=_count_refused)
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
                raise _count_silent(*min(fetch.ends))
    finally:
        consumer.resume(assigned)  # a pause would outlive the assignment
        consumer.unassign()
    return {where: undecodable_problem(where, one) for where, one in fetch.undecodable.items()}


def _add(messages: list[Message], counted: Mapping[Where, Counted]) -> None:
    for message in messages:
        one, offset = counted[place_of(message)], offset_of(message)
        if offset >= one.end:  # else of a log that has replaced this one
            one.add(offset)


def _count_silent(topic: str, partition: int) -> PreflightError:
    problem = f"{topic}/{partition}: nothing came for {SILENCE_S:.0f} s; are its brokers up?"
    return PreflightError([problem])


def _count_refused(place: str, error: KafkaError) -> PreflightError:
    topic = place.rpartition("/")[0]
    reason = describe(error)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        reason = f"grant READ on topic {topic} ({reason})"
    return PreflightError([f"{place}: its records cannot be read: {reason}"])
