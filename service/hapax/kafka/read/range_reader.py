"""Records of ranges of offsets, read by consumers that join nothing.

Every read of a range goes through RangeFetch. A partition has come to its end with an
end-of-partition event or a record at or after the end, never with a count: offsets of markers, of
aborted and of compacted records are not delivered.

RangeReader       records of ranges of many partitions
AuditRangeReader  one range, under both isolation levels
count_records     how many records ranges hold
first_from        what a reader meets first: a record, an undecodable set, or the end
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from hapax.cluster.offset_moves import Unreadable
from hapax.core.errors import HapaxError, PreflightError
from hapax.core.ports import Stuck
from hapax.core.records import Coordinates, Record
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
from hapax.kafka.read.offsets_client import Isolation, OffsetsClient, reader_properties
from hapax.kafka.undecodable import UNDECODABLE, TooLarge, too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from hapax.cluster.lag import Counted
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

    Found = tuple[list[Message], set[Where]]
    """Messages, and the partitions that are read to their end by now."""

_EOF = KafkaError._PARTITION_EOF
REFUSED = FORBIDDEN | UNKNOWN_TOPIC | {KafkaError._AUTO_OFFSET_RESET}
AT_ONCE, WAIT_S, SILENCE_S = 5_000, 0.5, 20.0
AUDIT_SILENCE_S, PROBE_S = 60.0, 15.0
_UNKNOWN = -1
"""The first offset of a set whose response is too large: the client never sees it."""
_BOUNDED = {
    # What is fetched beyond the stretch is thrown away: not more than a few fetches of it.
    "queued.max.messages.kbytes": 8192,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 3,  # for TooLarge, which passes nothing on
}
FEW = 500
"""Records that are taken from the client at once where other threads must not wait for this one:
the interpreter is held for a millisecond, instead of ten."""


class ReadRecord(NamedTuple):
    """A record, and whether its headers could be read: their names may be no text."""

    record: Record
    readable: bool


def record_of(message: Message) -> ReadRecord:
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
    return ReadRecord(record, readable)


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
        self._fetched = set(self.ends)
        consumer.assign([TopicPartition(*where, spans[where][0]) for where in self.ends])

    def poll(self, wait_s: float = WAIT_S, at_once: int = AT_ONCE) -> list[Message]:
        """Return the next messages before the ends; those of one partition in order."""
        head = self._consumer.poll(wait_s)
        messages = [] if head is None else [head, *self._consumer.consume(at_once, 0)]
        kept: list[Message] = []
        before = len(self.ends)
        for message in messages:
            where: Any = (message.topic(), message.partition())
            end = self.ends.get(where)
            if end is None or where in self.undecodable:
                continue
            if (error := message.error()) is None:
                offset: Any = message.offset()
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

    def pause_done(self) -> set[Where]:
        """Fetch no more of partitions that are done by now; return them.

        The pause stays as long as the consumer.
        """
        done = self._fetched - self.ends.keys()
        self._fetched -= done
        if done:
            self._consumer.pause([TopicPartition(*where) for where in done])
        return done

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
        for messages, _done in self.messages(spans):
            if messages:
                yield _records(messages)

    def messages(self, spans: Mapping[Where, tuple[int, int]]) -> Iterator[Found]:
        """Yield them as the client has them, now and then, be there any or not."""
        if all(start >= end for start, end in spans.values()):
            return iter(())
        return _read(
            self._properties,
            spans,
            undecodable=self.undecodable,
            refused=_refused,
            failed=PreflightError,
            silence_s=SILENCE_S,
        )

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
            fetch = RangeFetch(consumer, starts, refused=_refused, undecodable=self.undecodable)
            while fetch.ends and time.monotonic() < give_up_s:
                for one in _records(fetch.poll(min(WAIT_S, within_s))):
                    found.setdefault((one.record.topic, one.record.partition), one)
                for where in found.keys() & self.undecodable.keys():
                    del self.undecodable[where]  # it comes later
                for where in fetch.ends.keys() & (found.keys() | self.undecodable.keys()):
                    del fetch.ends[where]
                for where in fetch.pause_done() - self.undecodable.keys():
                    found.setdefault(where, None)
        for where in fetch.ends if heard.reason else ():
            if reason := too_large(properties, where, starts[where][0]):
                self.undecodable[where] = Stuck(starts[where][0], reason)
        return found


def _read(
    properties: Mapping[str, Any],
    spans: Mapping[Where, tuple[int, int]],
    *,
    undecodable: dict[Where, Stuck],
    refused: Callable[[str, KafkaError], Exception],
    failed: Callable[[str], Exception],
    silence_s: float,
) -> Iterator[Found]:
    """Yield messages until all spans are read; raise what ``refused`` or ``failed`` make of it."""
    heard = TooLarge()
    with closing(build(Consumer, properties, heard)) as consumer:
        fetch = RangeFetch(consumer, spans, refused=refused, undecodable=undecodable)
        while fetch.ends:
            found = fetch.poll()
            for where in fetch.ends.keys() & undecodable.keys():
                raise failed(undecodable_problem(where, undecodable[where]))
            done = fetch.pause_done()
            if fetch.silent(silence_s):
                raise failed(_silent(fetch.ends, silence_s, heard.reason))
            yield found, done
            if found:
                fetch.heard_s = time.monotonic()  # the caller may have taken its time


def _records(messages: list[Message]) -> list[ReadRecord]:
    return [record_of(message) for message in messages]


def _refused(place: str, error: KafkaError) -> PreflightError:
    return PreflightError(f"{place}: cannot be read: {describe(error)}")


def undecodable_problem(where: Where, one: Stuck) -> str:
    place = f"{where[0]}/{where[1]}/{one.offset}"
    return (
        f"{place}: the set that begins there cannot be read ({one.reason});"
        f" hapax offsets skip {place} --dead-letter passes it"
    )


def _silent(ends: Mapping[Where, int], silence_s: float, why: str = "") -> str:
    return f"{few_named(ends)}: nothing came for {silence_s:.0f} s; {why or 'are its brokers up?'}"


def few_named(places: Iterable[Where]) -> str:
    return ", ".join(f"{topic}/{number}" for topic, number in sorted(places)[:3])


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

    def committed(self) -> Iterator[list[ReadRecord]]:
        """Yield what a read_committed reader sees."""
        start, seen = self._stretch.start, self._seen
        for messages, _done in self._read("read_committed", start, self._stretch.end):
            found = _records(messages)
            for record, _readable in found:
                seen[record.offset - start] = 1
            yield found

    def hidden(self) -> Iterator[list[int]]:
        """Read again where no committed record was found; call after ``committed`` is exhausted."""
        first, last = self._seen.find(0), self._seen.rfind(0)
        if first < 0:
            return
        start, seen = self._stretch.start, self._seen
        for messages, _done in self._read("read_uncommitted", start + first, start + last + 1):
            offsets = [offset_of(message) for message in messages]
            yield [offset for offset in offsets if not seen[offset - start]]

    def _read(self, isolation: str, start: int, end: int) -> Iterator[Found]:
        where = (self._stretch.topic, self._stretch.partition)
        return _read(
            {**self._properties, **_BOUNDED, "isolation.level": isolation},
            {where: (start, end)},
            undecodable={},
            refused=_audit_refused,
            failed=RangeReadError,
            silence_s=AUDIT_SILENCE_S,
        )


def _audit_refused(place: str, error: KafkaError) -> RangeReadError:
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        reason = "records were deleted while they were read; audit again"
    else:
        reason = f"cannot be read: {describe(error)}"
    return RangeReadError(f"{place}: {reason}")


COUNTING: Mapping[str, Any] = {
    # What is fetched beyond a stretch is thrown away.
    "queued.max.messages.kbytes": 4096,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # retention may pass the start meanwhile
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 20,
}
"""Of a consumer that counts: it queries offsets as well, so there is no further connection."""


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
            found = fetch.poll(at_once=at_once)
            _add(found, counted)
            for where in fetch.ends.keys() & fetch.undecodable.keys():
                del fetch.ends[where]
            for where in fetch.pause_done() - fetch.undecodable.keys():
                counted[where].end = ends[where]
            tell(len(found))
            if fetch.silent(SILENCE_S):
                raise PreflightError(_silent(fetch.ends, SILENCE_S))
    finally:
        consumer.resume(assigned)  # a pause would outlive the assignment
        consumer.unassign()
    return {where: undecodable_problem(where, one) for where, one in fetch.undecodable.items()}


def _add(messages: list[Message], counted: Mapping[Where, Counted]) -> None:
    for message in messages:
        one, offset = counted[place_of(message)], offset_of(message)
        if offset >= one.end:  # else of a log that has replaced this one
            one.add(offset)


def _count_refused(place: str, error: KafkaError) -> PreflightError:
    topic = place.rpartition("/")[0]
    reason = describe(error)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        reason = f"grant READ on topic {topic} ({reason})"
    return PreflightError(f"{place}: its records cannot be read: {reason}")


def first_from(settings: Settings, at: Coordinates, end: int) -> ReadRecord | Unreadable | None:
    """Return the first record from there on, and whether its headers can be read.

    ``end``: the partition's last stable offset, as it was before. None at the end for
    read_committed readers; Unreadable for a set that the client cannot decode.
    Raises PreflightError when brokers do not answer, or do not allow to read.
    """
    found = _met(settings, at)
    if not isinstance(found, Stuck):
        return found
    first = max(at.offset, found.offset)
    return Unreadable(first, _last(settings, at._replace(offset=first), end, found), found.reason)


def _last(settings: Settings, at: Coordinates, end: int, stuck: Stuck) -> int:
    """Return the last offset of a set that cannot be decoded and holds the offset ``at``.

    A fetch from any offset of a set brings the whole set, so the error that it ends in names the
    same first offset. Steps that double find an offset beyond the set, and halving its end.
    """

    def holds(offset: int) -> bool:
        met = _met(settings, at._replace(offset=offset))
        if not isinstance(met, Stuck):
            return False
        if met.offset == _UNKNOWN:  # the reason has the size, which differs from set to set
            return met.reason == stuck.reason
        return met.offset <= at.offset

    inside, step = at.offset, 1
    while inside + step < end and holds(inside + step):
        inside, step = inside + step, 2 * step
    beyond = max(inside + 1, min(inside + step, end))
    while beyond - inside > 1:
        middle = (inside + beyond) // 2
        inside, beyond = (middle, beyond) if holds(middle) else (inside, middle)
    return inside


def _met(settings: Settings, at: Coordinates) -> ReadRecord | Stuck | None:
    def refused(_place: str, error: KafkaError) -> PreflightError:
        return PreflightError(f"{at}: cannot be read: {describe(error)}")

    properties = reader_properties(settings) | {
        "enable.partition.eof": True,
        "log_level": 3,  # for TooLarge, which passes nothing on
        "auto.offset.reset": "error",
        "queued.min.messages": 1,
        "fetch.wait.max.ms": 20,
    }
    where = (at.topic, at.partition)
    spans = {where: (at.offset, sys.maxsize)}
    heard = TooLarge()
    with closing(build(Consumer, properties, heard)) as consumer:
        fetch = RangeFetch(consumer, spans, refused=refused, over={KafkaError._PARTITION_EOF})
        while not fetch.silent(PROBE_S):
            for message in fetch.poll():
                return record_of(message)
            if where in fetch.undecodable:
                return fetch.undecodable[where]
            if heard.reason:
                return Stuck(_UNKNOWN, heard.reason)
            if not fetch.ends:
                return None
    raise PreflightError(f"{at}: nothing came for {PROBE_S:.0f} s; are its brokers up?")
