"""One range, within a task of Spark: the worker's own core on the partitions of one lane.

1. read ahead from the offsets that the driver knows of, while
2. a producer of the lane's transactional id is registered: from here on no earlier attempt at
   these partitions can commit (KIP-98), and
3. the group's committed offsets are read: what an earlier attempt came to
4. batch after batch through the core, until the ends, the time or the records are used up
5. commit what lies behind the last records: control records, aborted data

Nothing is repaired here. Whatever goes wrong ends the range with a report; the driver reacts and
plans again from what is committed. A task that is killed leaves an open transaction, which the
lane's next registration aborts.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hapax.core.errors import (
    BatchAbortedError,
    ClaimsUnavailableError,
    MemberFencedError,
    ProducerDeadError,
    StopError,
)
from hapax.core.interrupt import Interrupt
from hapax.core.limits import Pace
from hapax.core.ports import Batch
from hapax.core.retry_policy import RetryPolicy
from hapax.engines.spark.plan import RangeOutcome, RangePlan, RangeReport
from hapax.engines.watchdog import Watchdog
from hapax.kafka.consume.range_source import KafkaRange
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import consumer_properties, lane_id, producer_properties
from hapax.kafka.read.claim_owners import KafkaOwners
from hapax.wiring.builders import (
    CUT_AFTER_S,
    SystemClock,
    call_limit_s,
    core,
    producer_config,
)
from hapax.wiring.claims import claim_store
from hapax.wiring.task_suspects import TaskSuspects, hung, task_isolation
from hapax.wiring.tracing import flush_traces, traced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.core.ports import Core
    from hapax.core.records import Progress, TopicPartition
    from hapax.settings import Settings

WAIT_S = 0.05
FETCH_WAIT_MS = 5
"""A range has an end that is known to be there; brokers need not wait for more than that. The last
records' control record is only noticed by an empty fetch, so its wait would be added to the range.
"""
LINES_MAX = 50
WARNING = 30


def run_plans(
    settings: Settings, plans: Iterable[RangePlan], *, cluster_id: str | None = None
) -> Iterator[RangeReport]:
    """Run each plan of a Spark partition; this is the function that executors import.

    ``cluster_id``: of the brokers, as the driver knows it; claims of another cluster are refused.
    """
    for plan in plans:
        yield Task(settings, plan, cluster_id=cluster_id).run()


class _Lines:
    """The clients' log within a task: warnings travel with the report."""

    def __init__(self, report: RangeReport) -> None:
        self._report = report

    def librdkafka_logged(self, client: str, level: int, facility: str, text: str) -> None:
        """Keep a line; called from the client's own C code, so it never raises."""
        if level >= WARNING and len(self._report.lines) < LINES_MAX:
            self._report.lines.append((client, level, facility, text))

    def log(self, level: int, _form: str, *parts: object) -> None:
        """Take a line as a consumer's logger gets it."""
        facility, text = (str(parts[0]), str(parts[-1])) if parts else ("?", "")
        self.librdkafka_logged("consumer", level, facility, text)


