"""The source of a pipeline with later tries: reads the retry topic together with the inputs.

A record of it is handed out when its wait is over (delay_buffer.py); until then it lies in memory,
nothing after it in its partition is handed out, and no other partition notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.kafka.consume.delay_buffer import keeps_order
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.read.offsets_client import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.record_path import Batch

SHORT_QUEUE = {"queued.min.messages": 5000, "fetch.message.max.bytes": 128 << 10}
"""Records that are due come after what the client has fetched of a backlog: with the defaults 2.7 s
of it (median; 4.3 s at most), with these 0.9 s (1.8 s), at 10,000 records a second."""


class KafkaRetrySource(KafkaSource):
    """Brings records of the inputs, and those of the retry topic when they are to be looked at."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        retry: str,
        now_ms: Callable[[], int],
        **parts: Any,
    ) -> None:
        """Connect, join nothing yet. ``retry``: the topic; ``now_ms``: Unix time."""
        super().__init__({**SHORT_QUEUE, **properties}, [*topics, retry], **parts)
        # It holds only what the pipeline wrote itself: nothing in it may be passed over.
        self._positions.beginning.whole = frozenset([retry])
        self._retry = retry
        self._now_ms = now_ms
        self._room, self._looked = 1, False

    def take(self, records_max: int, wait_s: float) -> Batch:
        """See the port; a record whose wait is over counts as available."""
        delayed = self._states.delayed
        self._room, self._looked = max(1, records_max), False
        self._turn_partitions()
        # Ripe ones first, or a backlog in the inputs would keep them waiting; but the client is
        # asked each time, for it is what serves rebalances.
        left = max(1, records_max - delayed.due(records_max))
        batch = super().take(left, delayed.wait_s(wait_s))
        if not self._looked and delayed.due(1):
            with self._consumer.asking("take"):
                batch = self._read([])
        return batch

    def _read(self, messages: Sequence[Any]) -> Batch:
        self._looked = True
        delayed, stale = self._states.delayed, self._states.stale
        now_ms, others = self._now_ms(), []
        for message in messages:
            where = (message.topic(), message.partition())
            if where[0] == self._retry and keeps_order(message) and where not in stale:
                delayed.put(where, message, now_ms)
            else:
                others.append(message)
        due = delayed.take(max(0, self._room - len(others)))
        return super()._read([*due, *others])

    def _turn_partitions(self) -> None:
        """Read no more of partitions of which much waits, and on where there is room again."""
        delayed, held = self._states.delayed, self._consumer.held("waiting")
        for where in delayed.full():
            if where not in held:
                self._consumer.hold_ours(where, "waiting", held=True)
        for where in filter(delayed.has_room, held):
            offset = delayed.next_offset(where)
            with self._consumer.asking("resume"):
                if offset is not None and where in self.assignment():
                    self._consumer.seek(where, offset, self._states[where].epoch_of(offset))
                self._consumer.hold(where, "waiting", held=False)

    def waiting(self) -> int:
        """Return how many assigned records wait in memory. Any thread may call."""
        return self._states.delayed.records

    def unread(self) -> int:
        """Return how many offsets of the assigned partitions are not read yet, markers included."""
        ours = [where for where in self.assignment() if where[0] == self._retry]
        lows, highs = (self._consumer.offsets(ours, at) for at in (EARLIEST, LATEST))
        count = 0
        for where in ours:
            behind = self._states.delayed.next_offset(where)
            behind = self._states[where].next if behind is None else behind
            count += max(0, highs[where] - (lows[where] if behind is None else behind))
        return count
