"""What the engine remembers of its partitions: ends to commit when idle, and bounded runs.

A bounded run ends at the ends of the input, or before transactions of others that are open. Ends
are high watermarks; what is read ends at the last stable offset, before the first open one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hapax.cluster.partition_offsets import HeldBack, held_back
from hapax.core.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hapax.core.ports import Source
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.lifecycle import Process
    from hapax.settings import Settings

LOOK_INTERVAL_S = 0.5
GRACE_S = 2.0  # a transaction that ends sooner needs no line


class Ends:
    """Offsets after control records and aborted data, to be committed when nothing is in flight.

    Without them the lag of transactional input never reaches 0: the last record's offset + 1 stays
    before the commit marker, and before every aborted transaction (measured).
    """

    def __init__(self, *, idle_s: float, interval_s: float) -> None:
        self._idle_s = idle_s
        self._interval_s = interval_s
        self._pending: Progress = {}
        self._stable: dict[TopicPartition, int] = {}
        self._busy_s = 0.0
        self._last_s = 0.0

    def note(self, progress: Mapping[TopicPartition, int]) -> None:
        for where, offset in progress.items():
            if self._stable.get(where) != offset:
                self._pending[where] = offset

    def record_commit(self, progress: Mapping[TopicPartition, int], now_s: float) -> None:
        self._busy_s = now_s
        self._stable.update(progress)
        for where in progress:
            self._pending.pop(where, None)

    def forget(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Drop what is known: the partitions left, or everything is read again."""
        for known in (self._stable, self._pending):
            for where in list(known) if partitions is None else partitions:
                known.pop(where, None)

    def pending(self) -> list[TopicPartition]:
        return list(self._pending)

    def due(self, now_s: float) -> list[TopicPartition]:
        due = now_s - self._busy_s >= self._idle_s and now_s - self._last_s >= self._interval_s
        return list(self._pending) if due else []

    def moved(self, stable: Mapping[TopicPartition, int | None], now_s: float) -> Progress:
        """Return the pending ends that lie beyond what the group knows."""
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
        """Whether the ends of the logs are still to come."""

    @classmethod
    def of(cls, settings: Settings) -> Bounds:
        stop = settings.stop_after
        bounds = cls(records_max=stop.records, at_end=settings.at_ends)
        bounds.open_timeout_s = None if stop.open == "leave" else stop.open_timeout_ms / 1000
        return bounds

    def start(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """Fix the ends; partitions without records need no reading. None: not known yet."""
        self.ends, self.wants_ends = dict(ends or {}), ends is None

    def limit(self, records_max: int) -> int:
        return records_max if self.left is None else min(records_max, self.left)

    def count(self, records: int) -> None:
        if self.left is not None:
            self.left -= records

    @property
    def spent(self) -> bool:
        return self.left is not None and self.left <= 0

    def missing(self, progress: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        return [where for where, end in self.ends.items() if progress.get(where, 0) < end]


class OpenInput:
    """Decides what a run does when all that is left lies after open transactions."""

    def __init__(self, process: Process, bounds: Bounds) -> None:
        self._events = process.events
        self._clock = process.clock
        self._timeout_s = bounds.open_timeout_s
        self._held: Mapping[TopicPartition, HeldBack] = {}
        self._since_s, self._told = 0.0, False

    def ends_run(self, held: Mapping[TopicPartition, HeldBack]) -> bool:
        """Return whether the run ends before them; raise StopError when it has waited too long.

        ``held``: empty while something else is left. The wait counts from when one moved last.
        """
        now_s = self._clock.monotonic()
        if held != self._held:
            if self._told:
                self._events.open_transactions_awaited({})
            self._held, self._since_s, self._told = dict(held), now_s, False
        if not held:
            return False
        if self._timeout_s is None:
            self._events.open_transactions_left(held)
            return True
        waited_s = now_s - self._since_s
        if waited_s >= self._timeout_s:
            raise StopError(
                f"{held_back(held)}, none of which has ended for {waited_s:.0f} s"
                " (HAPAX_STOP_AFTER__OPEN_TIMEOUT): hapax transactions list shows who has them open"
                " and how to end one that hangs; the same run then continues, and with"
                " HAPAX_STOP_AFTER__OPEN=leave it ends before them"
            )
        if waited_s >= GRACE_S and not self._told:
            self._told = True
            self._events.open_transactions_awaited(held)
        return False


class EndOfRun:
    """Knows when a group has come to the ends of a bounded run. One thread only."""

    def __init__(self, process: Process, source: Source, bounds: Bounds) -> None:
        self._clock = process.clock
        self._source = source
        self._bounds = bounds
        self._open = OpenInput(process, bounds)
        self._told: Progress = {}
        self._seen_s = 0.0

    def due(self) -> bool:
        """Whether to ask now. Raises BatchAbortedError when the ends are not known: call again."""
        now_s = self._clock.monotonic()
        if not self._bounds.at_end or now_s - self._seen_s < LOOK_INTERVAL_S:
            return False
        self._seen_s = now_s
        if self._bounds.wants_ends:
            self._bounds.start(self._source.ends())
        return not self._bounds.wants_ends

    def reached(self, known: Progress, ours: Collection[TopicPartition] = ()) -> bool:
        """Whether nothing is left to do; ``known`` of progress, which alone counts for ``ours``.

        Else the group's word counts: other members may have done the rest, and a position that only
        this process knows (START=latest) is forgotten when it leaves.
        """
        before = dict(self._told)
        self._told |= known
        others = [where for where in self._bounds.missing(self._told) if where not in ours]
        stable = self._source.committed(others)
        self._told |= {where: offset for where, offset in stable.items() if offset is not None}
        missing = self._bounds.missing(self._told)
        held = self._held(missing) if self._told == before else {}
        return self._open.ends_run(held) or not missing

    def _held(self, missing: Iterable[TopicPartition]) -> dict[TopicPartition, HeldBack]:
        stable = self._source.last_stable_offsets(missing)
        if any(offset > self._told.get(where, 0) for where, offset in stable.items()):
            return {}
        ends = self._bounds.ends
        return {where: HeldBack(offset, ends[where]) for where, offset in stable.items()}
