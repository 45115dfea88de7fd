"""A Kafka broker in memory: logs, one consumer group, transactions, and requests that come late.

What the ports in testing/source.py talk to; tests and the simulator look inside. It keeps the rules
that the promise rests on: epochs fence producers, the group fences members, outputs and offsets
of a transaction appear together, readers stop at the last stable offset, and a request sent twice
is believed as long as the epoch is the same (KAFKA-17754). The contract suite holds each of these
rules against a real broker.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from hapax.core.errors import ProducerDeadError
from hapax.core.records import Record
from hapax.testing.group import InstantGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.crash_markers import Marks
    from hapax.core.ports import Clock, Message
    from hapax.core.records import Headers, Progress, TopicPartition
    from hapax.testing.group import MemoryGroup, Shift

    Place = TopicPartition | str
    Name = tuple[str, int]

OFFSETS = "offsets"
"""Represents the group's offsets among a transaction's partitions."""


class MemoryLog:
    """Offsets in order. What is aborted, and every marker, keeps its offset and is never read.

    hidden  aborted records so far
    """

    def __init__(self, where: TopicPartition) -> None:
        self.hidden = 0
        self._where = where
        self._entries: list[Record | None] = []
        self._open: dict[str, list[int]] = {}

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self._entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: no ``read_committed`` reader sees anything at or above it."""
        return min((held[0] for held in self._open.values()), default=len(self._entries))

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        producer: str | None = None,
    ) -> int:
        """Append a record, into the producer's open transaction when one is named."""
        offset = len(self._entries)
        self._entries.append(Record(*self._where, offset, key, value, headers, timestamp_ms))
        if producer is not None:
            self._open.setdefault(producer, []).append(offset)
        return offset

    def produce(self, message: Message, producer: str) -> int:
        """Append an output to the producer's open transaction."""
        return self.append(
            message.value,
            key=message.key,
            headers=tuple(message.headers),
            timestamp_ms=0 if message.timestamp_ms is None else message.timestamp_ms,
            producer=producer,
        )

    def mark(self, producer: str, *, commit: bool) -> list[Record]:
        """Write the marker that ends the producer's transaction; return what becomes visible."""
        held = self._open.pop(producer, [])
        found = [record for at in held if (record := self._entries[at]) is not None]
        if not commit:
            self.hidden += len(held)
            for offset in held:
                self._entries[offset] = None
        self._entries.append(None)
        return found if commit else []

    def hide(self, count: int) -> None:
        """Append offsets that no reader sees."""
        self._entries += [None] * count

    def remove(self, offset: int) -> None:
        """Remove a record as the log cleaner does: its offset stays, nothing is read there."""
        self._entries[offset] = None

    def fetch(self, offset: int, records_max: int) -> list[Record]:
        """Return what a ``read_committed`` reader gets from ``offset`` on."""
        there = self._entries[offset : self.stable_end]
        return list(islice((entry for entry in there if entry is not None), records_max))

    def at(self, offset: int) -> Record | None:
        """Return the record that a ``read_committed`` reader finds at an offset."""
        return self._entries[offset] if 0 <= offset < self.stable_end else None


class InvalidTransactionStateError(ProducerDeadError):
    """The request does not fit what the coordinator knows of the transaction."""


class Ongoing(msgspec.Struct):
    """The newest producer of a transactional id, and its transaction.

    state      ``empty``, ``ongoing``, ``committed`` or ``aborted``
    places     the partitions registered with it
    sequences  by partition, how many messages the producer has written in its life
    due_s      when the coordinator aborts it
    late_offsets, late_end: requests of an earlier transaction that are still under way
    """

    epoch: int = -1
    state: str = "empty"
    places: dict[Place, None] = msgspec.field(default_factory=dict)
    offsets: Progress = msgspec.field(default_factory=dict)
    marks: Marks = msgspec.field(default_factory=dict)
    sequences: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    due_s: float = math.inf
    late_offsets: Progress | None = None
    late_end: bool | None = None  # True: a commit, False: an abort


