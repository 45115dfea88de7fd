"""What a source adds to its batches with HAPAX_RETRY__ORDER=key: whose turn it is, and floors.

Of both sources that know lines: kafka/consume/line_source.py and testing/line_source.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import Progress, TopicPartition
    from hapax.core.retry_line import RetryLine


class LineIntake:
    """Puts what waits and is due before the records of the inputs. One thread only."""

    def __init__(self, line: RetryLine) -> None:
        self._line = line
        self._told: Progress = {}

    def add(self, batch: Batch, room: int, now_ms: int, positions: Progress) -> Batch:
        """Return the batch with up to ``room`` records more, those whose turn it is.

        positions  the next offset to read of each partition, those of the inputs among them
        """
        ripe = self._line.take(max(0, room), now_ms)
        if ripe:
            batch = Batch(
                [*(record for record, _ in ripe), *batch.records],
                batch.first,
                batch.next,
                {index: why for index, (_, why) in enumerate(ripe) if why}
                | {len(ripe) + index: why for index, why in batch.unreadable.items()},
            )
        waiting = {
            index: position
            for (topic, index), position in positions.items()
            if topic == self._line.topic.name
        }
        self._add_floors(batch, {record.partition for record, _ in ripe}, waiting)
        return batch

    def _add_floors(self, batch: Batch, ripe: set[int], positions: Mapping[int, int]) -> None:
        """Name the retry partition of every input that the batch holds.

        What is committed for one is refused when the other is not assigned any more. When nothing
        is in work its floor is an end to commit.
        """
        topic = self._line.topic.name
        indexes = {number for _topic, number in batch.next} | ripe
        for index in positions:
            floor = self._line.floor(index) if self._line.ready(index) else None
            where = (topic, index)
            if floor is not None and (index in indexes or floor != self._told.get(where)):
                self._told[where] = batch.next[where] = floor
        for index in ripe:
            where = (topic, index)
            batch.first[where] = batch.next[where]
            batch.next[where] = positions[index]

    def rewound(self, progress: Progress) -> Progress:
        """Return where to read again, with what waits in those indexes, which is read in again."""
        again, topic = dict(progress), self._line.topic.name
        for index in {number for _topic, number in progress}:
            floor = self._line.floor(index)
            if floor is not None:
                again.setdefault((topic, index), floor)
            self._line.drop(index)
        self._told.clear()
        return again

    def doubt(self, where: TopicPartition) -> None:
        """Take note that a partition was assigned or revoked."""
        self._told.pop(where, None)
        if where[0] == self._line.topic.name:
            self._line.drop(where[1])
        else:
            self._line.doubt(where[1])

    def clear(self) -> None:
        """Forget everything."""
        self._line.clear()
        self._told.clear()
