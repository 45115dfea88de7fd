"""One range, within a task of Spark: the worker's own core on the partitions of one lane.

1. read ahead from the offsets that the driver knows of, while
2. a producer of the lane's transactional id is registered: from here on no earlier attempt at
   these partitions can commit (KIP-98), and
3. the group's committed offsets are read: what an earlier attempt came to
4. batch after batch through the core, until the ends, the time or the records are used up; a task
   that stays continues after the ends for as long as records keep coming
5. commit what lies after the last records: control records, aborted data

Whatever goes wrong ends the range with a report; the driver plans again from what is committed,
also where the process has died: the lane's next registration aborts its transaction. What the
worker keeps of a partition (processing/crash_markers.py) travels with plans and reports:

trusted  a range of this partition was done since it was shared out, and no task was lost since: its
         records are neither marked nor suspected
marks    in metadata of offsets although their writer has reported
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hapax.core.errors import BatchAbortedError, MemberFencedError, ProducerDeadError, StopError
from hapax.engines.batch_runner import BatchRunner
from hapax.engines.membership import tell_reading
from hapax.engines.recovery import REACTIONS
from hapax.engines.spark.plan import RangeReport
from hapax.engines.suspects import Suspects
from hapax.telemetry.line_queue import write_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import Clock
    from hapax.core.record_path import Batch
    from hapax.core.records import Coordinates, Progress, TopicPartition
    from hapax.engines.batch_runner import Sizing
    from hapax.engines.spark.plan import RangePlan, RangeSource, RecordedEvents, TaskTransaction
    from hapax.engines.watchdog import Watchdog
    from hapax.processing.batch_result import Core
    from hapax.processing.crash_markers import Isolation
    from hapax.telemetry.events import Events

WAIT_S = 0.05
SETTLED_MAX = 1000
"""Transactions of one report, after which a task does not stay: the driver hears of them late."""
LINES_MAX = 50
WARNING = 30


class TaskSuspects(Suspects):
    """The suspects of one task: begins with what the lane knows, reports what it learns."""

    def begin(self, plan: RangePlan, report: RangeReport) -> None:
        # While brokers refuse what a batch holds, the commit of a mark would end the reports that
        # say which message it is; a task that is lost then is marked in its next attempt.
        self._marks = plan.attempt == 1
        self._trusted |= plan.trusted
        self._ours |= plan.marks
        self._report = report

    def finish(self) -> None:
        """Clear the marks at the end of a range; what is not suspected is trusted from here on."""
        self.leave()
        proven = self._trusted | self._probation.keys()
        self._report.trusted = sorted(proven - self._isolation.suspects.keys())

    def report_marks(self) -> None:
        """Report the marks that remain; call whatever the range ended in."""
        own = {where: one.mark for where, one in self._probation.items() if one.mark is not None}
        self._report.marks = {**self._ours, **own}

    def fail(self) -> None:
        """Take note that a transaction failed: the marks before it may still be committed."""
        self.report_marks()
        super().fail()


class Task(ABC):
    """One attempt at one plan; wiring/task.py has its parts, which are built when they are needed.

    records_max            most records of one transaction
    transaction_timeout_s  a transaction that was open for longer explains a fence
    """

    clock: Clock
    sizing: Sizing
    interrupt: Interrupt
    watchdog: Watchdog
    records_max: int
    transaction_timeout_s: float

    def __init__(self, plan: RangePlan) -> None:
        self._plan = plan
        self._report = RangeReport(lane=plan.lane, pace=plan.pace)
        self._events = cast("Events", _Recorded(self._report.events))
        self._begun: set[TopicPartition] = set()
        self._ends: Progress = {}
        self._began_s = self._idle_since_s = 0.0

    @abstractmethod
    def clients(self) -> tuple[RangeSource, TaskTransaction]:
        """Return both sides of the lane; neither has asked a broker yet."""

    @abstractmethod
    def isolation(self) -> Isolation:
        """Return the transform."""

    @abstractmethod
    def core(
        self, source: RangeSource, transaction: TaskTransaction, isolation: Isolation, on: ExitStack
    ) -> Core:
        """Return the core; what it has opened is closed when ``on`` unwinds."""

    def run(self) -> RangeReport:
        report, self._began_s = self._report, self.clock.monotonic()
        with ExitStack() as stack:
            self.watchdog.start()
            stack.callback(self.watchdog.stop)
            try:
                self._work(stack)
            except MemberFencedError as error:
                report.error = BatchAbortedError(str(error))  # the driver is the member
            except (*REACTIONS, StopError) as error:
                report.error = error.with_traceback(None)
                if isinstance(error, ProducerDeadError):
                    report.explained = self._transaction.age_s >= self.transaction_timeout_s
        report.work_s = self.clock.monotonic() - self._began_s
        return report

    # -- steps ----------------------------------------------------------------------------

    def _work(self, stack: ExitStack) -> None:
        plan = self._plan
        self._source, self._transaction = source, transaction = self.clients()
        stack.callback(transaction.close)
        source.place()  # 1
        isolation = self.isolation()
        stack.callback(isolation.close)
        if plan.attempt > 1 or plan.batch_max is not None or plan.rejected:
            transaction.diagnose()
        transaction.open()  # 2
        self._certain = source.confirm()  # 3
        self._report.open_s = self.clock.monotonic() - self._began_s
        core = self.core(source, transaction, isolation, stack)
        self._suspects = suspects = TaskSuspects(
            source, core, isolation, self._events, records_max=self.records_max
        )
        suspects.begin(plan, self._report)
        self._runner = BatchRunner(
            core, source, suspects, self.sizing, interrupt=self.interrupt, watchdog=self.watchdog
        )
        self._finish()

    def _finish(self) -> None:
        report, runner = self._report, self._runner
        try:
            self._take_all()  # 4
            self._end()  # 5
            self._suspects.finish()
            self._suspects.report_marks()
            self._fence_doubt()
        except REACTIONS as error:
            if runner.fail(error):
                self._events.batch_halved(self.sizing.pace.records, str(error))
            report.records = len(runner.batch.records)
            if runner.batch.records:
                report.suspect = runner.batch.coordinates(0)
            raise
        finally:
            runner.give_up()
            report.pace = self.sizing.pace.records
            tell_reading(self._source.changes(), self._events)
            report.stuck = dict(self._source.stuck())

    def _take_all(self) -> None:
        self._idle_since_s = self.clock.monotonic()
        until_s = self._idle_since_s + self._plan.duration_s
        due = partial(self._due, until_s)
        while self._runner.waiting or due():
            batch = self._runner.take(WAIT_S)
            self._ends |= {at: end for at, end in batch.next.items() if at not in batch.first}
            if not batch.records:
                continue
            new = batch.first.keys() - self._begun
            batch.base.update({at: self._certain[at] for at in new & self._certain.keys()})
            self._begun |= new
            self._run(batch, due)
            self._idle_since_s = self.clock.monotonic()
            self.sizing.retry.succeed()
        self._report.flowing = self._flowing() and not self._recalled()

    def _due(self, until_s: float) -> bool:
        if self.sizing.bounds.spent or self.clock.monotonic() >= until_s or self._recalled():
            return False
        stays = self._flowing() and len(self._report.settled) < SETTLED_MAX
        return stays or self._behind()

    def _flowing(self) -> bool:
        return self.clock.monotonic() - self._idle_since_s < self._plan.stay_s

    def _recalled(self) -> bool:
        return self._plan.recall is not None and Path(self._plan.recall).exists()

    def _run(self, batch: Batch, due: Callable[[], bool]) -> None:
        """Give one batch its effects; where more is due, let the claim of the next one travel."""
        self._suspects.mark(batch)
        self._fence_doubt()
        plan = self._plan
        if plan.attempt == 1 and not plan.rejected and due():
            self._runner.look_ahead()
        result = self._runner.run(self._plan.rejected, self._plan.attempt)
        assert result is not None  # a task gathers its calls
        self._report.settled.append(result)
        self._certain |= result.progress
        for where in result.progress:
            self._ends.pop(where, None)
        self._runner.settle(batch, result)
        self._fence_doubt()

    def _end(self) -> None:
        certain = self._certain
        behind = {where: end for where, end in self._ends.items() if end > certain.get(where, -1)}
        if behind:
            self._runner.end(behind)
            self._report.ended = behind
            self._fence_doubt()

    def _behind(self) -> bool:
        """Whether a partition has not come to its end.

        One that the group knows nothing of has not before its beginning is known, which an empty
        partition only does by its end.
        """
        positions, known = self._source.positions(), self._certain.keys() | self._ends.keys()
        return any(
            positions.get(where, -1) < end or where not in known
            for where, end in self._plan.ends.items()
        )

    def _fence_doubt(self) -> None:
        """Build a new producer when a request of the last transaction may still be on its way."""
        if doubts := list(self._transaction.doubts):
            self._events.in_doubt_fenced(doubts[0])
            self._transaction.open()
            self._events.producer_rebuilt("doubt", 0.0)


class _Recorded:
    """Events as a report takes them to the driver: of the clients' log warnings, and some."""

    def __init__(self, recorded: RecordedEvents) -> None:
        self._recorded = recorded

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *said: self._recorded.append((name, said))

    def librdkafka_logged(self, *line: Any) -> None:
        """Keep a line; called from the client's own C code, so it never raises."""
        kept = sum(name == "librdkafka_logged" for name, _said in self._recorded)
        if line[1] >= WARNING and kept < LINES_MAX:
            self._recorded.append(("librdkafka_logged", line))


def overrun(call: str, seconds: float) -> None:
    """Say why this Python process is about to end itself; Spark starts another one."""
    _say(f"{call} has taken {seconds:.0f} s and never returns")


def hung(coordinates: Coordinates, seconds: float) -> None:
    """Report the record; this Python process ends, and its driver sees a lost task."""
    _say(
        f"the transform has not returned from record {coordinates} for {seconds:.1f} s"
        " (HAPAX_CALL__TIMEOUT): the process of this task ends; when the record hangs again it"
        " becomes a dead letter"
    )


def _say(text: str) -> None:
    write_within(lambda: sys.stderr.write(f"hapax task: {text}\n"))
