"""Offsets that brokers report, and what they mean: lag in seconds, margin of retention.

Pure: no I/O, and the clock is a parameter. Times are Unix seconds.

``TimestampSearch`` finds the time of the next unread record without fetching one. Brokers answer
"the first offset of this time or later": halving the age of the question, a dozen of questions,
each for all partitions at once, finds the newest time of any record up to the next unread one,
within a hundredth of its age.

``Counted`` and ``ReaderLag`` say how many committed records a group has not read yet, counted
record by record. Offsets alone do not say: transactions end with a marker that has an offset, and
aborted records keep theirs. A client that commits the offset after its last record never reaches
the end of them.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from hapax.cluster.partition_offsets import LogOffsets, PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import Progress, TopicPartition

PACE_WINDOW_S = 3600.0
"""How far back the advance of a log's beginning is measured. Brokers check for segments to delete
every five minutes unless configured otherwise, so much less would see steps and no pace."""
AGE_MIN_S, AGE_MAX_S = 0.1, 3.2e9
"""Younger is 0, and nothing is older than a century."""
PRECISION = 1.01


class Retention(msgspec.Struct, frozen=True):
    """When a topic deletes records; None: not by this.

    time_ms    age in milliseconds
    bytes_max  bytes of one partition
    """

    time_ms: int | None
    bytes_max: int | None


class OffsetSnapshot(msgspec.Struct):
    """Answers of the brokers to one round of requests.

    at_s       when it began
    offsets    of those partitions whose brokers answered
    unread_s   by partition: the newest time of any record up to the next unread one, so that one's
               own time where times only grow; missing where nothing is unread or no broker answered
    retention  by topic; missing where it is not known
    failures   requests without an answer, in words
    remarks    what cannot be known here, each reported once
    away       the addresses, with the reason, when no broker answered at all
    """

    at_s: float
    offsets: dict[TopicPartition, LogOffsets] = {}
    unread_s: dict[TopicPartition, float] = {}
    retention: dict[str, Retention] = {}
    failures: list[str] = []
    remarks: list[str] = []
    away: str = ""


class GroupProgress(msgspec.Struct):
    """How far the process is in its assigned partitions.

    committed  the offsets that the group has committed
    positions  the next offsets to read; ahead of those while a batch is under way
    """

    committed: Progress = {}
    positions: Progress = {}


class LagProbe(Protocol):
    """Queries brokers. Takes bounded time, and never raises for brokers that are away."""

    def probe(self, committed: Progress) -> OffsetSnapshot:
        """Return the offsets of these partitions and of the topics that are written to."""

    def unanswered(self) -> str:
        """Return the addresses and the reason when no broker answers; empty while one does."""


class PartitionLag(PartitionOffsets, frozen=True, kw_only=True):
    """One partition at one moment: all of it from the same snapshot.

    at_s       when that snapshot began, Unix time
    is_input   an assigned input partition; otherwise one that is written to
    lag_s      age of the oldest record of the lag, at least; 0 when there is none
    margin_s   until retention deletes the next unread record, at least; infinite when it never
               will, None when that is not known
    open_s     for how long the last stable offset has not moved before the end
    """

    at_s: float
    is_input: bool
    lag_s: float | None
    margin_s: float | None
    open_s: float


class LagTracker:
    """Turns snapshots into lags; remembers what it takes two snapshots to see."""

    def __init__(self) -> None:
        self._stood: dict[TopicPartition, tuple[int, float]] = {}
        self._lows: dict[TopicPartition, list[tuple[float, int]]] = {}

    def of(self, snapshot: OffsetSnapshot, progress: GroupProgress) -> list[PartitionLag]:
        if not snapshot.failures:
            for where in self._lows.keys() - snapshot.offsets.keys():
                del self._lows[where]
                self._stood.pop(where, None)
        return [
            self._partition_lag(where, offsets, snapshot, progress)
            for where, offsets in sorted(snapshot.offsets.items())
        ]

    def _partition_lag(
        self,
        where: TopicPartition,
        offsets: LogOffsets,
        snapshot: OffsetSnapshot,
        progress: GroupProgress,
    ) -> PartitionLag:
        committed = progress.committed.get(where)
        pace = self._pace(where, offsets.log_start, snapshot.at_s)
        lag_s = margin_s = None
        if committed is not None:
            unread_s = snapshot.unread_s.get(where)
            if committed >= offsets.last_stable:
                lag_s = 0.0
            elif unread_s is not None:
                lag_s = max(0.0, snapshot.at_s - unread_s)
            margin_s = _margin_s(
                committed, offsets, unread_s, snapshot.at_s, snapshot.retention.get(where[0]), pace
            )
        return PartitionLag(
            topic=where[0],
            partition=where[1],
            at_s=snapshot.at_s,
            is_input=committed is not None,
            log=offsets,
            committed=committed,
            position=progress.positions.get(where, committed),
            lag_s=lag_s,
            margin_s=margin_s,
            open_s=self._open_s(where, offsets, snapshot.at_s),
        )

    def _open_s(self, where: TopicPartition, offsets: LogOffsets, now_s: float) -> float:
        if offsets.last_stable >= offsets.high_watermark:
            self._stood.pop(where, None)
            return 0.0
        stood = self._stood.get(where)
        if stood is None or stood[0] != offsets.last_stable:
            stood = self._stood[where] = (offsets.last_stable, now_s)
        return max(0.0, now_s - stood[1])

    def _pace(self, where: TopicPartition, low: int, now_s: float) -> float:
        """Return by how many offsets a second the log's beginning advances; 0 until it has."""
        seen = self._lows.setdefault(where, [])
        if seen and low < seen[-1][1]:
            seen.clear()  # another topic of the same name
        if not seen or low > seen[-1][1]:
            seen.append((now_s, low))
        while len(seen) > 1 and now_s - seen[1][0] > PACE_WINDOW_S:
            del seen[0]
        first_s, first_low = seen[0]
        return (low - first_low) / (now_s - first_s) if now_s > first_s else 0.0


