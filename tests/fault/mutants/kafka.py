"""Mutants of the talk with Kafka: transactions, group metadata, positions."""

from __future__ import annotations

import struct
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hapax.core.errors import BatchAbortedError
from hapax.core.offset_commit import OffsetCommit
from hapax.kafka import properties as kafka_clients
from hapax.kafka.consume.client import parse_metadata
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.consume.topic_check import TopicIdentity
from hapax.kafka.produce.producer import Outbox
from hapax.kafka.produce.transaction import CALL_TIMEOUT_S, KafkaTransaction
from hapax.wiring import builders as parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError


def offsets_outside_the_transaction() -> None:
    """Commit the offsets through the consumer, just before the transaction."""

    def offset_commit(
        self: KafkaSource, progress: Mapping[tuple[str, int], int], marks: object = None
    ) -> OffsetCommit:
        commit = OffsetCommit([self.offset(at, offset) for at, offset in progress.items()], b"")
        self.commit(commit)
        return commit

    def send_offsets(self: KafkaTransaction, commit: OffsetCommit) -> None:
        pass

    KafkaSource.offset_commit = offset_commit  # type: ignore[method-assign]
    KafkaTransaction.send_offsets = send_offsets  # type: ignore[method-assign]


def no_group_metadata() -> None:
    """Name the group, but neither member nor generation, as before KIP-447."""

    def member(self: KafkaSource) -> bytes:
        return b"CGMDv2:" + struct.pack("=i", -1) + self._consumer.group.encode() + b"\0\0\1"

    KafkaSource.member = member  # type: ignore[method-assign]


def generation_minus_one() -> None:
    """Read the group metadata once, before the group has given any."""
    subscribe = KafkaSource.subscribe
    early: list[bytes] = []

    def noting(self: KafkaSource) -> None:
        early.append(bytes(self._consumer.client.consumer_group_metadata()))
        subscribe(self)

    def member(self: KafkaSource) -> bytes:
        assert parse_metadata(early[0])[0] == -1
        return early[0]

    KafkaSource.subscribe = noting  # type: ignore[method-assign]
    KafkaSource.member = member  # type: ignore[method-assign]


def read_uncommitted() -> None:
    """Read what may be aborted yet."""
    _change_consumer({"isolation.level": "read_uncommitted"})


def reset_to_latest() -> None:
    """Let the client jump to the end where the group has no offset, and do not look where it is."""
    _change_consumer({"auto.offset.reset": "latest"})

    def trust(self: TopicIdentity, partitions: object) -> None:
        pass

    TopicIdentity.check = trust  # type: ignore[method-assign]


def random_transactional_id() -> None:
    """Take a new transactional id with every start: correct, but nobody ends what a kill left."""
    properties = kafka_clients.producer_properties

    def changed(settings: Any, **how: Any) -> dict[str, Any]:
        return properties(settings, **how) | {
            "transactional.id": f"{settings.app}-{uuid.uuid4().hex}"
        }

    parts.producer_properties = changed  # type: ignore[attr-defined]


def ignored_produce_exceptions() -> None:
    """Go on when the client refuses a record, as when its queue is full."""
    begin = Outbox.__init__

    def careless(self: Outbox, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self.producer = _Careless(self.producer)  # type: ignore[assignment]

    Outbox.__init__ = careless  # type: ignore[method-assign]


class _Careless:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def produce(self, *arguments: Any) -> None:
        with suppress(Exception):
            self._producer.produce(*arguments)


def ignored_delivery_reports() -> None:
    """Never look at what became of a record: harmless, because the commit fails then."""

    def deaf(_error: KafkaError | None, _message: object) -> None:
        return

    def reporter(self: Outbox, index: int, topic: str, placed: object) -> Callable[..., None]:
        return deaf

    Outbox._reporter = reporter  # type: ignore[method-assign]


def abort_after_commit_timeout() -> None:
    """Take a commit without answer for one that has failed."""

    def commit(self: KafkaTransaction) -> None:
        outbox = self._producer()
        error = self._call(outbox, "commit_transaction", CALL_TIMEOUT_S)
        if error is None:
            self.doubts = outbox.log.end()
            return
        self._call(outbox, "abort_transaction", CALL_TIMEOUT_S)
        self.doubts = ["a new producer, so that only the wrong belief is wrong"]
        raise BatchAbortedError("the commit has failed", resolved=True)

    KafkaTransaction.commit = commit  # type: ignore[method-assign]


def _change_consumer(more: dict[str, Any]) -> None:
    properties = kafka_clients.consumer_properties

    def changed(settings: Any) -> dict[str, Any]:
        return properties(settings) | more

    parts.consumer_properties = changed  # type: ignore[attr-defined]
