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

from hapax.core.ports import Batch
from hapax.kafka.consume.client import places
from hapax.kafka.consume.decode import without
from hapax.kafka.consume.retry_source import SHORT_QUEUE
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offset_queries import LATEST, OffsetQueries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confluent_kafka import Consumer, TopicPartition

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.core.retry_line import RetryLine


class KafkaLineSource(KafkaSource):
    """Brings records of the inputs, and those of the retry topic whose turn it is."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        line: RetryLine,
        now_ms: Callable[[], int],
        **parts: Any,
    ) -> None:
        """Connect, join nothing yet. ``line``: empty; ``now_ms``: Unix time."""
        self._retry = line.topic.name
        super().__init__({**SHORT_QUEUE, **properties}, [*topics, self._retry], **parts)
        self._positions.beginning.whole = frozenset([self._retry])
        self.line = line
        self._now_ms = now_ms
        self._room, self._looked = 1, False
        self._closed: set[Where] = set()
        self._told: Progress = {}
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
        ripe = self.line.take(max(0, self._room - len(batch.records)), self._now_ms())
        if ripe:
            batch = Batch(
                [*(record for record, _ in ripe), *batch.records],
                batch.first,
                batch.next,
                {index: why for index, (_, why) in enumerate(ripe) if why}
                | {len(ripe) + index: why for index, why in batch.unreadable.items()},
            )
        self._add_floors(batch, {record.partition for record, _ in ripe})
        return batch

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
            self._closed.add(where)
        return without(found, shut | waiting)

    def _add_floors(self, batch: Batch, ripe: set[int]) -> None:
        """Name the retry partition of every input that the batch holds.

        What is committed for one is refused when the other is not ours any more. When nothing is
        in work its floor is an end to commit.
        """
        indexes = {number for _topic, number in batch.next} | ripe
        for where in self._states.next_offsets():
            if where[0] == self._retry and self.line.ready(where[1]):
                floor = self.line.floor(where[1])
                if floor is not None and (where[1] in indexes or floor != self._told.get(where)):
                    self._told[where] = batch.next[where] = floor
        for index in ripe:
            where = (self._retry, index)
            batch.first[where] = batch.next[where]
            batch.next[where] = self._states[where].next or batch.next[where]

    # -- when inputs may be taken ---------------------------------------------------------------

    def _turn_inputs(self) -> None:
        """Hold the inputs whose retry partition is not read in, or full; let the others go on."""
        ours = self.assignment()
        self._closed &= ours
        for where in ours:
            if where[0] != self._retry:
                shut = (self._retry, where[1]) not in ours or not self.line.open(where[1])
                if shut != (where in self._closed):
                    self.hold(where, held=shut)
                    (self._closed.add if shut else self._closed.discard)(where)

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
        again = dict(progress)
        for index in {number for _topic, number in progress}:
            floor = self.line.floor(index)
            if floor is not None:
                again.setdefault((self._retry, index), floor)
            self.line.drop(index)
        self._told.clear()
        super().rewind(again)

    def reopen(self) -> None:
        """Join the group again: a new member under the same name, at the committed offsets."""
        self.line.clear()
        self._closed.clear()
        self._told.clear()
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

    def ends(self) -> Progress:
        """Return the ends of the inputs: a bounded run does not wait for what waits."""
        return {where: end for where, end in super().ends().items() if where[0] != self._retry}

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
            self._closed.discard(where)
            self._told.pop(where, None)
            if where[0] == self._retry:
                self.line.drop(where[1])
            else:
                self.line.doubt(where[1])
