"""What the engine remembers of its partitions: ends to commit when idle, and bounded runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress, TopicPartition
    from hapax.settings import Settings


class Ends:
    """Offsets behind control records and aborted data, to be committed when nothing is in flight.

    Without them the lag of transactional input never reaches 0: the last record's offset + 1
    stays behind the commit marker, and behind every aborted transaction (measured).
    """

    def __init__(self, *, idle_s: float, interval_s: float) -> None:
        self._idle_s = idle_s
        self._interval_s = interval_s
        self._pending: Progress = {}
        self._stable: dict[TopicPartition, int] = {}
        self._busy_s = 0.0
        self._last_s = 0.0

    def note(self, progress: Mapping[TopicPartition, int]) -> None:
        """Remember ends that an empty intake brought."""
        for where, offset in progress.items():
            if self._stable.get(where) != offset:
                self._pending[where] = offset

    def record_commit(self, progress: Mapping[TopicPartition, int], now_s: float) -> None:
        """Take note of what was committed."""
        self._busy_s = now_s
        self._stable.update(progress)
        for where in progress:
            self._pending.pop(where, None)

    def forget(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Drop what is known: the partitions left, or everything is read again."""
        for where in list(self._stable) if partitions is None else partitions:
            self._stable.pop(where, None)
        for where in list(self._pending) if partitions is None else partitions:
            self._pending.pop(where, None)

    def pending(self) -> list[TopicPartition]:
        """Return the partitions whose ends are not committed yet."""
        return list(self._pending)

    def due(self, now_s: float) -> list[TopicPartition]:
        """Return the partitions whose ends should be committed now."""
        if not self._pending or now_s - self._busy_s < self._idle_s:
            return []
        if now_s - self._last_s < self._interval_s:
            return []
        return list(self._pending)

    def moved(self, stable: Mapping[TopicPartition, int | None], now_s: float) -> Progress:
        """Return the pending ends that lie behind what the group knows."""
        self._last_s = now_s
        moved = {}
        for where, offset in stable.items():
            end = self._pending.pop(where, None)
            if end is None:
                continue
            if offset is not None and offset >= end:
                self._stable[where] = offset
            else:
                moved[where] = end
        return moved


class Bounds:
    """Ends a bounded run: after so many records, or at the ends seen at its start."""

    def __init__(self, *, records_max: int | None, at_end: bool) -> None:
        self.left = records_max
        """Records that may still be taken; None: any number."""
        self.at_end = at_end
        self.open_timeout_s: float | None = math.inf
        """How long it waits while no open transaction ends; None: it ends before them."""
        self.ends: Progress = {}
        self.wants_ends = at_end
        """Whether the ends of the logs are still to be told."""

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        """Return those of the settings."""
        stop = settings.stop_after
        bounds = cls(records_max=stop.records, at_end=settings.at_ends)
        bounds.open_timeout_s = None if stop.open == "leave" else stop.open_timeout_ms / 1000
        return bounds

    @property
    def counted(self) -> bool:
        """Whether the run ends after a number of records."""
        return self.left is not None

    def start(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """Fix the ends; partitions without records need no reading. None: not known yet."""
        self.ends, self.wants_ends = dict(ends or {}), ends is None

    def limit(self, records_max: int) -> int:
        """Return how many records the next intake may bring."""
        return records_max if self.left is None else min(records_max, self.left)

    def count(self, records: int) -> None:
        """Count records that had their effect."""
        if self.left is not None:
            self.left -= records

    @property
    def spent(self) -> bool:
        """Whether the agreed number of records is done."""
        return self.left is not None and self.left <= 0

    def missing(self, progress: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions that have not reached their end."""
        return [where for where, end in self.ends.items() if progress.get(where, 0) < end]
