"""The transaction coordinator of the memory broker: epochs, open transactions, their timeout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import ProducerDeadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.ports import Clock, Message
    from hapax.core.records import Progress, Record, TopicPartition
    from hapax.core.suspicion import Marks
    from hapax.testing.group import MemoryGroup
    from hapax.testing.log import MemoryLog

    Place = TopicPartition | str
    Name = tuple[str, int]

OFFSETS = "offsets"
"""Represents the group's offsets among a transaction's partitions."""


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
