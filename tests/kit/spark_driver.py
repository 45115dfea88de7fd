"""The real driver of a Spark application on doubles: no Spark, no Kafka, a clock that never waits.

A scenario is a test that is a generator: what it does up to its first ``yield`` comes before the
driver runs, the rest happens while the driver attends to its group, and each ``yield`` lets the
driver go once around. Behind ``yield STOP`` (the driver is asked to stop) and ``yield OVER`` (it
ends by itself) it goes on when the driver has ended. What the driver raises, it raises there.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from hapax.core import errors
from hapax.core.interrupt import Interrupt
from hapax.core.ports import Changes
from hapax.engines.idle_offsets import Bounds
from hapax.engines.lifecycle import Lifecycle, Process
from hapax.engines.spark.driver import Reports, SparkEngine
from hapax.engines.spark.plan import Pacing, RangeOutcome, RangeReport
from hapax.processing.batch_result import BatchResult
from hapax.processing.limits import DeadLetterRate, FenceBudget, Limits, RetryPolicy
from tests.kit.doubles import StuckError, Ticking, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.spark.plan import RangePlan
    from hapax.telemetry.events import Events

Scenario = Generator[None, str | None, None]
TURNS_MAX = 20_000
TASK_MAX_S = 60.0
P0, P1, P2, P3 = (("in", number) for number in range(4))
STOP, OVER = "stop", "over"


class FakeMember:
    """A member that is told what it owns, what is committed and where the logs end.

    open  where open transactions begin
    """

    def __init__(self, clock: Ticking, journal: list[str]) -> None:
        self.ours: set[TopicPartition] = set()
        self.stable: dict[TopicPartition, int] = {}
        self.logs: Progress = {}
        self.open: Progress = {}
        self.metadata = b"member"
        self.fail: dict[str, list[Exception]] = {}
        self.turn: Callable[[], None] = lambda: None
        self.news = Changes()
        self.orphans: list[TopicPartition] = []
        self.begun: list[list[TopicPartition]] = []
        self.elsewhere = False
        self.places: Progress = {}
        self.cluster_id = "the-cluster"
        self.waits: list[float] = []
        self._clock = clock
        self._journal = journal

    answered = True

    def cut_off(self, *, now: bool = False) -> bool:
        return False

    def attend(self, wait_s: float) -> None:
        self.waits.append(wait_s)
        self._clock.wait(wait_s)
        self.turn()
        self._call("attend")

    def changes(self) -> Changes:
        news, self.news = self.news, Changes()
        return news

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.ours)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        wanted = list(partitions)
        if wanted:  # else nobody is asked
            self._call("committed")
        return {where: self.stable.get(where) for where in wanted}

    def mark_processed(self, progress: Progress) -> None:
        return

    def begin(self, partitions: Iterable[TopicPartition]) -> Progress | None:
        fresh = list(partitions)
        if fresh:
            self.begun.append(fresh)
        if self.elsewhere:
            return None
        begun = {where: self.places[where] for where in fresh if where in self.places}
        self.stable |= begun
        return begun

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Progress:
        wanted = list(partitions)
        if wanted:
            self._call("stable_ends")
        return self.last_stable_offsets(where for where in wanted if where in self.logs)

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> Progress:
        return {where: self.open.get(where, self.logs[where]) for where in partitions}

    def ends(self) -> Progress:
        self._call("ends")
        return dict(self.logs)

    def adopt_orphans(self) -> list[TopicPartition]:
        orphans, self.orphans = self.orphans, []
        return orphans

    def member(self) -> bytes:
        self._call("member")
        return self.metadata

    def reopen(self) -> None:
        self._call("reopen")

    def _call(self, name: str) -> None:
        if name != "attend":
            self._journal.append(name)
        if self.fail.get(name):
            raise self.fail[name].pop(0)


def reported(
    lane: int = 0, outcome: RangeOutcome = RangeOutcome.DONE, *, reason: str = "no", **facts: Any
) -> RangeReport:
    """Return a report of a range that ended so; ``facts``: of the report, or of its error."""
    report = RangeReport(lane=lane)
    report.error = {
        RangeOutcome.DONE: None,
        RangeOutcome.CLAIMS: errors.ClaimsUnavailableError(reason),
        RangeOutcome.SCHEMAS: errors.SchemasUnavailableError(reason),
        RangeOutcome.ABORTED: errors.BatchAbortedError(reason),
        RangeOutcome.FENCED: errors.ProducerDeadError(reason, fenced=True),
        RangeOutcome.DEAD: errors.ProducerDeadError(reason),
        RangeOutcome.STOP: errors.StopError(reason),
    }[outcome]
    for name, fact in facts.items():
        setattr(report.error if name in {"content", "culprits"} else report, name, fact)
    return report


class FakeJobs:
    """Notes plans; a scenario says how their tasks end.

    hold   keeps calls from running
    obeys  a cancelled task ends at once
    gone   what the check for Spark raises
    slots  as many as lanes, so that tasks may stay
    """

    def __init__(self, lanes: int, journal: list[str]) -> None:
        self.lanes = lanes
        self.plans: list[RangePlan] = []
        self.running: dict[int, Future[RangeReport]] = {}
        self.hold, self.obeys = False, True
        self.gone: Exception | None = None
        self.slots = lanes
        self.recalled, self.recalls = False, 0
        self._held: list[tuple[Callable[[], None], Future[None]]] = []
        self._journal = journal

    def recall(self, *, wanted: bool) -> None:
        self.recalled = wanted
        self.recalls += wanted

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        assert not self.recalled, "it would end at once"
        assert plan.lane not in self.running, "two tasks of one lane"
        self._journal.append(f"submit {plan.lane}")
        self.plans.append(plan)
        self.running[plan.lane] = Future()
        return self.running[plan.lane]

    def call(self, function: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self._held.append((function, future))
        if not self.hold:
            self.release()
        return future

    def release(self) -> None:
        held, self._held = self._held, []
        for function, future in held:
            try:
                function()
            except Exception as error:  # noqa: BLE001 - a future carries whatever is raised
                future.set_exception(error)
            else:
                future.set_result(None)

    def cancel(self, lane: int) -> None:
        self._journal.append(f"cancel {lane}")
        if self.obeys:
            self.lose(lane, "cancelled")

    def check(self) -> None:
        if self.gone is not None:
            raise self.gone

    def end(self, lane: int = 0, outcome: RangeOutcome = RangeOutcome.DONE, **facts: Any) -> None:
        self.running.pop(lane).set_result(reported(lane, outcome, **facts))

    def lose(self, lane: int = 0, reason: str = "Python worker exited unexpectedly") -> None:
        self.running.pop(lane).set_exception(RuntimeError(reason))


class FakeFences:
    """Notes who was fenced; ``fail`` holds what the next calls raise."""

    def __init__(self, journal: list[str]) -> None:
        self.fail: list[Exception] = []
        self._journal = journal

    def lane(self, number: int) -> None:
        self._note(f"fence {number}")

    def predecessor(self) -> None:
        self._note("fence predecessor")

    def _note(self, what: str) -> None:
        self._journal.append(what)
        if self.fail:
            raise self.fail.pop(0)


class FakeClaims:
    """A claim store that only says whether it is there."""

    outage: str | None = None
    pings = 0

    def ping(self) -> None:
        self.pings += 1
        if self.outage is not None:
            raise errors.ClaimsUnavailableError(self.outage)

    def claim(self, *_values: object) -> Any:
        raise AssertionError("the driver claims nothing")

    ask = claim


class Driver:
    """One driver with everything around it."""

    def __init__(
        self,
        lanes: int = 2,
        *,
        records_max: int | None = None,
        at_end: bool = False,
        open_timeout_s: float | None = math.inf,
        claims: bool = True,
        shutdown_s: float = 25.0,
        sticky: bool = False,
    ) -> None:
        bounds = Bounds(records_max=records_max, at_end=at_end)
        bounds.open_timeout_s = open_timeout_s
        self.clock, self.told, self.journal = Ticking(), Told(), list[str]()
        self.member = FakeMember(self.clock, self.journal)
        self.jobs = FakeJobs(lanes, self.journal)
        self.fences = FakeFences(self.journal)
        self.claims = FakeClaims()
        self.lifecycle = Lifecycle(
            self.clock, Interrupt(), timeout_s=shutdown_s, wait=self.clock.wait
        )
        self.rate = DeadLetterRate(topic="dead", rate_max=0.1, records_min=100)
        events = cast("Events", self.told)
        self.reports = Reports(
            events,
            self.claims if claims else None,
            Limits(
                retry=RetryPolicy(3),
                producer_fences=FenceBudget("w", 5),
                member_fences=FenceBudget("w", 2),
                transaction_timeout_s=10.0,
            ),
            self.rate,
        )
        self.engine = SparkEngine(
            Process(events, self.clock, self.lifecycle),
            cast("Any", self.member),
            cast("Any", self.jobs),
            fences=self.fences,
            reports=self.reports,
            pacing=Pacing(
                duration_s=2.0, task_max_s=TASK_MAX_S, attempts_max=3, sticky=sticky, bounds=bounds
            ),
        )

    # -- what happens around it -----------------------------------------------------------

    def assign(self, logs: Progress, **committed: int) -> None:
        """Give it partitions with logs that end there; ``p0=5``: committed of partition 0."""
        self.member.ours |= set(logs)
        self.member.logs |= logs
        self.member.stable |= {("in", int(name[1:])): offset for name, offset in committed.items()}
        self.member.news.assigned = [*(self.member.news.assigned or []), *logs]

    def revoke(self, *partitions: TopicPartition, lost: bool = False) -> None:
        self.member.ours -= set(partitions)
        (self.member.news.lost if lost else self.member.news.revoked).extend(partitions)

    # -- running --------------------------------------------------------------------------

    def play(self, scenario: Scenario) -> None:
        """Run the driver along a scenario, and let that end when the driver has."""
        turns, step = 0, next(scenario, STOP)

        def turn() -> None:
            nonlocal turns, step
            turns += 1
            if turns > TURNS_MAX:
                raise StuckError(f"{self.journal[-20:]}")
            if turns > 1 and step is None:
                step = next(scenario, STOP)
            if step == STOP and not self.lifecycle.stopping:
                self.lifecycle.stop("played")

        self.member.turn = turn
        try:
            self.engine.run()
        except Exception as error:
            if inspect.getgeneratorstate(scenario) == inspect.GEN_CLOSED:
                raise
            with suppress(StopIteration):
                scenario.throw(error)
        with suppress(StopIteration):
            scenario.send(OVER)
            raise AssertionError("the driver ended before its scenario did")

    def until(self, condition: Callable[[], object], turns_max: int = 400) -> Scenario:
        for _ in range(turns_max):
            if condition():
                return
            yield
        raise StuckError(f"{self.journal[-20:]}")

    def turns(self, count: int) -> Scenario:
        for _ in range(count):
            yield

    def started(self, *lanes: int) -> Scenario:
        yield from self.until(lambda: set(lanes) <= set(self.jobs.running))

    def working(self, logs: Progress, *lanes: int, **committed: int) -> Scenario:
        """Assign, and go around until tasks of these lanes run; none: of lane 0."""
        self.assign(logs, **committed)
        yield from self.started(*lanes or (0,))

    def ended(self, *lanes: int) -> Generator[str, str | None, None]:
        """Let the tasks of these lanes report, and stop."""
        for lane in lanes:
            self.jobs.end(lane)
        yield STOP

    @property
    def plan(self) -> RangePlan:
        return self.jobs.plans[-1]


def played(lanes: int = 2, **options: Any) -> Callable[[Callable[..., Scenario]], Any]:
    """Make a test of a scenario, which is given its driver first."""

    def decorator(scenario: Callable[..., Scenario]) -> Any:
        def test(**given: Any) -> None:
            driver = Driver(lanes, **options)
            driver.play(scenario(driver, **given))

        test.__name__ = scenario.__name__
        signature = inspect.signature(scenario)
        rest = list(signature.parameters.values())[1:]
        test.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test

    return decorator


def settled(
    spans: dict[TopicPartition, tuple[int, int]], records: int | None = None, **facts: Any
) -> BatchResult:
    count = sum(offset - first for first, offset in spans.values()) if records is None else records
    return BatchResult(offsets=spans, records=count, **facts)


def done(where: TopicPartition, first: int, offset: int) -> dict[str, Any]:
    """Return the facts of a report with one transaction."""
    return {"settled": [settled({where: (first, offset)})]}
