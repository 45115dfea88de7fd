"""The Source port in memory where records wait in the order of their key (core/retry_line.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.line_intake import LineIntake
from hapax.testing.source import MemorySource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hapax.core.ports import Batch
    from hapax.core.records import TopicPartition
    from hapax.core.retry_line import RetryLine
    from hapax.testing.broker import MemoryBroker


class MemoryLineSource(MemorySource):
    """Brings records of the inputs, and those of the retry topic whose turn it is.

    ``line``: empty. As on a broker, a partition of the retry topic is read in up to the high
    watermark as of after the committed offsets of its index are known, and before anything of the
    inputs of that index is taken.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        name: str,
        *,
        line: RetryLine,
        now_ms: Callable[[], int],
        **around: Any,
    ) -> None:
        super().__init__(broker, name, **around)
        self.line = line
        self._retry = line.topic.name
        self._now_ms = now_ms
        self._intake = LineIntake(line)

    def rewind(self, progress: Mapping[TopicPartition, int]) -> None:
        """Read again from these offsets; what waits in their indexes is read in again."""
        super().rewind(self._intake.rewound(dict(progress)))

    def reopen(self) -> None:
        """Join the group again, at the committed offsets."""
        self._intake.clear()
        super().reopen()

    def _fetch(self, batch: Batch, records_max: int) -> Batch:
        self._read_in()
        due_ms = self.line.due_ms()
        ripe = due_ms is not None and due_ms <= self._now_ms()
        of_inputs = max(1, records_max // 2) if ripe else records_max
        for where in sorted(self._position.keys() - self.paused - self.holding):
            if where[0] != self._retry and self._may_take(where[1]):
                self._read(where, batch, of_inputs - len(batch.records))
        room = records_max - len(batch.records)
        return self._intake.add(batch, room, self._now_ms(), self._position)

    def _may_take(self, index: int) -> bool:
        return (self._retry, index) in self._position and self.line.open(index)

    def _read_in(self) -> None:
        """Take in what is in the retry topic, as far as a reader sees it."""
        unplaced = {number for _topic, number in self._unplaced}
        for where in sorted(self._position.keys() - self.paused - self.holding):
            if where[0] != self._retry or where[1] in unplaced:
                continue
            log = self._broker.logs[where]
            if self.line.unasked(where[1]):
                self.line.expect(where[1], log.end)
            for record in self._broker.fetch(where, self._position[where], log.end):
                self.line.read(record)
            self._position[where] = log.stable_end
            self.line.reach(where[1], log.stable_end)

    def _moved(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            self._intake.doubt(where)
