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
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

import msgspec

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.records import Headers, Progress, Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.offset_commit import Marks
    from hapax.core.ports import Clock
    from hapax.core.records import Message

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
        offset = len(self._entries)
        self._entries.append(Record(*self._where, offset, key, value, headers, timestamp_ms))
        if producer is not None:
            self._open.setdefault(producer, []).append(offset)
        return offset

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
        self._entries += [None] * count

    def remove(self, offset: int) -> None:
        """Remove a record as the log cleaner does: its offset stays, nothing is read there."""
        self._entries[offset] = None

    def fetch(self, offset: int, records_max: int) -> list[Record]:
        there = self._entries[offset : self.stable_end]
        return list(islice((entry for entry in there if entry is not None), records_max))

    def at(self, offset: int) -> Record | None:
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


UNFENCED = ("", -1)
"""Who names no member is believed, even while the group has live members (measured)."""


class Shift(msgspec.Struct):
    """What a member learns when it asks the group; a rebalance may give it nothing."""

    rebalanced: bool
    assigned: list[TopicPartition]
    revoked: list[TopicPartition]
    lost: list[TopicPartition]


class MemoryGroup(Protocol):
    """A consumer group, and what its clients know of it. ``name`` is that of one client."""

    def join(self, name: str) -> None: ...

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Serve a poll of a client that holds ``owned``; the first one joins.

        Raises MemberFencedError when its instance belongs to another client by now.
        """

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout does."""

    def leave(self, name: str) -> None:
        """Close a client: a member leaves the group unless its instance is static."""

    def forget(self, name: str) -> None:
        """End a client without LeaveGroup; the next of this name joins again."""

    def adopt_orphans(self, name: str) -> list[TopicPartition]:
        """Start a rebalance when partitions are unassigned; return those."""

    def identity(self, name: str) -> tuple[str, int]: ...

    def admit(self, member: tuple[str, int], progress: Mapping[TopicPartition, int]) -> None:
        """Raise BatchAbortedError unless ``(member id, generation)`` is believed, or UNFENCED."""


class MemoryMember(msgspec.Struct):
    """What the group knows of a member: its target, and the generation it has been sent."""

    target: frozenset[TopicPartition] = frozenset()
    generation: int = -1


class InstantGroup:
    """The shortest rules: every change reassigns at once, and only the newest generation counts.

    A partition is given only when no other member still holds it.
    """

    def __init__(self, inputs: Sequence[TopicPartition]) -> None:
        self.members: dict[str, MemoryMember] = {}
        self.owners: dict[TopicPartition, str] = {}
        self.newest = 0
        self._inputs = inputs

    def join(self, name: str) -> None:
        self.members[name] = MemoryMember()
        self._deal()

    def expel(self, name: str) -> None:
        if self.members.pop(name, None) is not None:
            self.owners = {where: owner for where, owner in self.owners.items() if owner != name}
            self._deal()

    leave = forget = expel

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        lost: list[TopicPartition] = []
        if name not in self.members:
            lost, owned = sorted(owned), frozenset()
            self.join(name)
        member = self.members[name]
        rebalanced = member.generation != self.newest
        member.generation = self.newest
        revoked = sorted(owned - member.target)
        for where in revoked:
            self.owners.pop(where, None)
        assigned = sorted(member.target - owned - self.owners.keys())
        self.owners.update(dict.fromkeys(assigned, name))
        return Shift(rebalanced or bool(assigned), assigned, revoked, lost)

    def adopt_orphans(self, _name: str) -> list[TopicPartition]:
        return []

    def identity(self, name: str) -> tuple[str, int]:
        member = self.members.get(name)
        return name, -1 if member is None else member.generation

    def admit(self, member: tuple[str, int], _progress: Mapping[TopicPartition, int]) -> None:
        if member == UNFENCED:
            return
        if member[0] not in self.members or member[1] != self.newest:
            raise BatchAbortedError("ILLEGAL_GENERATION")

    def _deal(self) -> None:
        self.newest += 1
        names = sorted(self.members)
        for place, name in enumerate(names):
            self.members[name].target = frozenset(self._inputs[place :: len(names)])


class MemoryBroker:
    """Topics by name and number of partitions; ``inputs`` are what the group subscribes to.

    group      who may commit offsets
    committed  the group's offsets; ``beside``: the marks in the metadata of some
    watch      called at each commit: with the records that it made visible, and its offsets
    rejects    a message for which this is true makes the commit of its transaction fail
    bytes_max  a larger value is refused when it is sent
    expired    transactions that timed out
    clock      without one none ever does; otherwise after ``timeout_s``, at the next of the
               coordinator's scans, which are ``scan_s`` apart
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
        self.logs = {
            (topic, number): MemoryLog((topic, number))
            for topic, count in topics.items()
            for number in range(count)
        }
        topics_in = set(inputs)
        self.inputs = [where for where in self.logs if where[0] in topics_in]
        self.group: MemoryGroup = InstantGroup(self.inputs)
        self.committed: Progress = {}
        self.beside: Marks = {}
        self.watch: Callable[[Sequence[Record], Progress], None] = lambda _records, _offsets: None
        self.rejects: Callable[[Message], bool] = lambda _message: False
        self.bytes_max: int | None = None
        self.expired = 0
        self._partitions = dict(topics)
        self._producers: dict[str, Ongoing] = {}
        self._clock = clock
        self._timeout_s = timeout_s
        self._scan_s = scan_s
        self._due_s = math.inf

    # -- transactions; ``Name``: transactional id and epoch ---------------------------------

    def init_producer(self, transactional_id: str) -> int:
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
            self.logs[where].append(
                message.value,
                key=message.key,
                headers=tuple(message.headers),
                timestamp_ms=0 if message.timestamp_ms is None else message.timestamp_ms,
                producer=name[0],
            )

    def add_offsets(
        self, name: Name, member: tuple[str, int], progress: Progress, marks: Marks | None = None
    ) -> None:
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

    def expire(self) -> None:
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
        return self.logs[(topic, partition)].append(
            value, key=key, headers=headers, timestamp_ms=timestamp_ms
        )

    def hide(self, where: TopicPartition, count: int = 1) -> None:
        self.logs[where].hide(count)

    def fetch(self, where: TopicPartition, offset: int, records_max: int) -> list[Record]:
        self.expire()
        return self.logs[where].fetch(offset, records_max)

    def records(self, topic: str) -> list[Record]:
        self.expire()
        logs = [log for where, log in self.logs.items() if where[0] == topic]
        return [record for log in logs for record in log.fetch(0, log.end)]

    def ends(self) -> Progress:
        self.expire()
        return {where: self.logs[where].stable_end for where in self.inputs}

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Return what a member gives up and what it gets: only what no other member still holds."""
        return self.group.shift(name, owned)

    def pending(self, where: TopicPartition) -> bool:
        """Whether an open transaction holds an offset here: then there is no stable answer."""
        self.expire()
        return any(where in producer.offsets for producer in self._producers.values())

    def by_partition(self, messages: Iterable[Message]) -> dict[TopicPartition, list[Message]]:
        found: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            found.setdefault(self._place(message), []).append(message)
        return found

    def _place(self, message: Message) -> TopicPartition:
        if message.partition >= 0:
            return (message.topic, message.partition)
        return (message.topic, crc32(message.key or b"") % self._partitions[message.topic])
