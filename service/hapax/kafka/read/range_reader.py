"""Records of spans of many partitions, read by a consumer that joins nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.errors import PreflightError
from hapax.core.ports import Stuck
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC, describe
from hapax.kafka.properties import build
from hapax.kafka.read.offset_client import reader_properties
from hapax.kafka.read.records import record_of
from hapax.kafka.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from hapax.core.records import Record
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

    Isolation = Literal["read_committed", "read_uncommitted"]

_EOF = KafkaError._PARTITION_EOF
AT_ONCE, WAIT_S, SILENCE_S = 5_000, 0.5, 20.0


class ReadRecord(NamedTuple):
    """A record, and whether its headers could be read: their names may be no text."""

    record: Record
    readable: bool


class RangeReader:
    """Reads, per partition, from a first offset up to but without a last one.

    Raises PreflightError when brokers do not let us, or fall silent.

    undecodable  sets that the client could not decode; nothing beyond them was read
    """

    def __init__(
        self, settings: Settings, isolation: Isolation = "read_committed", **more: Any
    ) -> None:
        self.undecodable: dict[Where, Stuck] = {}
        self._properties = {
            **reader_properties(settings),
            # What is fetched beyond a span is thrown away.
            "queued.max.messages.kbytes": 16_384,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may pass our start while we read
            "isolation.level": isolation,
            **more,
        }

    def read(self, spans: Mapping[Where, tuple[int, int]]) -> Iterator[list[ReadRecord]]:
        """Yield records, some at a time; those of one partition in order.

        It ends when each partition has come to its end, which is an end-of-partition event or a
        record behind it, never a count: offsets of markers are not delivered.
        """
        ends = {where: end for where, (start, end) in spans.items() if start < end}
        if not ends:
            return
        consumer = build(Consumer, self._properties, None)
        try:
            consumer.assign([TopicPartition(*where, spans[where][0]) for where in ends])
            heard_s = time.monotonic()
            while ends:
                head = consumer.poll(WAIT_S)
                messages = [] if head is None else [head, *consumer.consume(AT_ONCE, 0)]
                found, done = _within(messages, ends, self.undecodable)
                for where in ends.keys() & self.undecodable.keys():
                    raise PreflightError([undecodable_problem(where, self.undecodable[where])])
                if done:
                    consumer.pause([TopicPartition(*where) for where in done])
                    ends = {where: end for where, end in ends.items() if where not in done}
                if messages:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > SILENCE_S:
                    raise PreflightError([_silent(ends)])
                if found:
                    yield found
        finally:
            consumer.close()

    def firsts(
        self, starts: Mapping[Where, tuple[int, int]], within_s: float
    ) -> dict[Where, ReadRecord | None]:
        """Return, per partition, the first record of its span; None where the span holds none.

        A partition whose broker is silent for ``within_s`` is left out, and so is one whose first
        record cannot be decoded (``undecodable``).
        """
        wanted = {where for where, (start, end) in starts.items() if start < end}
        found: dict[Where, ReadRecord | None] = {}
        if not wanted:
            return found
        properties = {**self._properties, "queued.min.messages": 1, "fetch.wait.max.ms": 20}
        consumer = build(Consumer, properties, None)
        give_up_s = time.monotonic() + within_s
        try:
            consumer.assign([TopicPartition(*where, starts[where][0]) for where in wanted])
            while wanted and time.monotonic() < give_up_s:
                head = consumer.poll(min(WAIT_S, within_s))
                messages = [] if head is None else [head, *consumer.consume(AT_ONCE, 0)]
                within = {where: starts[where][1] for where in wanted}
                seen, done = _within(messages, within, self.undecodable)
                for one in seen:
                    found.setdefault((one.record.topic, one.record.partition), one)
                found |= dict.fromkeys(done - found.keys())
                for where in found.keys() & self.undecodable.keys():
                    del self.undecodable[where]  # it comes later
                over = wanted & (found.keys() | self.undecodable.keys())
                if over:
                    consumer.pause([TopicPartition(*where) for where in over])
                wanted -= over
        finally:
            consumer.close()
        return found


def undecodable_problem(where: Where, one: Stuck) -> str:
    """Return what is to be done about a set that cannot be decoded."""
    place = f"{where[0]}/{where[1]}/{one.offset}"
    return (
        f"{place}: the set that begins there cannot be decoded ({one.reason});"
        f" hapax offsets skip {place} --dead-letter passes it"
    )


def _within(
    messages: list[Message], ends: Mapping[Where, int], undecodable: dict[Where, Stuck]
) -> tuple[list[ReadRecord], set[Where]]:
    """Return the records before the ends, and the partitions in which no more can come."""
    found: list[ReadRecord] = []
    done: set[Where] = set()
    for message in messages:
        where = (message.topic() or "", message.partition() or 0)
        if where not in ends or where in done or where in undecodable:
            continue
        error, offset = message.error(), message.offset() or 0
        if error is None:
            if offset < ends[where]:
                found.append(ReadRecord(*record_of(message)))
            if offset + 1 >= ends[where]:
                done.add(where)
        elif error.code() in UNDECODABLE | {_EOF}:
            if offset >= ends[where]:
                done.add(where)
            elif error.code() != _EOF and offset >= 0:
                undecodable[where] = Stuck(offset, describe(error))
        elif error.code() in FORBIDDEN | UNKNOWN_TOPIC or error.fatal():
            raise PreflightError([f"{where[0]}/{where[1]}: cannot be read: {describe(error)}"])
    return found, done


def _silent(ends: Mapping[Where, int]) -> str:
    places = ", ".join(f"{topic}/{number}" for topic, number in sorted(ends)[:3])
    return f"{places}: nothing came for {SILENCE_S:.0f} s; are its brokers up?"