class Task:
    """One attempt at one plan."""

    def __init__(
        self, settings: Settings, plan: RangePlan, *, cluster_id: str | None = None
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._cluster_id = cluster_id
        self._begun: set[TopicPartition] = set()
        self._clock = SystemClock()
        self._began_s = time.monotonic()
        self._report = RangeReport(lane=plan.lane, pace=plan.pace)
        self._batch = Batch([], {}, {})
        self._interrupt = Interrupt()
        self._watchdog = Watchdog(settings.watchdog.timeout_ms / 1000, on_overrun=_overrun)
        limits = settings.transaction
        self._pace = Pace(
            interval_s=limits.interval_ms / 1000,
            records_max=limits.records_max,
            bytes_max=limits.bytes_max,
            transaction_timeout_s=limits.timeout_ms / 1000,
            start=plan.pace,
        )
        self._watchdog.limit_calls(self._interrupt, call_limit_s(settings), hung)

    def run(self) -> RangeReport:
        """Return how it went; raises only what nobody foresaw."""
        report = self._report
        with ExitStack() as stack:
            self._watchdog.start()
            stack.callback(self._watchdog.stop)
            try:
                self._work(stack)
            except ClaimsUnavailableError as error:
                report.outcome, report.reason = RangeOutcome.CLAIMS, str(error)
            except (BatchAbortedError, MemberFencedError) as error:
                report.outcome, report.reason = RangeOutcome.ABORTED, str(error)
                report.records = len(self._batch.records)
                if self._batch.records:
                    report.suspect = self._batch.records[0].coordinates
                if isinstance(error, BatchAbortedError):
                    report.content, report.culprits = error.content, dict(error.culprits)
            except ProducerDeadError as error:
                report.outcome = RangeOutcome.FENCED if error.fenced else RangeOutcome.DEAD
                report.reason = str(error)
                age_s = self._transaction.age_s
                report.explained = age_s >= self._settings.transaction.timeout_ms / 1000
            except StopError as error:
                report.outcome, report.reason = RangeOutcome.STOP, str(error)
                report.exit_code = int(error.exit_code)
        report.work_s = time.monotonic() - self._began_s
        return report

    # -- steps ----------------------------------------------------------------------------

    def _work(self, stack: ExitStack) -> None:
        settings, plan, report = self._settings, self._plan, self._report
        self._build()
        stack.callback(self._transaction.close)
        self._source.place()  # 1
        isolation = task_isolation(settings, report)
        stack.callback(isolation.close)
        if plan.attempt > 1 or plan.batch_max is not None:
            self._transaction.diagnose()
        self._transaction.open()  # 2
        self._certain = self._source.confirm()  # 3
        report.open_s = time.monotonic() - self._began_s
        claims = claim_store(settings, on_emptied=self._emptied, cluster_id=self._cluster_id)
        owners = None
        if claims is not None:
            stack.callback(claims.close)
            owners = KafkaOwners(settings, watch=self._watchdog.watch)
            stack.callback(owners.close)
        run = traced(
            settings,
            core(
                settings,
                self._source,
                self._transaction,
                claims,
                isolation,
                clock=self._clock,
                interrupt=self._interrupt,
                failed=plan.failed,
                owners=owners,
            ),
        )
        stack.callback(flush_traces, settings)
        self._ends: Progress = {}
        self._suspects = TaskSuspects(
            self._source,
            run,
            isolation,
            plan,
            report,
            records_max=settings.transaction.records_max,
        )
        try:
            self._take_all(run)  # 4
            self._end(run)  # 5
            self._suspects.finish()
            self._suspects.tell()
            self._fence_doubt()
        except (
            BatchAbortedError,
            MemberFencedError,
            ProducerDeadError,
            ClaimsUnavailableError,
        ) as error:
            self._suspects.fail()
            report.halved = self._pace.fail(len(self._batch.records), error.transaction_s)
            raise
        finally:
            report.pace = self._pace.records
            report.repeated = self._source.changes().repeated
            report.stuck = dict(self._source.stuck())

    def _build(self) -> None:
        settings, plan = self._settings, self._plan
        lines = _Lines(self._report)
        name = lane_id(settings, plan.lane)
        self._source = KafkaRange(
            consumer_properties(settings) | {"client.id": name, "fetch.wait.max.ms": FETCH_WAIT_MS},
            plan.starts,
            member=plan.member,
            cluster_id=plan.cluster_id,
            start=settings.input.start,
            logger=lines,
            clock=self._clock,
            watch=self._watchdog.watch,
        )
        self._transaction = _transaction(
            settings,
            name,
            clock=self._clock,
            forward=lines.librdkafka_logged,
            watch=self._watchdog.watch,
            meet_cluster=self._source.meet_cluster,
        )

    def _take_all(self, run: Core) -> None:
        plan, pace = self._plan, self._pace
        retry = RetryPolicy(self._settings.retry.attempts)
        retry.records_max = plan.batch_max
        left = plan.records_max
        until_s = time.monotonic() + plan.duration_s
        while self._behind() and left != 0 and time.monotonic() < until_s:
            records_max = retry.limit(pace.records)
            self._batch = batch = self._source.take(
                records_max if left is None else min(left, records_max), WAIT_S
            )
            self._ends |= {
                where: end for where, end in batch.next.items() if where not in batch.first
            }
            if not batch.records:
                continue
            new = batch.first.keys() - self._begun
            batch.base.update({at: self._certain[at] for at in new & self._certain.keys()})
            self._begun |= new
            taken = self._run(run, batch)
            retry.succeed()
            if left is not None:
                left -= taken

    def _run(self, run: Core, batch: Batch) -> int:
        """Give one batch its effects; return how many records had theirs."""
        self._suspects.mark(batch)
        self._fence_doubt()
        self._interrupt.due = False
        self._watchdog.alarm(CUT_AFTER_S, self._interrupt)
        result = run.run(batch, self._plan.rejected, self._plan.attempt)
        self._batch = Batch([], {}, {})
        self._report.settled.append(result)
        progress = result.progress
        self._source.mark_processed(progress)
        self._suspects.record_progress(progress, batch)
        self._certain |= progress
        for where in progress:
            self._ends.pop(where, None)
        if result.records < len(batch.records):
            self._source.rewind({**batch.first, **progress})
        self._pace.record_commit(
            result.records, result.working_s, result.bytes_in, result.transaction_s
        )
        self._fence_doubt()
        return result.records

    def _end(self, run: Core) -> None:
        """Commit ends that lie behind what is committed; nothing is in flight now."""
        certain = self._certain
        behind = {where: end for where, end in self._ends.items() if end > certain.get(where, -1)}
        if behind:
            run.end(behind)
            self._suspects.record_progress(behind)
            self._report.ended = behind
            self._fence_doubt()

    def _behind(self) -> bool:
        """Whether a partition has not come to its end.

        One that the group knows nothing of has not before its beginning is told, which an empty
        partition only does by its end.
        """
        positions, told = self._source.positions(), self._certain.keys() | self._ends.keys()
        return any(
            positions.get(where, -1) < end or where not in told
            for where, end in self._plan.ends.items()
        )

    def _fence_doubt(self) -> None:
        """Build a new producer when a request of the last transaction may still be on its way."""
        doubts = list(self._transaction.doubts)
        if doubts:
            self._report.doubts.append(doubts[0])
            self._transaction.open()

    def _emptied(self) -> None:
        self._report.emptied += 1


def _overrun(call: str, seconds: float) -> None:
    """Tell why this Python process is about to end itself; Spark starts another one."""
    sys.stderr.write(f"hapax task: {call} has taken {seconds:.0f} s and never returns\n")
    sys.stderr.flush()


def _transaction(settings: Settings, name: str, **around: Any) -> KafkaTransaction:
    """Return the producing side under a transactional id that is not the worker's."""
    named = {"client.id": name, "transactional.id": name}
    return KafkaTransaction(
        producer_config(settings, producer_properties(settings) | named), **around
    )


def fence_lane(settings: Settings, transactional_id: str) -> None:
    """Register a producer of this id and drop it: whoever used the id can commit no more.

    What it left open is aborted. Raises ProducerDeadError when brokers do not answer: call again.
    """
    transaction = _transaction(
        settings,
        transactional_id,
        clock=SystemClock(),
        forward=_ignore,
        watch=Watchdog(1.0, on_overrun=_overrun).watch,
    )
    try:
        transaction.open()
    finally:
        transaction.close()


def _ignore(_client: str, _level: int, _facility: str, _text: str) -> None:
    """Drop a line: what matters about a fence is raised."""
