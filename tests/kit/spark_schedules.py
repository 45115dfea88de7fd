"""The real driver and the real tasks of Spark's records form on the memory broker, at random.

Tasks are killed, or called lost while they live on and wake up late; partitions move to a member
that works on them; the driver dies and comes back. One seed tells a whole schedule.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any, cast

import msgspec
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from hapax.core.errors import BatchAbortedError, PositionLostError, ProducerDeadError, StopError
from hapax.core.interrupt import Interrupt
from hapax.core.offset_commit import Marks
from hapax.core.ports import Clock
from hapax.core.records import Progress, TopicPartition
from hapax.engines.idle_offsets import Bounds
from hapax.engines.lifecycle import Lifecycle, Process
from hapax.engines.spark.driver import Reports, SparkEngine
from hapax.engines.spark.plan import Pacing, RangePlan, RangeReport
from hapax.engines.steps import steps
from hapax.processing.exactly_once import ExactlyOnce
from hapax.processing.limits import DeadLetterRate, FenceBudget, Limits, RetryPolicy
from hapax.processing.transform import Transformer
from hapax.settings import load_settings
from hapax.telemetry.events import Events
from hapax.testing.broker import InstantGroup, MemoryBroker, Shift
from hapax.testing.source import InjectedFault, MemorySource, MemoryTransaction
from hapax.wiring.task import RangeTask
from tests.kit.doubles import CrashError, StuckError, Ticking, Told
from tests.kit.managed_process import required
from tests.kit.pipeline import judge
from tests.simulation.business import work as upper


class Errand(greenlet):  # type: ignore[misc] # it has no types
    """One piece of work; it calls ``pause`` wherever another piece may come first.

    It goes on step by step, when the schedule says so, and may stop for a while.
    """

    def __init__(self, work: Callable[["Errand"], None]) -> None:
        super().__init__(lambda: work(self), getcurrent())

    def step(self) -> None:
        """Let it go on to its next pause, or to its end."""
        if not self.dead:
            self.switch()

    def kill(self) -> None:
        self.throw()

    def finish(self) -> None:
        while not self.dead:
            self.step()

    def pause(self) -> None:
        """Wait for the next step; called by the work itself."""
        self.parent.switch()


PEER = "x"
TURNS_MAX = 3000
LIVES_MAX = 60
ERRORS = ("aborted", "aborted", "dead", "fenced")
DOUBTFUL = {"send_offsets", "commit", "abort"}
SETTINGS = required(
    servers="nowhere:1",
    INSTANCE="w",
    ENGINE="spark",
    DEAD_LETTER__TOPIC="dead",
    DEAD_LETTER__RATE_MAX="1",
    TRANSFORM="tests.simulation.business:work",
)


class Broker(MemoryBroker):
    """``lenient``: as KIP-848 groups do, take an older epoch for what the member has held since."""

    lenient = False

    def __init__(self, topics: Mapping[str, int], *, inputs: Iterable[str], clock: Clock) -> None:
        super().__init__(topics, inputs=inputs, clock=clock)
        self.group = self._dealt = InstantGroup(self.inputs)
        self._since: dict[TopicPartition, int] = {}

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        shift = super().shift(name, owned)
        self._since.update(dict.fromkeys(shift.assigned, self._dealt.newest))
        return shift

    def add_offsets(
        self,
        name: tuple[str, int],
        member: tuple[str, int],
        progress: Progress,
        marks: Marks | None = None,
    ) -> None:
        held = all(
            self._dealt.owners.get(where) == member[0] and self._since[where] <= member[1]
            for where in progress
        )
        if self.lenient and held and member[0] in self._dealt.members:
            member = (member[0], self._dealt.newest)
        super().add_offsets(name, member, progress, marks)


class Member(MemorySource):
    cluster_id = None

    def begin(self, _partitions: Iterable[TopicPartition]) -> Progress:
        return {}

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Progress:
        fault = self._faults("stable_ends")
        if fault is not None and fault.error is not None:
            raise BatchAbortedError("stable_ends failed")
        ends = self._broker.ends()
        return {where: ends[where] for where in partitions}


class Range(MemorySource):
    """The source of a task, as KafkaRange is."""

    def __init__(self, broker: Broker, plan: RangePlan, **parts: Any) -> None:
        super().__init__(broker, "nobody", **parts)
        self._plan = plan

    def place(self) -> None:
        self._position = {where: offset or 0 for where, offset in self._plan.starts.items()}
        self._settled = dict(self._position)

    def confirm(self) -> Progress:
        stable = self.committed(self._plan.starts)
        for where, known in self._plan.starts.items():
            offset = stable[where]
            if offset == known:
                continue
            if offset is None or (known is not None and offset < known):
                raise PositionLostError(f"{where}: {known} was committed, now {offset}")
            self.rewind({where: offset})
        return {where: offset for where, offset in stable.items() if offset is not None}

    def positions(self) -> Progress:
        return dict(self._position)

    def member(self) -> bytes:
        return self._plan.member

    def _shift(self) -> None:
        """Nobody's member has no part in rebalances."""


