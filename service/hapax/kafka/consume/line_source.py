"""The source of a pipeline whose records wait in the order of their key (core/retry_line.py).

Partition i of the retry topic is read in before anything of the input partitions of index i is
taken: up to the high watermark that was asked for after the committed offsets of all of them. A
transaction of an owner before us has either not reached those offsets, and then it never will, or
all that it wrote lies below that watermark. Who assigns the partitions is not trusted for it: an
input whose retry partition is not ours is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.line_intake import LineIntake
from hapax.kafka.consume.client import places
from hapax.kafka.consume.decode import without
from hapax.kafka.consume.retry_source import WaitingSource
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offset_queries import LATEST, OffsetQueries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confluent_kafka import Consumer, TopicPartition

    from hapax.core.ports import Batch
    from hapax.core.records import TopicPartition as Where
    from hapax.core.retry_line import RetryLine


HELD_TOLD_S = 10.0
"""So long an input may be held without a word: a hand-over takes a few seconds."""


class KafkaLineSource(WaitingSource):
    """Brings records of the inputs, and those of the retry topic whose turn it is."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        line: RetryLine,
        **parts: Any,
    ) -> None:
        """Connect, join nothing yet. ``line``: empty."""
        super().__init__(properties, topics, retry=line.topic.name, **parts)
        self.line = line
        self._closed: dict[Where, float | None] = {}
        self._asked: set[Where] = set()
        """Partitions that the engine holds: closing and opening them here does not change that."""
        self._intake = LineIntake(line)
        self._ends_properties = {**admin_properties(properties), "group.id": "ends"}
        self._queries: OffsetQueries | None = None

    # -- records ----------------------------------------------------------------------------

    def take(self, records_max: int, wait_s: float) -> Batch:
        """Return what is there; a record whose turn it is counts as there."""
        self._room, self._looked = max(1, records_max), False
        self._turn_inputs()
        due_ms, left = self.line.due_ms(), records_max
        if due_ms is not None:
            wait_s = max(0.0, min(wait_s, (due_ms - self._now_ms()) / 1000))
            if not wait_s:  # room for them under a backlog of the inputs, too
                left = max(1, records_max // 2)
        batch = super().take(left, wait_s)
        if not self._looked:
            with self._consumer.asking("take"):
                batch = self._read([])
        return batch

    def _read(self, messages: Sequence[Any]) -> Batch:
        self._looked = True
        found = super()._read(messages)
        self._read_in(found)
        self._ask_ends()
        batch = self._of_inputs(found)
        return self._intake.add(
            batch,
            self._room - len(batch.records),
            self._now_ms(),
            self._states.next_offsets(),
        )

    def _read_in(self, found: Batch) -> None:
        """Take in what came of the retry topic."""
        for index, record in enumerate(found.records):
            if record.topic == self._retry:
                self.line.read(record, found.unreadable.get(index, ""))
        for where, position in found.next.items():
            if where[0] == self._retry:
                self.line.reach(where[1], position)

    def _of_inputs(self, found: Batch) -> Batch:
        """Return what came of the inputs, as far as it may be taken; the rest is read again."""
        waiting = {where for where in found.next if where[0] == self._retry}
        shut = {
            where
            for where in found.next.keys() - waiting
            if where in found.first and not self.line.ready(where[1])
        }
        for where in shut:
            self._positions.read_on(where, found.first[where])
            self._consumer.hold(where, held=True)
            self._closed.setdefault(where, self._clock.monotonic())
        return without(found, shut | waiting)

    def hold(self, where: Where, *, held: bool) -> None:
        """Deliver nothing from one partition, or again where nothing else holds it."""
        (self._asked.add if held else self._asked.discard)(where)
        super().hold(where, held=held or where in self._closed)

    # -- when inputs may be taken ---------------------------------------------------------------

    def _turn_inputs(self) -> None:
        """Hold the inputs whose retry partition is not read in, or full; let the others go on."""
        ours, now_s = self.assignment(), self._clock.monotonic()
        for where in ours:
            if where[0] == self._retry:
                continue
            reason = self._held_for(where[1], ours)
            if bool(reason) != (where in self._closed):
                super().hold(where, held=bool(reason) or where in self._asked)
                if not reason:
                    del self._closed[where]
            if reason:
                self._tell(where, reason, now_s)

    def _held_for(self, index: int, ours: frozenset[Where]) -> str:
        """Return why inputs of this number are held; empty: they are not."""
        retry = f"{self._retry}/{index}"
        if (self._retry, index) not in ours:
            return f"{retry} is not assigned to this member"
        if not self.line.ready(index):
            return f"what waits in {retry} is not read in"
        return "" if self.line.open(index) else f"too much waits in {retry}"

    def _tell(self, where: Where, reason: str, now_s: float) -> None:
        """Say once why a partition is held, when that takes long."""
        since_s = self._closed.setdefault(where, now_s)
        if since_s is not None and now_s - since_s >= HELD_TOLD_S:
            self._closed[where] = None
            self._changes.errors.append(f"{where[0]}/{where[1]} is held: {reason}")

    def _ask_ends(self) -> None:
        """Ask up to where to read in, where the offsets of all partitions of an index are known."""
        ours, states = self.assignment(), self._states
        unsure = {where[1] for where in (states.stale | states.unplaced) & ours}
        wanted = [
            where
            for where in ours
            if where[0] == self._retry and where[1] not in unsure and self.line.unasked(where[1])
        ]
        if not wanted:
            return
        if self._queries is None:
            self._queries = OffsetQueries(self._ends_properties, self._consumer.log)
        try:
            found = self._queries.offsets(dict.fromkeys(wanted, LATEST))
        except KafkaException:
            found = {}
        for where, end in found.items():
            if end is not None:
                self.line.expect(where[1], end)
        if len(found) < len(wanted):  # asked again with the next take
            self._drop_queries()

    def _drop_queries(self) -> None:
        queries, self._queries = self._queries, None
        if queries is not None:
            queries.close()

    # -- positions ------------------------------------------------------------------------------

    def rewind(self, progress: Mapping[Where, int]) -> None:
        """Read again from these offsets; what waits in their indexes is read in again."""
        super().rewind(self._intake.rewound(dict(progress)))

    def reopen(self) -> None:
        """Join the group again: a new member under the same name, at the committed offsets."""
        self._intake.clear()
        self._closed.clear()
        self._asked.clear()
        super().reopen()

    def close(self) -> None:
        """Leave."""
        self._drop_queries()
        super().close()

    def waiting(self) -> int:
        """Return how many records of our partitions wait. Any thread may call."""
        return self.line.count

    def unread(self) -> int:
        """Return 0: all that waits in our partitions has been read."""
        return 0

    # -- what the client reports ----------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_assign(consumer, partitions)
        # What the client fetches on its own account is not taken: its committed offsets are asked
        # for here, before the end of the retry partition is.
        self._states.stale |= set(places(partitions))
        self._doubt(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_revoke(consumer, partitions)
        self._doubt(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_lost(consumer, partitions)
        self._doubt(partitions)

    def _doubt(self, partitions: Iterable[TopicPartition]) -> None:
        for where in places(partitions):
            self._closed.pop(where, None)
            self._asked.discard(where)
            self._intake.doubt(where)
