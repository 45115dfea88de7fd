"""A stand-in for the client's producer: what each call raises is said beforehand."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.core.offset_commit import OffsetCommit
from hapax.core.records import Message
from hapax.kafka.produce import base, producer as kafka_producer
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.transaction import KafkaTransaction
from tests.kit.doubles import Ticking
from tests.kit.rulebook import Claim


def failing(
    code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False
) -> KafkaException:
    error = KafkaError(code, "text", fatal=fatal, retriable=retriable, txn_requires_abort=abort)
    return KafkaException(error)


class FakeProducer:
    """Notes its calls; ``fail`` holds by name what they raise, in order; None lets one pass.

    brokers  those that the next answers about metadata name
    """

    fail: dict[str, list[Exception | None]]
    brokers: Mapping[int, str] = {1: "broker-1:9092"}

    def __init__(self, *_values: object, **_named: object) -> None:
        self.calls: list[str] = []
        self.sent: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.reports: list[Callable[[Any, Any], None]] = []
        self.on: dict[str, Callable[[], None]] = {}

    def produce(self, _topic: str, value: bytes | None, *rest: Any) -> None:
        self._call("produce")
        self.sent.append(value)
        self.timestamps.append(rest[4])
        if rest[2] is not None:
            self.reports.append(rest[2])

    def list_topics(self, *_values: object, **_named: object) -> object:
        self._call("list_topics")
        return type("Metadata", (), {"cluster_id": None, "brokers": self.brokers, "topics": {}})

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_values, **_named: self._call(name)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.on.get(name, lambda: None)()
        waiting = self.fail.get(name)
        if waiting and (error := waiting.pop(0)) is not None:
            raise error


def commit_of(progress: Mapping[tuple[str, int], int]) -> OffsetCommit:
    """Return progress in the name of a live member that owns these partitions."""
    return Claim(b"member", *progress).offset_commit(progress)


def transaction(
    patch: pytest.MonkeyPatch, **fail: list[Exception | None]
) -> tuple[KafkaTransaction, FakeProducer, Ticking]:
    FakeProducer.fail = fail
    patch.setattr(kafka_producer, "Producer", FakeProducer)
    patch.setattr(base, "topic_settings", lambda *_asked: {})  # no broker to ask
    clock = Ticking()
    made = KafkaTransaction(
        ProducerConfig(
            properties={"transaction.timeout.ms": 10_000},
            required_topics=frozenset({"out"}),
            deadline_s=10.0,
        ),
        clock=clock,
        forward=lambda *_line: None,
        watch=lambda _call: nullcontext(),
    )
    made.open()
    outbox: Any = made._outbox
    return made, outbox.producer, clock


def transactional(producer: FakeProducer) -> list[str]:
    return [name for name in producer.calls if "transaction" in name and "init" not in name]


def message(value: bytes = b"v") -> Message:
    return Message("out", value, None, -1, 0, [])