def _margin_s(
    committed: int,
    offsets: LogOffsets,
    unread_s: float | None,
    now_s: float,
    retention: Retention | None,
    pace: float,
) -> float | None:
    """Return the smaller of two estimates: by the record's age, and by the log's advance.

    A broker deletes a segment once its newest record is too old and all before it are gone. So the
    next unread record lives at least until the newest time up to it has come of age.
    What ``retention.bytes`` deletes has no such time; there the beginning of the log advances as
    fast as records arrive.
    """
    if committed >= offsets.high_watermark:
        return math.inf
    if committed < offsets.log_start:
        return 0.0
    estimates = []
    if retention is not None and retention.time_ms is not None:
        if unread_s is None:
            return None
        estimates.append(unread_s + retention.time_ms / 1000 - now_s)
    if (retention is None or retention.bytes_max is not None) and pace > 0.0:
        estimates.append((committed - offsets.log_start) / pace)
    if not estimates and retention is None:
        return None
    return min(estimates, default=math.inf)


def retention_of(config: Mapping[str, str | None]) -> Retention | None:
    """``cleanup.policy`` without ``delete`` keeps the newest record of each key indefinitely."""
    policy, time_text, bytes_text = (
        config.get(name) for name in ("cleanup.policy", "retention.ms", "retention.bytes")
    )
    if policy is None or time_text is None or bytes_text is None:
        return None
    if "delete" not in policy:
        return Retention(None, None)
    time_ms, bytes_max = int(time_text), int(bytes_text)
    return Retention(time_ms if time_ms >= 0 else None, bytes_max if bytes_max >= 0 else None)


class TimestampSearch:
    """One search. ``unread``: per partition the next unread offset."""

    def __init__(self, unread: Progress, now_s: float) -> None:
        self._unread = unread
        self._now_s = now_s
        self._bounds = dict.fromkeys(unread, (AGE_MIN_S, AGE_MAX_S))

    def questions(self) -> dict[TopicPartition, int]:
        """Return per partition the time to ask for next, in Unix ms; none: the search is over."""
        return {
            where: max(0, int((self._now_s - _middle(bounds)) * 1000))
            for where, bounds in self._bounds.items()
            if bounds[1] / bounds[0] > PRECISION
        }

    def answer(self, found: Mapping[TopicPartition, int | None]) -> None:
        """Take first offsets (None: no record is so young); search on where there is an answer."""
        for where in self.questions():
            if where not in found:
                del self._bounds[where]
                continue
            young, old = self._bounds[where]
            offset = found[where]
            middle = _middle((young, old))
            reached = offset is not None and offset <= self._unread[where]
            self._bounds[where] = (young, middle) if reached else (middle, old)

    def times_s(self) -> dict[TopicPartition, float]:
        """Return what was found, in Unix seconds; at most a hundredth of its age too early."""
        return {where: self._now_s - old for where, (_young, old) in self._bounds.items()}


def _middle(bounds: tuple[float, float]) -> float:
    return math.sqrt(bounds[0] * bounds[1])


# -- Records that a group has not read -----------------------------------------------------------


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
