"""What Kafka reports: how far a group is, and what is in a topic."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

Isolation = Literal["read_committed", "read_uncommitted"]
_TIMEOUT_S = 30.0
_PAUSE_S = 0.05
_STARTING = frozenset({KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS})
"""What a broker that has just started answers about groups, for a second or so."""
_AT_ONCE, _TAKE_S = 5000, 0.2


class GroupReadings:
    """A consumer group on one topic, watched from outside: it is never joined."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, partitions: int) -> None:
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._stable = _consumer(bootstrap_servers, group, "read_committed")
        # Does not wait for open transactions, in which progress may be pending.
        self._at_once = _consumer(bootstrap_servers, group, "read_uncommitted")

    def close(self) -> None:
        """Close the connections."""
        self._stable.close()
        self._at_once.close()

    def committed(self, *, stable: bool = False) -> dict[int, int]:
        """Return the committed offsets by partition, 0 where there is none.

        ``stable``: wait for the outcome of transactions that carry progress.
        """
        asked = self._stable if stable else self._at_once
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                answers = asked.committed(self._partitions, _TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in _STARTING or time.monotonic() > deadline_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return {one.partition: max(0, one.offset) for one in answers}

    def ends(self) -> dict[int, int]:
        """Return the last stable offset of each partition."""
        return {
            one.partition: self._stable.get_watermark_offsets(one, _TIMEOUT_S)[1]
            for one in self._partitions
        }

    def lag(self, *, stable: bool = False) -> int:
        """Return the offsets between what is committed and the last stable offsets."""
        committed = self.committed(stable=stable)
        return sum(end - committed[partition] for partition, end in self.ends().items())


def read_back(bootstrap_servers: str, topic: str, isolation: Isolation) -> Iterator[Message]:
    """Yield all records from the first offset to the end, with a fresh consumer.

    Records of one partition come in order.
    """
    consumer = _consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}", isolation)
    try:
        partitions = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        unfinished = set(partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        while unfinished:
            messages = consumer.consume(_AT_ONCE, _TAKE_S)
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


class OpenTransactions:
    """Which transactions are open on a topic, asked again and again at little cost."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._stable = _consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}", "read_committed")
        self._all = _consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}", "read_uncommitted")

    def close(self) -> None:
        """Close the connections."""
        self._stable.close()
        self._all.close()

    def open(self) -> set[tuple[int, int]]:
        """Return partition and last stable offset wherever a transaction is open.

        The stable offset comes first: what ends between the two answers is taken for open.
        """
        found: set[tuple[int, int]] = set()
        for one in self._partitions:
            stable = self._stable.get_watermark_offsets(one, _TIMEOUT_S)[1]
            if self._all.get_watermark_offsets(one, _TIMEOUT_S)[1] > stable:
                found.add((one.partition, stable))
        return found

    def catch(self, timeout_s: float) -> bool:
        """Return as soon as one seems to be open; return whether one was within the time."""
        deadline_s = time.monotonic() + timeout_s
        while not self.open():
            if time.monotonic() > deadline_s:
                return False
        return True


def lasts(bootstrap_servers: str, topic: str) -> list[Message]:
    """Return the last record of each partition that has one; for topics without transactions."""
    consumer = _consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}", "read_committed")
    try:
        partitions = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)[1]
            for number in partitions
        }
        asked = [TopicPartition(topic, number, end - 1) for number, end in ends.items() if end]
        consumer.assign(asked)
        found: dict[int | None, Message] = {}
        deadline_s = time.monotonic() + _TIMEOUT_S
        while len(found) < len(asked) and time.monotonic() < deadline_s:
            message = consumer.poll(_TAKE_S)
            if message is not None and message.error() is None:
                found[message.partition()] = message
    finally:
        consumer.close()
    return list(found.values())


def _consumer(bootstrap_servers: str, group: str, isolation: Isolation) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
