"""The driver of a Spark application: a member of the group that plans and never reads.

It holds the partitions, gives each lane one range after another, and lends its group metadata to
the tasks. What it knows of progress is what tasks reported; what is true is what the group has
committed, and every task asks for that first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError, MemberFencedError
from hapax.core.lag import GroupProgress
from hapax.core.limits import FenceBudget
from hapax.engines.hold import Hold
from hapax.engines.idle_offsets import EndOfRun
from hapax.engines.membership import Membership, cut_off
from hapax.engines.spark.lanes import Lanes
from hapax.engines.spark.plan import RangePlan

if TYPE_CHECKING:
    from hapax.core.records import Progress
    from hapax.engines.lifecycle import Process
    from hapax.engines.spark.lanes import Lane
    from hapax.engines.spark.ports import DriverSource, Fences, Jobs, Pacing
    from hapax.engines.spark.reports import Reports

BUSY_WAIT_S, IDLE_WAIT_S = 0.005, 0.05
"""How long the group is attended to between two checks of the jobs, and of the ends."""
LAG_INTERVAL_S = 1.0
ENDS_INTERVAL_S = 0.05
"""How soon the ends are asked for again while a lane has nothing to do."""
STAY_S = 0.25
"""How long a task waits after the last record. On an idle topic no task runs at all."""
RETRY_S = 0.2
EXECUTORS_INTERVAL_S = 10.0


class SparkEngine:
    """Plans ranges until asked to stop."""

    def __init__(
        self,
        process: Process,
        member: DriverSource,
        jobs: Jobs,
        *,
        fences: Fences,
        reports: Reports,
        pacing: Pacing,
    ) -> None:
        self._events = process.events
        self._clock = process.clock
        self._lifecycle = process.lifecycle
        self._member = member
        self._jobs = jobs
        self._reports = reports
        self._duration_s = pacing.duration_s
        self._task_max_s = pacing.task_max_s
        self._bounds = bounds = pacing.bounds
        # A bounded run ends at exact places.
        self._stay_s = 0.0 if bounds.counted or bounds.at_end else STAY_S
        self._lanes = Lanes(
            member, jobs, fences, attempts_max=pacing.attempts_max, sticky=pacing.sticky
        )
        self._ends: Progress = {}
        self._ends_seen_s = -LAG_INTERVAL_S
        self._retry_s = 0.0
        self._looked_s = self._clock.monotonic()
        self._membership = Membership(member, process.events, process.clock)
        self._hold = Hold(process.lifecycle, process.events)
        self._end = EndOfRun(process, member, bounds)

    def group_progress(self) -> GroupProgress:
        """Return what is committed, as far as reports say. Any thread may ask."""
        return GroupProgress(
            {
                where: offset
                for lane in self._lanes.all
                for where, offset in dict(lane.positions).items()
                if offset is not None
            }
        )

    def run(self) -> None:
        """Work until asked to stop or the bounded run is done; raises StopError otherwise."""
        try:
            self._work()
            self._drain()
        finally:
            self._reports.tell()

    def _work(self) -> None:
        while not self._lifecycle.stopping:
            try:
                self._turn()
                if self._done():
                    self._lifecycle.stop("the bounded run is done")
            except BatchAbortedError as error:
                self._events.producer_init_retried(str(error))
                self._retry_s = self._clock.monotonic() + RETRY_S
            except MemberFencedError as error:
                if self._reports.member_fenced(error, self._clock.monotonic()):
                    self._lifecycle.rest(FenceBudget.STAND_BACK_S)
                self._member.reopen()
                self._lanes.stale = True

    def _turn(self) -> None:
        self._member.attend(BUSY_WAIT_S if self._lanes.busy else IDLE_WAIT_S)
        self._events.loop_moved()
        if cut_off(self._member, self._events):
            self._member.renew()
            self._lanes.stale = True
        self._observe()
        held = self._hold.on()
        self._jobs.recall(wanted=self._lanes.working and (held or self._lanes.stale))
        self._collect()
        self._look_at_executors(self._clock.monotonic())
        if self._lifecycle.stopping or self._bounds.spent or held:
            return
        now_s = self._clock.monotonic()
        if now_s < self._retry_s or self._reports.holding(now_s):
            return
        if self._lanes.stale and self._lanes.share_out():
            self._ends, self._ends_seen_s = {}, -ENDS_INTERVAL_S
            self._jobs.recall(wanted=False)
            self._reports.shared_out()
            self._events.lanes_assigned(
                {lane.number: dict(lane.positions) for lane in self._lanes.all if lane.positions}
            )
        if not self._lanes.stale:
            self._lanes.ask_doubtful()
            self._plan(now_s)
        self._reports.tell()

    def _observe(self) -> None:
        changes = self._membership.observe()
        if changes.revoked or changes.lost or changes.assigned:
            self._lanes.stale = True
        self._membership.adopt_orphans()

    def _look_at_executors(self, now_s: float) -> None:
        """Take cores that came later; say so when no executor takes a range."""
        if now_s < self._looked_s + EXECUTORS_INTERVAL_S:
            return
        self._looked_s = now_s
        if not self._lifecycle.stopping:
            self._jobs.check()  # while nothing is planned no job would show that Spark is gone
        self._lanes.grow()
        since_s = max((now_s - lane.began_s for lane in self._lanes.all if lane.job), default=0.0)
        if since_s > self._duration_s + EXECUTORS_INTERVAL_S:
            self._events.executors_awaited(
                f"a range was planned {since_s:.0f} s ago: no executor is free for its task, or its"
                " task hangs"
            )

    # -- ranges ---------------------------------------------------------------------------

    def _plan(self, now_s: float) -> None:
        free = self._lanes.free()
        for lane in free:
            if lane.flowing:  # first, and without a question: records wait meanwhile
                self._start(lane, lane.wanted(self._ends))
        free = [lane for lane in free if lane.job is None]
        starved = any(not lane.wanted(self._ends) for lane in free)
        if free and now_s >= self._ends_seen_s + (ENDS_INTERVAL_S if starved else LAG_INTERVAL_S):
            self._ends = self._member.stable_ends(self._lanes.partitions)
            self._ends_seen_s = self._clock.monotonic()
        for lane in free:
            ends = lane.wanted(self._ends)
            if ends and now_s >= lane.rest_until_s and self._may_start():
                self._start(lane, ends)

    def _may_start(self) -> bool:
        """One range at a time where records are counted, so that the count is exact."""
        return not self._bounds.counted or not self._lanes.working

    def _start(self, lane: Lane, ends: Progress) -> None:
        stay_s = self._stay_s if self._lanes.staying else 0.0
        plan = RangePlan(
            lane=lane.number,
            member=self._member.member(),
            starts=lane.starts(ends, staying=stay_s > 0),
            ends=ends,
            cluster_id=self._member.cluster_id,
            duration_s=self._duration_s,
            stay_s=stay_s,
            pace=lane.pace,
            records_max=self._bounds.left,
            batch_max=lane.batch_max,
            attempt=lane.retry.attempt,
            rejected=lane.retry.rejected,
            failed=self._reports.dead_letter_rate.recent,
            trusted=lane.trusted,
            marks=lane.marks,
        )
        lane.began_s = self._clock.monotonic()
        lane.awaited, lane.flowing = ends, False
        lane.job = self._jobs.submit(plan)
        self._reports.tell()  # of the range before this one, if it is still to be reported
        self._events.range_started(lane.number, lane.positions, ends, plan.attempt)

    def _collect(self) -> None:
        self._reports.tell()
        for lane, job in self._lanes.finished(self._clock.monotonic() - self._task_max_s):
            now_s = self._clock.monotonic()
            try:
                report = job.result()
            except Exception as error:  # noqa: BLE001 - whatever Spark says of a task without report
                self._lose(lane, error, now_s)
            else:
                self._bounds.count(sum(settled.records for settled in report.settled))
                self._member.mark_processed(report.progress)
                self._reports.take(lane, report, now_s)

    def _lose(self, lane: Lane, error: Exception, now_s: float) -> None:
        if self._lifecycle.stopping:
            # A signal to the whole process group ends Spark as well.
            self._events.batch_abandoned(str(error))
            return
        self._jobs.check()
        self._reports.lost(lane, error, now_s)

    # -- the end --------------------------------------------------------------------------

    def _done(self) -> bool:
        if self._bounds.spent:
            return True
        if not self._end.due():
            return False
        known = {w: at for lane in self._lanes.all for w, at in lane.positions.items() if at}
        # A question for the group's offsets would wait for what running tasks have open.
        return self._end.reached(known, set(self._lanes.partitions))

    def _drain(self) -> None:
        """Let the running ranges end; they take no longer than their duration."""
        self._jobs.recall(wanted=True)
        alive = True
        while self._lanes.working and not self._lifecycle.overdue:
            self._collect()
            try:
                if alive:
                    self._member.attend(BUSY_WAIT_S)
                else:
                    self._lanes.wait(BUSY_WAIT_S)
            except (BatchAbortedError, MemberFencedError) as error:
                # Brokers that are away come back; a fenced member would raise at every turn.
                alive = isinstance(error, BatchAbortedError)
                self._events.batch_abandoned(str(error))
        for lane in self._lanes.all:
            if lane.job is not None:
                self._events.batch_abandoned(f"lane {lane.number}: its range did not end in time")