class Producing(MemoryTransaction):
    def close(self) -> None:
        """Nothing is held."""


class MemoryTask(RangeTask):
    """Those of a real task on the memory broker."""

    def __init__(self, world: "World", plan: RangePlan, errand: Errand) -> None:
        super().__init__(world.settings, plan)
        self._world, self._errand, self.clock = world, errand, world.clock
        self.sizing = msgspec.structs.replace(self.sizing, ahead=world.ahead)

    def clients(self) -> tuple[Any, Any]:
        world = self._world
        return Range(world.broker, self._plan, wait=world.clock.wait, faults=self._at), Producing(
            world.broker, f"app-w/{self._plan.lane}", clock=world.clock, faults=self._at
        )

    def _at(self, step: str) -> InjectedFault | None:
        self._errand.pause()
        return self._world.chance.fault(step)


class Jobs:
    """Tasks as errands. Lost ones live on as zombies."""

    def __init__(self, world: "World", lanes: int, *, slots: int) -> None:
        self.lanes, self.slots = lanes, slots
        self.running: dict[int, tuple[Errand, Future[RangeReport]]] = {}
        self._world = world

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        random = self._world.random
        if random.random() < 0.5:
            plan = msgspec.structs.replace(plan, records_max=random.randrange(1, 9))
        future: Future[RangeReport] = Future()

        def work(errand: Errand) -> None:
            try:
                report = MemoryTask(self._world, plan, errand).run()
            except Exception as error:  # noqa: BLE001 - a future carries whatever is raised
                if not future.done():
                    future.set_exception(error)
            else:
                self._note(plan, report)
                if not future.done():
                    future.set_result(report)

        self.running[plan.lane] = (Errand(work), future)
        return future

    def _note(self, plan: RangePlan, report: RangeReport) -> None:
        """Count the tasks that stayed and committed records that came behind their ends."""
        if any(offset > plan.ends.get(where, -1) for where, offset in report.progress.items()):
            self._world.chance.struck[f"{report.outcome} behind its ends"] += 1

    def call(self, function: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        try:
            function()
        except ProducerDeadError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def recall(self, *, wanted: bool) -> None:
        """Reach nobody, as on a cluster."""

    def cancel(self, lane: int) -> None:
        self.lose(lane, killed=True)

    def check(self) -> None:
        """Spark is well."""

    def lose(self, lane: int, *, killed: bool) -> None:
        """Let a task end without a report; ``killed``: for good."""
        errand, future = self.running.pop(lane)
        if killed:
            errand.kill()
        else:
            self._world.zombies.append(errand)
        if not future.done():
            future.set_exception(RuntimeError("executor lost"))

    def pump(self) -> None:
        for lane, (errand, _future) in list(self.running.items()):
            if self._world.random.random() < 0.7:
                errand.step()
            if errand.dead:
                del self.running[lane]


class LaneFences:
    """Registers producers under the ids of the lanes."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def lane(self, number: int) -> None:
        self._register(f"app-w/{number}")

    def predecessor(self) -> None:
        self._register("app-w")

    def _register(self, name: str) -> None:
        if self._world.chance.fault("fence") is not None:
            raise ProducerDeadError("no answer")
        self._world.broker.init_producer(name)


class Peer:
    """Another member of the group, which works on what it gets, as a worker does."""

    def __init__(self, world: "World") -> None:
        self._broker = world.broker
        self._source = MemorySource(world.broker, PEER, wait=world.clock.wait)
        self._transaction = MemoryTransaction(world.broker, "app-x", clock=world.clock)
        self._transaction.open()
        self._core = ExactlyOnce(
            steps(world.settings, None, None, Transformer(upper, 1)),
            self._source,
            self._transaction,
            clock=world.clock,
            interrupt=Interrupt(),
        )
        self.present = False

    def work(self) -> None:
        self.present = True
        batch = self._source.take(2, 0.0)
        if batch.records:
            with suppress(BatchAbortedError):
                self._core.run(batch, {}, 1)
                self._source.mark_processed(batch.next)
                return
            self.leave()

    def leave(self) -> None:
        if self.present:
            self._source.reopen()
            self._broker.group.expel(PEER)
            self.present = False


class Chance:
    """Decides what goes wrong, until the number of strikes is used up."""

    def __init__(self, world: "World") -> None:
        self.struck: Counter[str] = Counter()
        self.left = world.random.randrange(14)
        self._world = world
        self._rate = world.random.choice((0.02, 0.1, 0.3))

    def due(self) -> bool:
        return self.left > 0 and self._world.random.random() < self._rate

    def note(self, kind: str) -> None:
        self.left -= 1
        self.struck[kind] += 1

    def fault(self, step: str) -> InjectedFault | None:
        """Answer at a step of a task, or of a call to brokers."""
        random = self._world.random
        if not self.due() or random.random() < 0.5:
            return None
        self.note(f"fault at {step}")
        if step in DOUBTFUL and random.random() < 0.3:
            return InjectedFault(after=True, doubt=True)
        error: Any = random.choice(ERRORS)
        return InjectedFault(error, after=random.random() < 0.5)


class World:
    """The broker and what happens around one driver after another."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.clock = Ticking()
        self.partitions = random.randrange(1, 5)
        self.broker = Broker(
            {"in": self.partitions, "out": 2, "dead": 1}, inputs=["in"], clock=self.clock
        )
        self.broker.lenient = random.random() < 0.5
        self.ahead = Random(seed + 1).random() < 0.5  # as where claims travel
        self.settings = load_settings(
            {**SETTINGS, "HAPAX_TRANSACTION__RECORDS_MAX": str(random.randrange(1, 4))}
        )
        self.chance = Chance(self)
        self.zombies: list[Errand] = []
        self.peer = Peer(self)
        self._lanes = random.randrange(1, 4)
        self.arrivals = random.choice((0, 0, random.randrange(1, 20)))
        self._fill(random.randrange(1, 30))
        self.start()

    def start(self) -> None:
        """Build a driver as a new process would."""
        random = self.random
        events = cast("Events", Told())
        self.lifecycle = Lifecycle(self.clock, Interrupt(), timeout_s=25.0, wait=self.clock.wait)
        self.jobs = Jobs(self, self._lanes, slots=random.choice((1, self._lanes)))
        self._turns = 0
        self.member = Member(self.broker, "w", wait=self.clock.wait, faults=self._at)
        rate = DeadLetterRate(topic="dead", rate_max=1.0, records_min=10_000)
        self.engine = SparkEngine(
            Process(events, self.clock, self.lifecycle),
            self.member,
            cast("Any", self.jobs),
            fences=LaneFences(self),
            reports=Reports(
                events,
                None,
                Limits(
                    retry=RetryPolicy(3),
                    producer_fences=FenceBudget("w", 5),
                    member_fences=FenceBudget("w", 5),
                    transaction_timeout_s=10.0,
                ),
                rate,
            ),
            pacing=Pacing(
                duration_s=60.0,
                task_max_s=600.0,
                attempts_max=3,
                sticky=self.broker.lenient,
                bounds=Bounds(records_max=None, at_end=False),
            ),
        )
        self.engine._lanes.wait = self._pass  # type: ignore[method-assign] # without a real second

    def _pass(self, seconds: float) -> None:
        self.clock.wait(seconds)
        self.jobs.pump()

    def end(self) -> None:
        """Let the driver's process end; its tasks die with it, or later, or go on for a while."""
        for lane in list(self.jobs.running):
            self.jobs.lose(lane, killed=self.random.random() < 0.5)
        self.broker.group.expel("w")

    def drained(self) -> bool:
        return not self.arrivals and {
            **dict.fromkeys(self.broker.ends(), 0),
            **self.broker.committed,
        } == (self.broker.ends())

    # -- what happens while the driver attends to its group -------------------------------

    def _at(self, step: str) -> InjectedFault | None:
        if step == "reopen":
            return None  # asks no broker
        if step != "attend":
            fault = self.chance.fault(step)
            return fault if fault is None or fault.error != "dead" else InjectedFault("aborted")
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise StuckError(f"{self.broker.committed} of {self.broker.ends()}")
        self._arrive()
        self.jobs.pump()
        for zombie in self.zombies:
            if self.random.random() < 0.1:
                for _ in range(self.random.randrange(1, 6)):
                    zombie.step()
        if self.peer.present and self.random.random() < 0.3:
            self.peer.work()
        if not self.chance.left:
            self.peer.leave()
        if self.drained() and not self.lifecycle.stopping:
            self.lifecycle.stop("drained")
        return self._strike() if self.chance.due() else None

    def _arrive(self) -> None:
        if self.arrivals and self.random.random() < 0.2:
            self.arrivals -= 1
            self._fill(1)

    def _strike(self) -> InjectedFault | None:
        random = self.random
        kind = random.choice(("kill", "zombie", "zombie", "crash", "peer", "peer", "expel", "away"))
        if kind in {"kill", "zombie"} and not self.jobs.running:
            return None
        self.chance.note(kind)
        match kind:
            case "kill" | "zombie":
                lane = random.choice(list(self.jobs.running))
                self.jobs.lose(lane, killed=kind == "kill")
            case "crash":
                raise CrashError
            case "peer":
                random.choice((self.peer.work, self.peer.work, self.peer.leave))()
            case "expel":
                self.broker.group.expel("w")
            case _:
                return InjectedFault(random.choice(("aborted", "fenced")))
        return None

    # -- judging --------------------------------------------------------------------------

    def _fill(self, count: int) -> None:
        random = self.random
        for number in range(count):
            where = random.randrange(self.partitions)
            if random.random() < 0.1:
                self.broker.hide(("in", where), random.randrange(1, 4))
                continue
            value = f"{random.choice(('', '', '', 'two', 'boom', 'filter'))}{number}".encode()
            self.broker.write("in", value, key=value, partition=where)

    def judge(self) -> None:
        assert self.drained(), f"committed {self.broker.committed}, ends {self.broker.ends()}"
        judge(self.broker, claims=False)


def play(seed: int) -> Counter[str]:
    """Run one schedule to its end and judge it; return what struck. AssertionError: a defect."""
    world = World(seed)
    try:
        for _life in range(LIVES_MAX):
            with suppress(CrashError, StopError):
                world.engine.run()
            world.end()
            if world.drained():
                break
            world.start()
        world.judge()
        for zombie in world.zombies:
            zombie.finish()  # what wakes up after everything is done changes nothing
        world.judge()
    finally:
        for zombie in world.zombies:
            zombie.kill()
    return world.chance.struck


def breaks_the_promise(seed: int) -> bool:
    """Return whether a schedule does; one that only never ends breaks no promise."""
    try:
        play(seed)
    except StuckError:
        return False
    except AssertionError:
        return True
    return False
