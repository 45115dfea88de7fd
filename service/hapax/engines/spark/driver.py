"""The driver of a Spark application: a member of the group that plans and never reads.

It holds the partitions, gives each lane one range after another, and lends its group metadata to
the tasks. What it knows of progress is what tasks reported; what is true is what the group has
committed, and every task asks for that first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.cluster.lag import GroupProgress
from hapax.core import errors
from hapax.engines.idle_offsets import EndOfRun
from hapax.engines.membership import ClaimsWatch, Hold, Membership, cut_off, tell_committed
from hapax.engines.overlapping_calls import add_counted
from hapax.engines.spark.jvm import cause
from hapax.engines.spark.lanes import Lanes
from hapax.engines.spark.plan import RangePlan
from hapax.processing.limits import FenceBudget

if TYPE_CHECKING:
    from hapax.core.ports import Claims, Stuck
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.lifecycle import Process
    from hapax.engines.spark.executors import SparkJobs
    from hapax.engines.spark.lanes import Lane
    from hapax.engines.spark.plan import DriverSource, Fences, Pacing, RangeReport
    from hapax.processing.limits import DeadLetterRate, Limits
    from hapax.telemetry.events import Events

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
        jobs: SparkJobs,
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
        self._stay_s = STAY_S if bounds.left is None and not bounds.at_end else 0.0
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
        known = (place for lane in self._lanes.all for place in _starts(lane).items())
        return GroupProgress(dict(known))

    def run(self) -> None:
        """Work until asked to stop or the bounded run is done; raises StopError otherwise."""
        try:
            self._work()
            self._events.service_draining(self._lifecycle.reason)
            self._drain()
        finally:
            self._reports.tell()

    def _work(self) -> None:
        while not self._lifecycle.stopping:
            try:
                self._turn()
                if self._done():
                    self._lifecycle.stop("the bounded run is done")
            except errors.BatchAbortedError as error:
                self._events.producer_init_retried(str(error))
                self._retry_s = self._clock.monotonic() + RETRY_S
            except errors.MemberFencedError as error:
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
        if self._membership.observe().moved:
            self._lanes.stale = True
        self._membership.adopt_orphans()
        held = self._hold.on()
        self._jobs.recall(wanted=self._lanes.working and (held or self._lanes.stale))
        self._collect()
        self._look_at_executors(self._clock.monotonic())
        if self._lifecycle.stopping or self._bounds.spent or held:
            return
        now_s = self._clock.monotonic()
        if now_s < self._retry_s or self._reports.claims.holding(now_s):
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
            # One range at a time where records are counted, so that the count is exact.
            may_start = self._bounds.left is None or not self._lanes.working
            if ends and now_s >= lane.rest_until_s and may_start:
                self._start(lane, ends)

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
                if self._lifecycle.stopping:
                    # A signal to the whole process group ends Spark as well.
                    self._events.batch_abandoned(str(error))
                    continue
                self._jobs.check()
                self._reports.lost(lane, error, now_s)
            else:
                self._bounds.count(sum(settled.records for settled in report.settled))
                self._member.mark_processed(report.progress)
                self._reports.take(lane, report, now_s)

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
            except (errors.BatchAbortedError, errors.MemberFencedError) as error:
                # Brokers that are away come back; a fenced member would raise at every turn.
                alive = isinstance(error, errors.BatchAbortedError)
                self._events.batch_abandoned(str(error))
        for lane in self._lanes.all:
            if lane.job is not None:
                self._events.batch_abandoned(f"lane {lane.number}: its range did not end in time")


# -- What the driver does with the report of a range ----------------------------------------------


LOST_MAX = 10
"""Tasks of one lane in a row that end without a report and without progress."""


class Reports:
    """Reacts to reports."""

    def __init__(
        self,
        events: Events,
        claims: Claims | None,
        limits: Limits,
        dead_letter_rate: DeadLetterRate,
    ) -> None:
        self._events = events
        self.claims = ClaimsWatch(events, claims, waits=not limits.pass_on_outage)
        self._fences = limits.producer_fences
        self._member_fences = limits.member_fences
        self.dead_letter_rate = dead_letter_rate
        self._waiting: set[int] = set()
        """Lanes whose last range ended at a record that waits for a schema."""
        self._untold: list[tuple[RangeReport, float]] = []
        """What is reported once the lane's next range is on its way, and how long the range took.
        """
        self._stuck: dict[int, dict[TopicPartition, Stuck]] = {}
        """By lane, as its last whole range found it."""

    def take(self, lane: Lane, report: RangeReport, now_s: float) -> None:
        self._untold.append((report, now_s - lane.began_s))
        for settled in report.settled:
            self.dead_letter_rate.record_batch(settled.records, settled.dead_letters)
            self._fences.commit()
        lane.record_report(report)
        if not lane.flowing:
            self.tell()
        match report.error:
            case None:
                self._found(lane.number)
                self._stick(lane.number, report.stuck)
                if not report.progress and lane.awaited:
                    lane.rest(now_s)  # nothing came of what exists: brokers are slow
            case errors.ClaimsUnavailableError() as error:
                self.claims.hold(str(error), now_s)
            case errors.SchemasUnavailableError() as error:
                self._waiting.add(lane.number)
                self._events.schemas_unavailable(str(error))
                lane.rest(now_s)
            case errors.BatchAbortedError() as error:
                self._aborted(lane, report, error, now_s)
            case errors.ProducerDeadError() as error:
                self._events.producer_died(str(error), fenced=error.fenced)
                if error.fenced:
                    self._fences.fence(now_s, explained=report.explained)
                lane.rest(now_s)
            case error:
                raise error

    def shared_out(self) -> None:
        """Forget what was stuck: the next ranges report it, where still assigned."""
        if any(self._stuck.values()):
            self._events.partition_stuck({})
        self._stuck = {}

    def lost(self, lane: Lane, error: Exception, now_s: float) -> None:
        """React to a task without a report. Raises StopError when it cannot continue like this."""
        lane.rest(now_s)
        lane.lose()
        reason = cause(error)
        self._events.task_lost(lane.number, reason, lane.lost, _starts(lane))
        if lane.lost >= LOST_MAX:
            raise errors.StopError(
                f"{lane.lost} tasks of lane {lane.number} in a row ended without progress,"
                f" the last with {_named(lane)}. If it was one record that ended them, it is the"
                f" next of these. Spark says: {reason}"
            ) from error

    def member_fenced(self, error: errors.MemberFencedError, now_s: float) -> bool:
        """Count it, return whether it counts; raise DuplicateInstanceError when it proves one."""
        self._events.member_fenced(str(error), explained=error.explained)
        return self._member_fences.fence(now_s, explained=error.explained)

    # -- inside ---------------------------------------------------------------------------

    def tell(self) -> None:
        untold, self._untold = self._untold, []
        for report, round_s in untold:
            for settled in report.settled:
                tell_committed(settled, self._events)
            if report.ended:
                self._events.idle_offsets_committed(report.ended)
            add_counted(report.counted)
            for name, said in report.events:
                getattr(self._events, name)(*said)
            self._events.range_completed(
                report.lane,
                str(report.outcome),
                _spans(report),
                transactions=len(report.settled) + bool(report.ended),
                records=sum(settled.records for settled in report.settled),
                open_s=report.open_s,
                work_s=report.work_s,
                round_s=round_s,
            )

    def _stick(self, lane: int, stuck: dict[TopicPartition, Stuck]) -> None:
        if stuck != self._stuck.get(lane, {}):
            self._stuck[lane] = stuck
            found = {where: one for each in self._stuck.values() for where, one in each.items()}
            self._events.partition_stuck(found)

    def _found(self, lane: int) -> None:
        if lane in self._waiting:
            self._waiting.discard(lane)
            if not self._waiting:
                self._events.schemas_recovered()

    def _aborted(
        self, lane: Lane, report: RangeReport, error: errors.BatchAbortedError, now_s: float
    ) -> None:
        reason = str(error)
        self._events.batch_aborted(reason, report.records, lane.failures + 1, _starts(lane))
        if not lane.retry.blame(
            reason,
            report.records,
            report.suspect,
            culprits=error.culprits,
            content=error.content,
            on_halved=self._events.batch_halved,
        ):
            lane.rest(now_s)


def _spans(report: RangeReport) -> dict[TopicPartition, tuple[int, int]]:
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for settled in report.settled:
        for where, (first, offset) in settled.offsets.items():
            spans[where] = (spans.get(where, (first, 0))[0], offset)
    for where, end in report.ended.items():
        spans[where] = (spans.get(where, (end, 0))[0], end)
    return spans


def _starts(lane: Lane) -> Progress:
    # Of a copy: the thread of the lag monitor asks, too.
    return {where: known for where, known in dict(lane.positions).items() if known is not None}


def _named(lane: Lane) -> str:
    return ", ".join(
        f"{topic}/{partition} at {'its beginning' if known is None else known}"
        for (topic, partition), known in lane.positions.items()
    )
