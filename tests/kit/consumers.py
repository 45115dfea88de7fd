"""A stand-in for the client's consumer: what it hands out and answers is said beforehand."""

import struct
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from hapax.core.span import SpanWords
from hapax.kafka.consume import client as kafka_consumer
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.read.offsets_client import EARLIEST
from tests.kit.doubles import Ticking


class FakeConsumer:
    """Holds messages, an assignment, committed offsets and watermarks; notes seeks."""

    def __init__(self, *_values: object, **_named: object) -> None:
        self.queue: list[Any] = []
        self.ours: list[tuple[str, int]] = [("in", 0), ("in", 1)]
        self.offsets: dict[tuple[str, int], int] = {}
        self.words: dict[tuple[str, int], str] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.cluster: str | None = None
        self.fault_of_topic: KafkaError | None = None
        self.brokers = {1: "broker-1:9092"}
        self.marks = (0, 100)
        self.seeks: list[tuple[str, int, int]] = []
        self.sought: list[int | None] = []
        self.paused: set[tuple[str, int]] = set()
        self.calls: list[str] = []
        self.fail: dict[str, list[Exception]] = {}
        self.before_poll: Callable[[], None] = lambda: None
        self.metadata = metadata(3, "member-1")

    def subscribe(self, _topics: list[str], **_callbacks: object) -> None:
        self._call("subscribe")

    def poll(self, _wait_s: float) -> Any:
        self._call("poll")
        self.before_poll()
        return self.queue.pop(0) if self.queue else None

    def consume(self, count: int, _wait_s: float) -> list[Any]:
        self._call("consume")
        found, self.queue = self.queue[:count], self.queue[count:]
        return found

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*where) for where in self.ours]

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._call("committed")
        places = [(p.topic, p.partition) for p in wanted]
        return [
            TopicPartition(
                *where,
                self.offsets.get(where, -1001),
                self.words.get(where, ""),
                self.epochs.get(where, -1),
            )
            for where in places
        ]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:  # noqa: FBT001 - the client's
        self._call("commit")
        for one in offsets:
            where = (one.topic, one.partition)
            self.offsets[where], self.words[where] = one.offset, one.metadata or ""
        return offsets

    def offsets_for_times(
        self, wanted: list[TopicPartition], **_named: object
    ) -> list[TopicPartition]:
        self._call("offsets_for_times")
        low, high = self.marks
        return [
            TopicPartition(one.topic, one.partition, low if one.offset == EARLIEST else high)
            for one in wanted
        ]

    def seek(self, where: TopicPartition) -> None:
        self._call("seek")
        self.seeks.append((where.topic, where.partition, where.offset))
        self.sought.append(where.leader_epoch)

    def pause(self, places: list[TopicPartition]) -> None:
        """Keep the flag whatever becomes of the assignment, as the client does."""
        self.paused.update((p.topic, p.partition) for p in places)

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused.difference_update((p.topic, p.partition) for p in places)

    def incremental_assign(self, _places: object) -> None:
        self._call("incremental_assign")

    def incremental_unassign(self, _places: object) -> None:
        self._call("incremental_unassign")

    def consumer_group_metadata(self) -> bytes:
        return self.metadata

    def list_topics(self, topic: str | None = "in", **_named: object) -> Any:
        self._call("list_topics")
        named = dict[str, Any](partitions=dict.fromkeys((0, 1)), error=self.fault_of_topic)
        topics = dict.fromkeys([topic] if topic else ["in", "more"], type("T", (), named))
        told = {"topics": topics, "cluster_id": self.cluster, "brokers": self.brokers}
        return type("Metadata", (), told)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fail.get(name):
            raise self.fail[name].pop(0)


def source(
    patch: pytest.MonkeyPatch, *, start: str | SpanWords = "earliest"
) -> tuple[KafkaSource, FakeConsumer, Ticking]:
    patch.setattr(kafka_consumer, "Consumer", FakeConsumer)
    clock = Ticking()
    made = KafkaSource(
        {"group.id": "app"},
        ["in"],
        start=start,
        logger=SimpleNamespace(log=lambda *_line: None),  # it drops them
        clock=clock,
        watch=lambda _call: nullcontext(),
    )
    consumer: Any = made._consumer.client
    return made, consumer, clock


def take(kafka: Any, *messages: Any) -> Any:
    """Return the batch that a source of FakeConsumer takes of these messages and events."""
    kafka._consumer.client.queue = list(messages)
    return kafka.take(10, 0.1)


def metadata(generation: int, member: str) -> bytes:
    return b"CGMDv2:" + struct.pack("=i", generation) + b"app\0" + member.encode() + b"\0\0"


def message(
    offset: int, *, partition: int = 0, value: bytes = b"v", epoch: int | None = None
) -> Message:
    where: dict[str, Any] = {"topic": "in", "partition": partition, "offset": offset}
    if epoch is not None:
        where["leader_epoch"] = epoch
    return Message(**where, key=b"k", value=value, timestamp=(1, 7))


NO_OFFSET = "no previously committed offset available: Local: No offset stored"
OUT_OF_RANGE = (
    "fetch failed due to requested offset not available on the broker:"
    " Broker: Offset out of range (broker 1)"
)
TRUNCATED = (
    "Partition log truncation detected at offset 22 (leader epoch 3): broker end offset is 10"
    " (offset leader epoch 3). Reset to INVALID.: Local: Partition log truncation detected (broker"
    " 1)"
)


def event(
    code: int,
    offset: int = -1001,
    *,
    partition: int = 0,
    fatal: bool = False,
    text: str = NO_OFFSET,
) -> Message:
    """Return an event in place of a message, in the client's words (librdkafka 2.16)."""
    error = KafkaError(code, text, fatal=fatal)
    return Message(topic="in", partition=partition, offset=offset, error=error)


class Undecodable:
    """A message one of whose header names is not UTF-8."""

    def __init__(self, inner: Message) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def headers(self) -> Any:
        return b"\xff".decode()
