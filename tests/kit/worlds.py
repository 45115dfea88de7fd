"""Source and Transaction on both sides of the contract: in memory, and on a real broker."""

import json
import time
from typing import Any, Protocol

from hapax.core.record_path import Batch
from hapax.core.records import Message, Progress, Record
from hapax.kafka.consume.client import GroupConsumer
from hapax.sandbox import Sandbox
from hapax.testing.source import MemorySource, MemoryTransaction
from tests.kit.committing import Committing
from tests.kit.parts import Parts, transaction_of
from tests.kit.rulebook import PARTITIONS, Member, MemoryTopics
from tests.kit.rulebook_kafka import KafkaTopics
from tests.kit.topics import FOREVER, Given, ends, produce_aborted
from tests.kit.waiting import await_

BYTES_MAX = 900_000
"""Larger messages are refused by the sender, larger than half of it by the broker."""
INTAKES_MAX = 600


class World(Protocol):
    """A broker with an input of two partitions and an output of one, and one worker's ports."""

    topic: str
    target: str

    @property
    def source(self) -> Member:
        """Its source."""

    @property
    def transaction(self) -> Committing:
        """Its producer; not yet open."""

    def join(self) -> None:
        """Begin to be a member of the group."""

    def twin(self) -> Committing:
        """Return another producer under the same name."""

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Append input."""

    def hide(self, partition: int = 0) -> None:
        """Append offsets that no reader sees."""

    def outputs(self) -> list[Record]:
        """Return what a reader of committed records sees."""

    def committed(self) -> Progress:
        """Return the group's offsets, as somebody outside of it sees them."""


class MemoryWorld(MemoryTopics):
    """All in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.bytes_max = BYTES_MAX
        self.broker.rejects = lambda message: len(message.value or b"") > BYTES_MAX // 2
        self.source = MemorySource(self.broker, "w", wait=self._clock.wait)
        self.transaction = self.twin()

    def join(self) -> None:
        """Nothing: the first intake joins."""

    def twin(self) -> Committing:
        return Committing(MemoryTransaction(self.broker, "app-w", clock=self._clock), self.source)

    def hide(self, partition: int = 0) -> None:
        self.broker.hide((self.topic, partition), 2)


class KafkaWorld(KafkaTopics):
    """Our own adapters on the sandbox's broker. ``fast``: HAPAX_FAST, the way of records.

    ``producer``: further properties of the clients.
    """

    def __init__(self, sandbox: Sandbox, fast: str = "auto", **producer: object) -> None:
        super().__init__(sandbox, FOREVER | {"max.message.bytes": str(BYTES_MAX // 2)})
        self._parts = Parts(
            self._bootstrap,
            self.topic,
            self.target,
            self._app,
            HAPAX_KAFKA__PROPERTIES=json.dumps({"message.max.bytes": BYTES_MAX, **producer}),
            HAPAX_FAST=fast,
            HAPAX_DEDUP__ID="key",
        )
        self.source: Member = self._parts.source
        self.transaction = self._parts.transaction
        self._exits.callback(self._parts.source.close)
        self._exits.callback(self.transaction.close)

    def join(self) -> None:
        self._parts.source.subscribe()

    def twin(self) -> Committing:
        twin = transaction_of(self._parts.settings, self._parts.source)
        self._exits.callback(twin.close)
        return Committing(twin, self._parts.source)

    def hide(self, partition: int = 0) -> None:
        before = ends(self._bootstrap, self.topic)[partition]
        produce_aborted(self._bootstrap, self.topic, Given(b"never", partition=partition))
        # The producer is answered before the markers are in the log.
        await_(
            lambda: ends(self._bootstrap, self.topic)[partition] > before + 1,
            10,
            lambda: "no marker",
        )


def consumer_of(world: KafkaWorld) -> GroupConsumer:
    """Return what the world's source calls the client with."""
    source: Any = world.source
    consumer: GroupConsumer = source._consumer
    return consumer


def take(world: World, count: int, *, records_max: int = 100) -> list[Batch]:
    """Take until so many records came; return the intakes that brought any."""
    batches: list[Batch] = []
    for _ in range(INTAKES_MAX):
        batch = world.source.take(records_max, 0.1)
        if batch.records or batch.next:
            batches.append(batch)
        if sum(len(each.records) for each in batches) >= count:
            return batches
    raise AssertionError(f"{count} records did not come")


def joined(world: World) -> World:
    world.join()
    deadline_s = time.monotonic() + 60
    while len(world.source.assignment()) < PARTITIONS:
        world.source.attend(0.1)
        assert time.monotonic() < deadline_s, "no assignment"
    return world


def message(world: World, value: bytes | None) -> Message:
    return Message(world.target, value, b"key", -1, 1_700_000_000_000, [("h", b"1"), ("n", None)])
