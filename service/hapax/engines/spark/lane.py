"""One lane: a share of the partitions, worked on by one task at a time.

A lane has one transactional id for as long as it has these partitions, so whatever runs late of an
earlier attempt at them is fenced by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.limits import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from hapax.core.records import Progress, TopicPartition
    from hapax.core.retry_policy import RetryPolicy
    from hapax.core.suspicion import Marks
    from hapax.engines.spark.plan import RangeReport

BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0


class Lane:
    """What the driver knows of one lane."""

    def __init__(self, number: int, retry: RetryPolicy) -> None:
        self.number = number
        self.retry = retry
        self.positions: dict[TopicPartition, int | None] = {}
        self.pace = Pace.START
        self.failures = 0
        """Attempts since the last one that committed anything."""
        self.lost = 0
        """Those of them that ended without a report."""
        self.doubtful = False
        """A task was lost: what it had committed has to be asked for."""
        self.trusted: frozenset[TopicPartition] = frozenset()
        self.marks: Marks = {}
        """Of earlier ranges, left beside offsets by tasks that have reported."""
        self.fencing: Future[None] | None = None
        self.careful: int | None = None
        self.rest_until_s = 0.0
        self.flowing = False
        """Records kept coming when the last range ended: the next one needs no ends to begin."""
        self.awaited: Progress = {}
        """The ends that the newest range was planned with."""
        self.began_s = 0.0
        self.cancelled_s = 0.0
        self.job: Future[Any] | None = None

    def take_over(self, positions: dict[TopicPartition, int | None]) -> None:
        """Begin with these partitions, at what is committed."""
        self.positions = positions
        self.retry.rejected = {}
        self.failures = self.lost = 0
        self.rest_until_s = 0.0
        self.doubtful = self.flowing = False
        self.fencing = None
        self.careful = None
        self.trusted = frozenset()
        self.marks = {}

    def wanted(self, ends: Progress) -> Progress:
        """Return the ends of those partitions that have something to read.

        A partition without a committed offset is wanted also when it is empty: where it begins
        must be committed before the first record comes.
        """
        return {
            where: ends[where]
            for where, position in self.positions.items()
            if where in ends and (position is None or position < ends[where])
        }

    def starts(self, ends: Progress, *, staying: bool) -> dict[TopicPartition, int | None]:
        """Return where a range begins: where there is something to read.

        One that stays also reads what comes to the others, but for those without an offset: where
        they begin is committed by a range that has their end.
        """
        return {
            where: position
            for where, position in self.positions.items()
            if where in ends or (staying and position is not None)
        }

    def record_report(self, report: RangeReport) -> None:
        """Take note of what a range committed."""
        progress = report.progress
        # Where a partition without an offset begins is committed by a range that has its end.
        self.flowing = report.flowing and None not in self.positions.values()
        for where, offset in progress.items():
            if where in self.positions:
                self.positions[where] = offset
        self.pace = report.pace
        self.trusted |= self.positions.keys() & set(report.trusted)
        self.marks = report.marks
        if progress:
            self.failures = self.lost = 0
            self.careful = None
            self.retry.record_progress(progress)

    @property
    def batch_max(self) -> int | None:
        """Most records of one transaction: fewer while a culprit is looked for."""
        limits = [limit for limit in (self.retry.records_max, self.careful) if limit]
        return min(limits, default=None)

    def lose(self) -> None:
        """Note a task without a report; perhaps a record killed its process.

        From here on marks tell at which offset, and the next task calls what was in such hands in a
        process of its own. Transactions become smaller, so that what lies before is committed.
        """
        self.trusted = frozenset()
        self.marks = {}
        self.flowing = False
        self.lost += 1
        self.doubtful = True
        if self.lost > 1:
            before = self.pace if self.careful is None else self.careful
            self.careful = max(1, before // 10)

    def confirm(self, stable: Mapping[TopicPartition, int | None]) -> None:
        """Take what the group has committed in place of what we know."""
        if any(stable[where] != known for where, known in self.positions.items()):
            self.failures = self.lost = 0
        self.positions = dict(stable)
        self.doubtful = False

    def rest(self, now_s: float) -> None:
        """Wait a little longer after each failure."""
        self.failures += 1
        pause_s = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(self.failures - 1, 6))
        self.rest_until_s = now_s + pause_s


class Homes:
    """Which lane has which partition.

    A group of the classic protocol refuses every task that was planned before the assignment
    changed, so partitions are spread evenly each time. A KIP-848 group accepts such a task for a
    partition that stayed with us (measured): there a partition keeps its lane for as long as this
    process lives, so that an attempt that wakes up late meets the next one under the same
    transactional id, wherever the others went.
    """

    def __init__(self, lanes: int, *, sticky: bool) -> None:
        self.lanes = lanes
        self._sticky = sticky
        self._known: dict[TopicPartition, int] = {}

    def spread(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return by lane the partitions it has now."""
        ours = sorted(partitions)
        known = self._known if self._sticky else {}
        homes: dict[int, list[TopicPartition]] = {lane: [] for lane in range(self.lanes)}
        for where in ours:
            if where in known:
                homes[known[where]].append(where)
        for where in ours:
            if where not in known:
                lane = min(homes, key=lambda number: len(homes[number]))
                homes[lane].append(where)
                self._known[where] = lane
        return homes
