"""How many committed records a group has not read yet, counted record by record. Pure.

Offsets alone do not say: transactions end with a marker that has an offset, and aborted records
keep theirs. A client that commits the offset after its last record never reaches the end of them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.partition_offsets import LogOffsets
    from hapax.core.records import TopicPartition


class Counted:
    """The offsets of a stretch that hold a record, as runs of neighbours.

    start, end  the stretch that was read
    total       records in it
    """

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.total = 0
        self._runs = array("q")  # of each run its first offset, and the one after its last

    def add(self, offset: int) -> None:
        runs = self._runs
        if runs and runs[-1] == offset:
            runs[-1] = offset + 1
        else:
            runs.extend((offset, offset + 1))
        self.total += 1
        self.end = offset + 1

    @property
    def gap(self) -> tuple[int, int]:
        """Where the first offset without a record is, and the end of the last such ones."""
        runs = self._runs
        if not runs:
            return self.start, self.end
        first = runs[1] if runs[0] == self.start else self.start
        return first, max(first, runs[-2] if runs[-1] == self.end else self.end)

    def drop_before(self, offset: int) -> None:
        runs, done = self._runs, 0
        while done < len(runs) and runs[done] < offset:
            kept = min(runs[done + 1], offset)
            self.total -= kept - runs[done]
            runs[done] = kept
            if kept < runs[done + 1]:
                break
            done += 2
        del runs[:done]
        self.start, self.end = max(self.start, offset), max(self.end, offset)


class ReaderLag(NamedTuple):
    """One partition of one group, as one look saw it.

    committed  the group's offset; None: it has none
    records    committed records from there to the last stable offset, as far as they were counted
    uncounted  offsets to the last stable one that were not read
    aborted    records of aborted transactions among the offsets that were read; None: not counted
    markers    offsets among them without any record: markers of transactions, or records that
               compaction removed; None: not counted
    problem    why the records cannot be read to the end; empty: they can
    """

    topic: str
    partition: int
    log: LogOffsets
    committed: int | None
    records: int
    uncounted: int = 0
    aborted: int | None = None
    markers: int | None = None
    problem: str = ""

    @property
    def placed(self) -> bool:
        """Whether the group continues at its offset. If not, its client decides where."""
        return self.committed is not None and self.committed <= self.log.high_watermark

    @property
    def records_min(self) -> int:
        return self.records if self.placed else 0

    @property
    def records_max(self) -> int:
        return self.records + self.uncounted

    @property
    def undecided(self) -> int:
        """Offsets that the group has not read and that wait for open transactions."""
        at = self.committed if self.committed is not None and self.placed else 0
        return self.log.high_watermark - max(self.log.last_stable, at)

    @property
    def deleted(self) -> int:
        at = self.committed if self.committed is not None and self.placed else self.log.log_start
        return max(0, self.log.log_start - at)


class ReaderProbe(Protocol):
    """Counts what one group has not read. Takes bounded time."""

    def look(self, offsets_max: int) -> list[ReaderLag]:
        """Read so many more offsets at most; raise when group or records cannot be asked for."""


def stretch(committed: int | None, log: LogOffsets) -> tuple[int, int]:
    """Return the offsets whose records count: the first one, and the one after the last.

    Without an offset, or with one after the end of a topic that was recreated, the client begins
    at the start of the log at the earliest.
    """
    start = log.log_start
    if committed is not None and committed <= log.high_watermark:
        start = max(start, committed)
    return start, max(start, log.last_stable)


def shares(lengths: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Return how many offsets of each stretch are read: all of a short one, alike of long ones."""
    found: dict[TopicPartition, int] = {}
    for done, where in enumerate(sorted(lengths, key=lambda one: lengths[one])):
        found[where] = min(lengths[where], budget // (len(lengths) - done))
        budget -= found[where]
    return found
