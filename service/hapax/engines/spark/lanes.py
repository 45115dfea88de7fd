"""All lanes of one driver, and how the partitions come to them.

After an assignment: wait for the running ranges, fence every lane (nothing late can commit any
more), read what is committed, spread the partitions, continue. Each step returns at once, so that
the group is attended to meanwhile.

A lane is a share of the partitions, worked on by one task at a time. It has one transactional id
for as long as it has these partitions, so whatever runs late of an earlier attempt at them is
fenced by the next one.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from typing import TYPE_CHECKING, Any

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.processing.limits import Pace, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from hapax.core.offset_commit import Marks
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.spark.executors import SparkJobs
    from hapax.engines.spark.plan import DriverSource, Fences, RangeReport

BACKOFF_S, BACKOFF_MAX_S = 0.05, 1.0
CANCEL_INTERVAL_S = 30.0


class Lane:
    """What the driver knows of one lane."""

    def __init__(self, number: int, retry: RetryPolicy) -> None:
        self.number = number
        self.retry = retry
        self.pace = Pace.START
        self.awaited: Progress = {}
        """The ends that the newest range was planned with."""
        self.began_s = self.cancelled_s = 0.0
        self.job: Future[Any] | None = None
        self.take_over({})

    def take_over(self, positions: dict[TopicPartition, int | None]) -> None:
        self.positions = positions
        self.retry.rejected = {}
        self.failures = 0
        """Attempts since the last one that committed anything."""
        self.lost = 0
        """Those of them that ended without a report."""
        self.doubtful = False
        """A task was lost: what it had committed has to be asked for."""
        self.trusted: frozenset[TopicPartition] = frozenset()
        self.marks: Marks = {}
        """Of earlier ranges, left in metadata of offsets by tasks that have reported."""
        self.fencing: Future[None] | None = None
        self.careful: int | None = None
        self.rest_until_s = 0.0
        self.flowing = False
        """Records kept coming when the last range ended: the next one needs no ends to begin."""

    def wanted(self, ends: Progress) -> Progress:
        """Return them; without an offset even empty ones: their beginning is committed first."""
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

        From here on marks show at which offset, and the next task calls what was in such hands in a
        process of its own. Transactions become smaller, so that what lies before is committed.
        """
        self.trusted = frozenset()
        self.marks = {}
        self.flowing = False
        self.retry.attempts = 0  # a second attempt writes no marks
        self.lost += 1
        self.doubtful = True
        if self.lost > 1:
            before = self.pace if self.careful is None else self.careful
            self.careful = max(1, before // 10)

    def confirm(self, stable: Mapping[TopicPartition, int | None]) -> None:
        """Take what the group has committed in place of what is known here."""
        if any(stable[where] != known for where, known in self.positions.items()):
            self.failures = self.lost = 0
        self.positions = dict(stable)
        self.doubtful = False

    def rest(self, now_s: float) -> None:
        self.failures += 1
        pause_s = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(self.failures - 1, 6))
        self.rest_until_s = now_s + pause_s


