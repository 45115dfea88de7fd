"""All lanes of one driver, and how the partitions come to them.

Assigned anew: wait for the running ranges, fence every lane (nothing late can commit any more),
read what is committed, spread the partitions, go on. Each step returns at once, so that the group
is attended to meanwhile.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.retry_policy import RetryPolicy
from hapax.engines.spark.lane import Homes, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from hapax.core.records import TopicPartition
    from hapax.engines.spark.plan import RangeReport
    from hapax.engines.spark.ports import DriverSource, Fences, Jobs

CANCEL_INTERVAL_S = 30.0


class Lanes:
    """The lanes, and whether they reflect what is assigned (``stale``: they do not)."""

    def __init__(
        self, member: DriverSource, jobs: Jobs, fences: Fences, *, attempts_max: int, sticky: bool
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
        """Add lanes for cores that came later, where partitions wait for them.

        Not in a KIP-848 group, whose partitions keep their lanes (see Homes).
        """
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
        """Whether a task runs."""
        return any(lane.job for lane in self.all)

    @property
    def busy(self) -> bool:
        """Whether something is under way whose end should be noticed soon."""
        return self.working or bool(self._fencing) or any(lane.fencing for lane in self.all)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of all lanes."""
        return [where for lane in self.all for where in lane.positions]

    @property
    def staying(self) -> bool:
        """Whether a task may stay: only where it keeps no other lane's task from starting."""
        return sum(bool(lane.positions) for lane in self.all) <= self._jobs.slots

    def free(self) -> list[Lane]:
        """Return the lanes that have partitions and no task."""
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
        """Return when a task ends, or after so long."""
        running = [lane.job for lane in self.all if lane.job is not None]
        wait(running, seconds, FIRST_COMPLETED)

    def share_out(self) -> bool:
        """Take the next step; True when the lanes reflect what is assigned now.

        Raises BatchAbortedError when brokers do not answer: call again.
        """
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
        """Fence all lanes; True once that is done."""
        if not self._fencing:
            wanted: list[Callable[[], None]] = [
                partial(self._fences.lane, lane.number) for lane in self.all
            ]
            if not self._alone:
                wanted.append(self._fences.predecessor)
            self._fencing = [self._jobs.call(function) for function in wanted]
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