class MemoryCoordinator:
    """Transactions over ``logs`` and the group's offsets. ``Name``: transactional id and epoch.

    committed  the group's offsets; ``beside``: the marks in the metadata of some
    watch      called at each commit: with the records that it made visible, and its offsets
    expired    transactions that timed out
    clock      without one none ever does; otherwise after ``timeout_s``, at the next of the
               coordinator's scans, which are ``scan_s`` apart
    """

    def __init__(
        self,
        logs: dict[TopicPartition, MemoryLog],
        group: MemoryGroup,
        *,
        clock: Clock | None,
        timeout_s: float,
        scan_s: float,
    ) -> None:
        self.committed: Progress = {}
        self.beside: Marks = {}
        self.group = group
        self.logs = logs
        self.watch: Callable[[Sequence[Record], Progress], None] = lambda _records, _offsets: None
        self.expired = 0
        self._producers: dict[str, Ongoing] = {}
        self._clock = clock
        self._timeout_s = timeout_s
        self._scan_s = scan_s
        self._due_s = math.inf

    def init_producer(self, transactional_id: str) -> int:
        """Abort what the predecessor left, fence it, and return the new epoch."""
        producer = self._producers.setdefault(transactional_id, Ongoing())
        self._fence(transactional_id, producer)
        return producer.epoch

    def register(self, name: Name, places: Iterable[Place]) -> None:
        """Add partitions, or OFFSETS, to the transaction; the first of them starts it."""
        producer = self._producer(name)
        added = dict.fromkeys(places)
        if OFFSETS in added:
            self._arrive_end(name[0], producer)
        if producer.state != "ongoing":
            producer.state = "ongoing"
            if self._clock is not None:
                producer.due_s = self._clock.monotonic() + self._timeout_s
                if self._scan_s:
                    producer.due_s = math.ceil(producer.due_s / self._scan_s) * self._scan_s
                self._due_s = min(self._due_s, producer.due_s)
        producer.places.update(added)

    def produce(
        self, name: Name, where: TopicPartition, first: int, messages: Sequence[Message]
    ) -> None:
        """Append outputs that the producer has numbered from ``first``; existing ones stay.

        Raises InvalidTransactionStateError when the partition is not in the open transaction.
        """
        producer = self._producer(name)
        written = producer.sequences.get(where, 0)
        if first + len(messages) <= written:
            return
        if where not in producer.places:
            raise InvalidTransactionStateError("Produce: INVALID_TXN_STATE")
        producer.sequences[where] = first + len(messages)
        for message in messages:
            self.logs[where].produce(message, name[0])

    def add_offsets(
        self,
        name: Name,
        member: tuple[str, int],
        progress: Progress,
        marks: Marks | None = None,
    ) -> None:
        """Take progress into the transaction, if the group believes the member."""
        producer = self._producer(name)
        if OFFSETS not in producer.places:
            raise InvalidTransactionStateError("TxnOffsetCommit: INVALID_TXN_STATE")
        self.group.admit(member, progress)
        producer.offsets.update(progress)
        producer.marks = dict(marks or {})

    def end_transaction(self, name: Name, *, commit: bool) -> None:
        """Make the transaction visible, or none of it.

        The same end again is answered as before; anything else outside of a transaction raises
        InvalidTransactionStateError.
        """
        producer = self._producer(name)
        if producer.late_offsets is not None:
            producer.offsets.update(producer.late_offsets)
            producer.late_offsets = None
        self._arrive_end(name[0], producer)
        if producer.state == ("committed" if commit else "aborted"):
            return
        if producer.state != "ongoing":
            raise InvalidTransactionStateError(f"EndTxn: INVALID_TXN_STATE ({producer.state})")
        self._end(name[0], producer, commit=commit)

    def send_late(
        self, name: Name, *, offsets: Progress | None = None, end: bool | None = None
    ) -> None:
        """Keep a copy of a request under way; it arrives inside the next transaction.

        An EndTxn between its outputs and its offsets, offsets after its own: the two moments at
        which it does most harm. A new epoch makes the broker refuse it.
        """
        producer = self._producer(name)
        producer.late_offsets = producer.late_offsets if offsets is None else dict(offsets)
        producer.late_end = producer.late_end if end is None else end

    def open_transactions(self) -> list[str]:
        """Return the ids whose transaction is open."""
        self.expire()
        return [name for name, producer in self._producers.items() if producer.state == "ongoing"]

    def expire(self) -> None:
        """Abort and fence what is older than its timeout, as the coordinator's scan does."""
        if self._due_s == math.inf or self._clock is None:
            return
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            return
        for name, producer in self._producers.items():
            if producer.due_s <= now_s:
                self._fence(name, producer)
                self.expired += 1
        self._due_s = min(producer.due_s for producer in self._producers.values())

    def _producer(self, name: Name) -> Ongoing:
        self.expire()
        producer = self._producers[name[0]]
        if producer.epoch != name[1]:
            raise ProducerDeadError("PRODUCER_FENCED: there is a newer epoch", fenced=True)
        return producer

    def _fence(self, name: str, producer: Ongoing) -> None:
        if producer.state == "ongoing":
            self._end(name, producer, commit=False)
        producer.epoch += 1
        producer.state = "empty"
        producer.sequences = {}
        producer.late_offsets = producer.late_end = None

    def _arrive_end(self, name: str, producer: Ongoing) -> None:
        late, producer.late_end = producer.late_end, None
        if late is not None and producer.state == "ongoing":
            self._end(name, producer, commit=late)

    def _end(self, name: str, producer: Ongoing, *, commit: bool) -> None:
        visible: list[Record] = []
        for place in producer.places:
            if isinstance(place, tuple):
                visible += self.logs[place].mark(name, commit=commit)
        offsets, producer.offsets = producer.offsets, {}
        marks, producer.marks = producer.marks, {}
        producer.places = {}
        producer.due_s = math.inf
        producer.state = "committed" if commit else "aborted"
        if commit:
            self.committed.update(offsets)
            for where in offsets:
                self.beside.pop(where, None)
            self.beside.update(marks)
            self.watch(visible, offsets)