class Homes:
    """Which lane has which partition.

    A group of the classic protocol refuses every task that was planned before the assignment
    changed, so partitions are spread evenly each time. A KIP-848 group accepts such a task for a
    partition that stayed with the driver (measured): there a partition keeps its lane for as long
    as this process lives, so that an attempt that wakes up late meets the next one under the same
    transactional id, wherever the others went.
    """

    def __init__(self, lanes: int, *, sticky: bool) -> None:
        self.lanes = lanes
        self._sticky = sticky
        self._known: dict[TopicPartition, int] = {}

    def spread(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        known = self._known if self._sticky else {}
        homes: dict[int, list[TopicPartition]] = {lane: [] for lane in range(self.lanes)}
        for where in sorted(partitions, key=lambda where: (where not in known, where)):
            lane = known.get(where)
            if lane is None:
                lane = self._known[where] = min(homes, key=lambda number: len(homes[number]))
            homes[lane].append(where)
        return homes


class Lanes:
    """The lanes, and whether they reflect what is assigned (``stale``: they do not)."""

    def __init__(
        self,
        member: DriverSource,
        jobs: SparkJobs,
        fences: Fences,
        *,
        attempts_max: int,
        sticky: bool,
    ) -> None:
        self._member = member
        self._jobs = jobs
        self._fences = fences
        self._sticky = sticky
        self._attempts_max = attempts_max
        self._homes = Homes(0, sticky=sticky)
        self._fencing: list[Future[None]] = []
        self._alone = False
        self.all: list[Lane] = []
        self._add(jobs.lanes)
        self.stale = True

    def grow(self) -> None:
        """Add lanes for cores that came later, but not in a KIP-848 group (see Homes)."""
        if not self._sticky and len(self.all) < len(self.partitions):
            wanted = min(self._jobs.lanes, len(self.partitions))
            if wanted > len(self.all):
                self._add(wanted)
                self.stale = True

    def _add(self, lanes: int) -> None:
        more = range(len(self.all), lanes)
        self.all += [Lane(number, RetryPolicy(self._attempts_max)) for number in more]
        self._homes.lanes = lanes

    @property
    def working(self) -> bool:
        return any(lane.job for lane in self.all)

    @property
    def busy(self) -> bool:
        """Whether something is under way whose end should be noticed soon."""
        return self.working or bool(self._fencing) or any(lane.fencing for lane in self.all)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [where for lane in self.all for where in lane.positions]

    @property
    def staying(self) -> bool:
        """Whether a task may stay: only where it keeps no other lane's task from starting."""
        return sum(bool(lane.positions) for lane in self.all) <= self._jobs.slots

    def free(self) -> list[Lane]:
        return [
            lane for lane in self.all if lane.positions and lane.job is None and not lane.doubtful
        ]

    def ask_doubtful(self) -> None:
        """Find out what lost tasks had committed: fence their lane, then ask the group.

        Without the fence the question would wait for the transaction that the task left open.
        Raises BatchAbortedError when brokers do not answer: call again.
        """
        for lane in self.all:
            if not lane.doubtful:
                continue
            if lane.fencing is None:
                lane.fencing = self._jobs.call(partial(self._fences.lane, lane.number))
            elif lane.fencing.done():
                fencing, lane.fencing = lane.fencing, None
                _finish(fencing)
                lane.confirm(self._member.committed(lane.positions))

    def finished(self, overdue_s: float) -> Iterator[tuple[Lane, Future[RangeReport]]]:
        """Yield the lanes whose task has ended; cancel those that began before ``overdue_s``."""
        for lane in self.all:
            job = lane.job
            if job is not None and job.done():
                lane.job = None
                yield lane, job
            elif job is not None and max(lane.began_s, lane.cancelled_s) < overdue_s:
                # One that resists is cancelled again, but not at every turn.
                lane.cancelled_s = overdue_s + CANCEL_INTERVAL_S
                self._jobs.cancel(lane.number)

    def wait(self, seconds: float) -> None:
        running = [lane.job for lane in self.all if lane.job is not None]
        wait(running, seconds, FIRST_COMPLETED)

    def share_out(self) -> bool:
        """Take a step; True when done. BatchAbortedError: no answer, call again."""
        if self.working:
            return False  # they are recalled, and the broker refuses what moved: they end soon
        ours = self._member.assignment()
        if ours and not self._fenced():
            return False
        # Only now: what an earlier task left open is decided, so the answer is final.
        stable = self._member.committed(ours)
        fresh = sorted(where for where, offset in stable.items() if offset is None)
        places = self._member.begin(fresh)
        if places is None:
            return False
        stable |= places
        homes = self._homes.spread(ours)
        for lane in self.all:
            lane.take_over({where: stable[where] for where in homes[lane.number]})
        self.stale = False
        return True

    def _fenced(self) -> bool:
        if not self._fencing:
            call, fences = self._jobs.call, self._fences
            self._fencing = [call(partial(fences.lane, lane.number)) for lane in self.all]
            if not self._alone:
                self._fencing.append(call(fences.predecessor))
        if not all(job.done() for job in self._fencing):
            return False
        fencing, self._fencing = self._fencing, []
        for job in fencing:
            _finish(job)
        self._alone = True
        return True


def _finish(fencing: Future[None]) -> None:
    try:
        fencing.result()
    except ProducerDeadError as error:
        raise BatchAbortedError(str(error)) from error
