"""Offsets that a partition's reader passed over since its assignment: nothing was read there.

Below the committed offset "processed" and "removed before it was read" look alike. What a dead
process had claimed and not committed lies within two batches of the offset that was committed when
its partition was assigned again: the one in work, and the one whose claim travelled ahead. So the
offsets from there on that hold no record are kept, for two batches and as much again; most are
control records, and no claim names those.

Kept in memory, for the life of the process: a successor starts without them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.ports import Batch
    from hapax.core.records import TopicPartition

GAPS_MAX = 100_000
"""Of all partitions, some 10 MB: what comes beyond is trusted as if it had been read."""


class Reading(msgspec.Struct):
    """A partition that is followed: the next offset, and where to stop."""

    next: int
    until: int


class Unread:
    """Follows partitions from their assignment on. ``width``: for how many offsets each."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._following: dict[TopicPartition, Reading] = {}
        self._starts: dict[TopicPartition, list[int]] = {}
        self._ends: dict[TopicPartition, list[int]] = {}
        self._count = 0

    def holds(self, where: TopicPartition, offset: int) -> bool:
        """Whether the offset was passed over."""
        starts = self._starts.get(where)
        if not starts:
            return False
        place = bisect_right(starts, offset) - 1
        return place >= 0 and offset < self._ends[where][place]

    def read(self, batch: Batch) -> None:
        """Take note of what a batch holds. Beyond the first ones of an assignment it costs nothing.

        The same records may come again, after an abort.
        """
        for where, committed in batch.base.items():
            self._begin(where, committed)
        if not self._following:
            return
        for record in batch.records:
            where = (record.topic, record.partition)
            reading = self._following.get(where)
            if reading is not None and record.offset >= reading.next:
                self._pass(where, reading, record.offset)
                reading.next = record.offset + 1
        self._finish(batch.next)

    def _begin(self, where: TopicPartition, committed: int) -> None:
        """Follow a partition from its committed offset; what is known from there on is old."""
        self._following[where] = Reading(committed, committed + self._width)
        starts = self._starts.get(where, [])
        keep = bisect_left(starts, committed)
        self._count -= len(starts) - keep
        del starts[keep:], self._ends.setdefault(where, [])[keep:]

    def _finish(self, ends: Mapping[TopicPartition, int]) -> None:
        for where in self._following.keys() & ends.keys():
            reading = self._following[where]
            self._pass(where, reading, ends[where])
            reading.next = max(reading.next, ends[where])
            if reading.next >= reading.until:
                del self._following[where]

    def _pass(self, where: TopicPartition, reading: Reading, offset: int) -> None:
        if offset <= reading.next or self._count >= GAPS_MAX:
            return
        self._starts.setdefault(where, []).append(reading.next)
        self._ends.setdefault(where, []).append(offset)
        self._count += 1
