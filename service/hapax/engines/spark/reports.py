"""What the driver does with the report of a range. One reaction for each outcome.

Everything that a range committed counts first; then:

done     continue after it
claims   hold every lane until the claim store answers
aborted  plan again, smaller or without its culprits when the content is to blame
fenced   plan again, within a budget: a second process of this name would fence it indefinitely
dead     plan again; the next task registers a new producer anyway
stop     leave, with the task's exit code
lost     no report: plan again, a limited number of times without progress
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hapax.core.errors import (
    ClaimsUnavailableError,
    ExitCode,
    MemberFencedError,
    StopError,
)
from hapax.engines.hold import ClaimsWatch
from hapax.engines.spark.plan import RangeOutcome

if TYPE_CHECKING:
    from hapax.core.batch_result import BatchResult
    from hapax.core.limits import DeadLetterRate, FenceBudget
    from hapax.core.ports import Claims, Stuck
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.spark.lanes import Lane
    from hapax.engines.spark.plan import RangeReport
    from hapax.telemetry.events import Events

LOST_MAX = 10
"""Tasks of one lane in a row that end without a report and without progress."""
HOLD_S = 0.2
_PYTHON_ERROR = re.compile(r"(?:\w+\.)+\w*Error: ")


class TaskStopError(StopError):
    """What a task wants to leave with."""

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = ExitCode(exit_code)  # type: ignore[misc] # each instance has the task's own


class Reports:
    """Reacts to reports."""

    def __init__(
        self,
        *,
        events: Events,
        claims: Claims | None,
        fences: FenceBudget,
        member_fences: FenceBudget,
        dead_letter_rate: DeadLetterRate,
        pass_on_outage: bool = False,
    ) -> None:
        self._events = events
        self._claims = ClaimsWatch(events, claims, waits=not pass_on_outage)
        self._fences = fences
        self._member_fences = member_fences
        self.dead_letter_rate = dead_letter_rate
        self._held_since_s: float | None = None
        self._ask_s = 0.0
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
        match report.outcome:
            case RangeOutcome.DONE:
                self._found(lane.number)
                self._stick(lane.number, report.stuck)
                if not report.progress and lane.awaited:
                    lane.rest(now_s)  # nothing came of what exists: brokers are slow
            case RangeOutcome.CLAIMS | RangeOutcome.SCHEMAS:
                self._held(lane, report, now_s)
            case RangeOutcome.ABORTED:
                self._aborted(lane, report, now_s)
            case RangeOutcome.FENCED:
                self._events.producer_died(report.reason, fenced=True)
                self._fences.fence(now_s, explained=report.explained)
                lane.rest(now_s)
            case RangeOutcome.DEAD:
                self._events.producer_died(report.reason, fenced=False)
                lane.rest(now_s)
            case RangeOutcome.STOP:
                raise TaskStopError(report.exit_code, report.reason)

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
            raise StopError(
                f"{lane.lost} tasks of lane {lane.number} in a row ended without progress,"
                f" the last with {_named(lane)}. If it was one record that ended them, it is the"
                f" next of these. Spark says: {reason}"
            ) from error

    def member_fenced(self, error: MemberFencedError, now_s: float) -> bool:
        """Count it, return whether it counts; raise DuplicateInstanceError when it proves one."""
        self._events.member_fenced(str(error), explained=error.explained)
        return self._member_fences.fence(now_s, explained=error.explained)

    def holding(self, now_s: float) -> bool:
        """Whether the claim store is away; asks it now and then."""
        if self._held_since_s is None:
            try:
                self._claims.look(now_s)
            except ClaimsUnavailableError as error:
                self._hold(str(error), now_s)
        elif now_s >= self._ask_s:
            self._ask_s = now_s + HOLD_S
            if reason := self._claims.problem():
                self._events.claims_unavailable(reason, "pause")
            else:
                self._events.claims_recovered(now_s - self._held_since_s)
                self._held_since_s = None
        return self._held_since_s is not None

    # -- inside ---------------------------------------------------------------------------

    def tell(self) -> None:
        untold, self._untold = self._untold, []
        for report, round_s in untold:
            self._tell(report, round_s)

    def _tell(self, report: RangeReport, round_s: float) -> None:
        for settled in report.settled:
            self._settled(settled)
        if report.ended:
            self._events.idle_offsets_committed(report.ended)
        for where, count in report.repeated.items():
            self._events.records_redelivered(count, where)
        self._tell_suspects(report)
        self._tell_path(report)
        if report.halved:
            self._events.batch_halved(report.pace, report.reason)
        for line in report.lines:
            self._events.librdkafka_logged(*line)
        for doubt in report.doubts:
            self._events.in_doubt_fenced(doubt)
            self._events.producer_rebuilt("doubt", 0.0)
        for _ in range(report.emptied):
            self._events.claims_lost()
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
            everywhere = {
                where: one for each in self._stuck.values() for where, one in each.items()
            }
            self._events.partition_stuck(everywhere)

    def _tell_suspects(self, report: RangeReport) -> None:
        for suspected in report.suspected:
            self._events.records_isolated(*suspected)
        for killer in report.killers:
            self._events.crashing_record_found(*killer)
        for reason in report.isolation_failures:
            self._events.isolation_failed(reason)

    def _tell_path(self, report: RangeReport) -> None:
        if report.record_path:
            self._events.executor_seen(report.executor, report.record_path)
        if report.routes_lost:
            self._events.native_route_lost(report.routes_lost)
        if report.native_left:
            self._events.native_path_left(report.native_left)

    def _settled(self, settled: BatchResult) -> None:
        self._events.transaction_committed(settled)
        for coordinates, failure in settled.dead_letter_examples:
            self._events.dead_letter_written(
                coordinates, failure.reason, failure.attempts, failure.text
            )

    def _held(self, lane: Lane, report: RangeReport, now_s: float) -> None:
        if report.outcome is RangeOutcome.CLAIMS:
            self._hold(report.reason, now_s)
            return
        self._waiting.add(lane.number)
        self._events.schemas_unavailable(report.reason)
        lane.rest(now_s)

    def _found(self, lane: int) -> None:
        if lane in self._waiting:
            self._waiting.discard(lane)
            if not self._waiting:
                self._events.schemas_recovered()

    def _hold(self, reason: str, now_s: float) -> None:
        self._events.claims_unavailable(reason, "pause")
        if self._held_since_s is None:
            self._held_since_s = now_s
            self._ask_s = now_s + HOLD_S

    def _aborted(self, lane: Lane, report: RangeReport, now_s: float) -> None:
        starts = _starts(lane)
        self._events.batch_aborted(report.reason, report.records, lane.failures + 1, starts)
        if not lane.retry.blame(
            report.reason,
            report.records,
            report.suspect,
            culprits=report.culprits,
            content=report.content,
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


def cause(error: Exception) -> str:
    """Return the line of Spark's long story that says what happened."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    named = [line for line in lines if _PYTHON_ERROR.match(line)]
    telling = [line for line in lines if "Error" in line or "Exception" in line or "crash" in line]
    return (named or telling or lines or [type(error).__name__])[0]


def _starts(lane: Lane) -> Progress:
    return {where: known for where, known in lane.positions.items() if known is not None}


def _named(lane: Lane) -> str:
    return ", ".join(
        f"{topic}/{partition} at {'its beginning' if known is None else known}"
        for (topic, partition), known in lane.positions.items()
    )