class MemoryBroker(MemoryCoordinator):
    """Topics by name and number of partitions; ``inputs`` are what the group subscribes to.

    group      who may commit offsets
    rejects    a message for which this is true makes the commit of its transaction fail
    bytes_max  a larger value is refused when it is sent
    clock, timeout_s, scan_s: see MemoryCoordinator
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        inputs: Iterable[str],
        clock: Clock | None = None,
        timeout_s: float = 10.0,
        scan_s: float = 0.0,
    ) -> None:
        logs = {
            (topic, number): MemoryLog((topic, number))
            for topic, count in topics.items()
            for number in range(count)
        }
        topics_in = set(inputs)
        self.inputs = [where for where in logs if where[0] in topics_in]
        group: MemoryGroup = InstantGroup(self.inputs)
        super().__init__(logs, group, clock=clock, timeout_s=timeout_s, scan_s=scan_s)
        self.rejects: Callable[[Message], bool] = lambda _message: False
        self.bytes_max: int | None = None
        self._partitions = dict(topics)

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
        return self.logs[(topic, partition)].append(
            value, key=key, headers=headers, timestamp_ms=timestamp_ms
        )

    def hide(self, where: TopicPartition, count: int = 1) -> None:
        """Append offsets that no reader sees: control records and aborted data."""
        self.logs[where].hide(count)

    def fetch(self, where: TopicPartition, offset: int, records_max: int) -> list[Record]:
        """Return visible records from ``offset`` on."""
        self.expire()
        return self.logs[where].fetch(offset, records_max)

    def records(self, topic: str) -> list[Record]:
        """Return all that a ``read_committed`` reader of a topic sees, by partition, in order."""
        self.expire()
        logs = [log for where, log in self.logs.items() if where[0] == topic]
        return [record for log in logs for record in log.fetch(0, log.end)]

    def ends(self) -> Progress:
        """Return the ends of all input partitions, as a ``read_committed`` reader sees them."""
        self.expire()
        return {where: self.logs[where].stable_end for where in self.inputs}

    # -- group ----------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Add a member that has only a name."""
        self.group.join(name)

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout does."""
        self.group.expel(name)

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Return what a member gives up and what it gets: only what no other member still holds."""
        return self.group.shift(name, owned)

    def pending(self, where: TopicPartition) -> bool:
        """Whether an open transaction holds an offset here: then there is no stable answer."""
        self.expire()
        return any(where in producer.offsets for producer in self._producers.values())

    def by_partition(self, messages: Iterable[Message]) -> dict[TopicPartition, list[Message]]:
        """Return messages by the partition that the partitioner gives them."""
        found: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            partition = message.partition
            if partition < 0:
                partition = crc32(message.key or b"") % self._partitions[message.topic]
            found.setdefault((message.topic, partition), []).append(message)
        return found
