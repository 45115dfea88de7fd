"""A Kafka broker in memory: logs, one consumer group, transactions, and requests that come late.

What the ports in memory_kafka.py talk to; tests and the simulator look inside. It keeps the rules
that the promise rests on: epochs fence producers, generations fence members, outputs and offsets
of a transaction appear together, and a request sent twice is believed as long as the epoch is the
same (KAFKA-17754).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from service.core.errors import BatchAbortedError, ProducerDeadError
from service.core.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from service.core.ports import Message
    from service.core.records import Headers, Progress, TopicPartition


WAITS_MAX = 2
"""Waits for a stable offset within one transaction timeout."""


class Member(msgspec.Struct):
    """What the group knows of a member: its target, and the generation it has heard of."""

    target: frozenset[TopicPartition] = frozenset()
    generation: int = -1


class Shift(msgspec.Struct):
    """What a member learns when it asks the group; a rebalance may give it nothing."""

    rebalanced: bool
    assigned: list[TopicPartition]
    revoked: list[TopicPartition]
    lost: list[TopicPartition]


class Ongoing(msgspec.Struct):
    """The newest producer of a transactional id, and what its open transaction holds.

    late_offsets, late_end: requests of an earlier transaction that are still under way.
    """

    epoch: int = -1
    messages: list[Message] = msgspec.field(default_factory=list)
    offsets: Progress = msgspec.field(default_factory=dict)
    late_offsets: Progress | None = None
    late_end: bool | None = None  # True: a commit, False: an abort
    awaited: int = 0


class MemoryBroker:
    """Topics by name and number of partitions; ``inputs`` are what the group subscribes to.

    committed  the group's offsets
    rejects    a message for which this is true makes the commit of its transaction fail
    bytes_max  a larger value is refused when it is sent
    """

    def __init__(self, topics: Mapping[str, int], *, inputs: Iterable[str]) -> None:
        self.committed: Progress = {}
        self.rejects: Callable[[Message], bool] = lambda _message: False
        self.bytes_max: int | None = None
        self._partitions = dict(topics)
        self._logs: dict[TopicPartition, list[Record | None]] = {
            (topic, number): [] for topic, count in topics.items() for number in range(count)
        }
        self._inputs = [where for where in self._logs if where[0] in set(inputs)]
        self._members: dict[str, Member] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._generation = 0
        self._producers: dict[str, Ongoing] = {}

    # -- logs -----------------------------------------------------------------------------

    def write(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> int:
        """Append a record from outside; return its offset."""
        log = self._logs[(topic, partition)]
        log.append(Record(topic, partition, len(log), key, value, headers, timestamp_ms))
        return len(log) - 1

    def hide(self, where: TopicPartition, count: int = 1) -> None:
        """Append offsets that no reader sees: control records and aborted data."""
        self._logs[where] += [None] * count

    def fetch(self, where: TopicPartition, offset: int, records_max: int) -> list[Record]:
        """Return visible records from ``offset`` on."""
        found = (entry for entry in self._logs[where][offset:] if entry is not None)
        return [record for record, _ in zip(found, range(records_max), strict=False)]

    def records(self, topic: str) -> list[Record]:
        """Return all that a ``read_committed`` reader of a topic sees, by partition, in order."""
        places = [where for where in self._logs if where[0] == topic]
        return [entry for where in places for entry in self._logs[where] if entry is not None]

    def ends(self) -> Progress:
        """Return the ends of all input partitions."""
        return {where: len(self._logs[where]) for where in self._inputs}

    # -- group ----------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Add a member; partitions are dealt anew."""
        self._members[name] = Member()
        self._deal()

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout or a clean farewell does."""
        if self._members.pop(name, None) is not None:
            self._owners = {where: owner for where, owner in self._owners.items() if owner != name}
            self._deal()

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Tell a member what to give up and what it gets: only what nobody else still holds."""
        lost: list[TopicPartition] = []
        if name not in self._members:
            lost, owned = sorted(owned), frozenset()
            self.join(name)
        member = self._members[name]
        rebalanced = member.generation != self._generation
        member.generation = self._generation
        revoked = sorted(owned - member.target)
        for where in revoked:
            self._owners.pop(where, None)
        assigned = sorted(member.target - owned - self._owners.keys())
        self._owners.update(dict.fromkeys(assigned, name))
        return Shift(rebalanced or bool(assigned), assigned, revoked, lost)

    def generation(self, name: str) -> int:
        """Return the generation that a member has last heard of; -1 when it is none."""
        member = self._members.get(name)
        return -1 if member is None else member.generation

    def pending(self, where: TopicPartition) -> bool:
        """Whether an open transaction holds an offset here: then there is no stable answer.

        A transaction that was waited for twice has timed out: it is aborted and its producer
        fenced.
        """
        holders = [holder for holder in self._producers.values() if where in holder.offsets]
        for holder in holders:
            holder.awaited += 1
            if holder.awaited > WAITS_MAX:
                self._end(holder, commit=False)
                holder.epoch += 1
        return bool(holders)

    def _deal(self) -> None:
        self._generation += 1
        names = sorted(self._members)
        for place, name in enumerate(names):
            self._members[name].target = frozenset(self._inputs[place :: len(names)])

    # -- transactions ---------------------------------------------------------------------

    def init_producer(self, transactional_id: str) -> int:
        """Abort what the predecessor left, fence it, and return the new epoch."""
        producer = self._producers.setdefault(transactional_id, Ongoing())
        self._end(producer, commit=False)
        producer.epoch += 1
        producer.late_offsets = producer.late_end = None
        return producer.epoch

    def add_messages(self, name: tuple[str, int], messages: Iterable[Message]) -> None:
        """Take outputs into the open transaction of ``(transactional id, epoch)``."""
        self._producer(name).messages += messages

    def add_offsets(
        self, name: tuple[str, int], member: tuple[str, int], progress: Progress
    ) -> None:
        """Take progress into the transaction; refuse all but live members of this generation."""
        producer = self._producer(name)
        self._arrive_end(producer)
        if member[0] not in self._members or member[1] != self._generation:
            raise BatchAbortedError("ILLEGAL_GENERATION")
        producer.offsets.update(progress)

    def end_transaction(self, name: tuple[str, int], *, commit: bool) -> None:
        """Make the transaction visible, or none of it."""
        producer = self._producer(name)
        if producer.late_offsets is not None:
            producer.offsets.update(producer.late_offsets)
            producer.late_offsets = None
        self._arrive_end(producer)
        self._end(producer, commit=commit)

    def send_late(
        self, name: tuple[str, int], *, offsets: Progress | None = None, end: bool | None = None
    ) -> None:
        """Keep a copy of a request under way; it arrives inside the next transaction.

        An EndTxn between its outputs and its offsets, offsets behind its own: the two moments at
        which it does most harm. A new epoch makes the broker refuse it.
        """
        producer = self._producer(name)
        producer.late_offsets = producer.late_offsets if offsets is None else dict(offsets)
        producer.late_end = producer.late_end if end is None else end

    def _producer(self, name: tuple[str, int]) -> Ongoing:
        producer = self._producers[name[0]]
        if producer.epoch != name[1]:
            raise ProducerDeadError("PRODUCER_FENCED: there is a newer epoch", fenced=True)
        return producer

    def _arrive_end(self, producer: Ongoing) -> None:
        late, producer.late_end = producer.late_end, None
        if late is not None:
            self._end(producer, commit=late)

    def _end(self, producer: Ongoing, *, commit: bool) -> None:
        touched = set()
        for message in producer.messages:
            where = (message.topic, self._partition(message))
            log = self._logs[where]
            touched.add(where)
            log.append(_stored(message, where, len(log)) if commit else None)
        for where in sorted(touched):
            self.hide(where)
        if commit:
            self.committed.update(producer.offsets)
        producer.messages, producer.offsets, producer.awaited = [], {}, 0

    def _partition(self, message: Message) -> int:
        if message.partition >= 0:
            return message.partition
        return crc32(message.key or b"") % self._partitions[message.topic]


def _stored(message: Message, where: TopicPartition, offset: int) -> Record:
    headers = tuple(message.headers)
    return Record(*where, offset, message.key, message.value, headers, message.timestamp_ms)
