"""The real worker, recovery and core on the ports of one simulated process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from hapax.core.errors import ClaimsUnavailableError, ProducerDeadError, RetryLater
from hapax.core.headers import Retried
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates, Record
from hapax.core.results import Result
from hapax.engines.batch_runner import BatchRunner, Sizing, Windowing, WindowRunner
from hapax.engines.idle_offsets import Bounds, Ends
from hapax.engines.lifecycle import Process as Shared
from hapax.engines.recovery import Recovery
from hapax.engines.state_restore import Keyed
from hapax.engines.suspects import Suspects
from hapax.engines.worker import Worker
from hapax.processing.call_window import Call, CallLimits, CallQueue, Unit, Window, settle
from hapax.processing.crash_markers import Isolation
from hapax.processing.deduplicate import Claiming, ClaimOwners
from hapax.processing.exactly_once import ExactlyOnce, Steps
from hapax.processing.identity import Identity
from hapax.processing.limits import DeadLetterRate, FenceBudget, Limits, Pace, RetryPolicy
from hapax.processing.plan import BatchState, Destinations, Planner
from hapax.processing.retry_later import LaterTries, Retrying, RetryTopic
from hapax.processing.transform import Transformer
from hapax.telemetry.events import Events
from hapax.testing.claims import MemoryClaims, MemoryOwners
from hapax.testing.source import MemorySource, MemoryTransaction
from tests.kit.doubles import CrashError
from tests.simulation.business import DEAD, OUT, RETRY
from tests.simulation.chance import BUSINESS, CLAIMS, REQUESTS, Strike
from tests.simulation.keyed import assemble_state, call_elsewhere, function_of

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

# -- The way from a process to coordinators, leaders, the claim store and whoever reads along.

RESEND_S = 0.02
TOLD = frozenset(name for name in dir(Events) if not name.startswith("_"))


class Wire:
    """Carries the requests of one producer."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def __call__(self, kind: str, deliver: Callable[[], None], again: Callable[[], None]) -> None:
        """Bring one request of the producer to its coordinator or leader, and its answer back."""
        world = self._world
        strike = self._process.struck(REQUESTS, kind)
        self._process.pause(world.latency())
        while world.scheduler.now_s < world.brokers_away_until_s:
            self._wait_for_brokers(kind)
        if strike is not None:
            self._mistreat(kind, strike, deliver, again)
            return
        deliver()
        self._process.pause(world.latency())

    def _wait_for_brokers(self, kind: str) -> None:
        world, timeout_s = self._world, self._world.options.transaction_timeout_s
        left_s = world.brokers_away_until_s - world.scheduler.now_s
        self._process.pause(min(left_s, timeout_s))
        if left_s > timeout_s:
            raise ProducerDeadError(f"{kind}: no answer")

    def _mistreat(
        self, kind: str, strike: Strike, deliver: Callable[[], None], again: Callable[[], None]
    ) -> None:
        late = deliver
        if kind == "InitProducerId":
            late = partial(self._world.init_late, f"app-{self._process.instance}")
        match strike.kind:
            case "crash":
                self._crash(kind, strike, deliver, late)
            case "freeze" if strike.way < 0.5:
                self._process.freeze(strike.seconds)
                deliver()
            case "freeze":
                deliver()
                self._process.freeze(strike.seconds)
            case "unanswered":
                self._leave_unanswered(kind, strike, deliver, late)
            case "doubt" | "late":
                again()
                self._send_again(kind, strike, deliver, late)
            case _:
                deliver()
        self._process.pause(self._world.latency())

    def _crash(
        self, kind: str, strike: Strike, deliver: Callable[[], None], late: Callable[[], None]
    ) -> None:
        """End the process; its request is lost, under way, or has arrived."""
        match strike.choice("lost", "late", "arrived"):
            case "arrived":
                deliver()
            case "late":
                self._world.deliver_late(kind, late, strike.seconds)
        raise CrashError

    def _send_again(
        self, kind: str, strike: Strike, deliver: Callable[[], None], late: Callable[[], None]
    ) -> None:
        """Send it twice: the first is held and arrives late, or its answer was lost."""
        form = "held" if strike.kind == "late" else strike.choice("held", "answer lost", "both")
        if form != "held":
            deliver()
        if form != "answer lost":
            self._world.deliver_late(kind, late, strike.seconds)
        self._process.pause(RESEND_S)
        deliver()

    def _leave_unanswered(
        self, kind: str, strike: Strike, deliver: Callable[[], None], late: Callable[[], None]
    ) -> None:
        """Give no answer for longer than the client asks again."""
        form = strike.choice("lost", "delivered", "late")
        if form == "delivered":
            deliver()
        elif form == "late":
            self._world.deliver_late(kind, late, strike.seconds)
        self._process.pause(self._world.options.transaction_timeout_s)
        raise ProducerDeadError(f"{kind}: no answer")


class Travelling:
    """A claim on its way: it arrives when it arrives, whatever its sender does meanwhile.

    Two that are under way may arrive in any order, for each has a connection of its own.
    """

    def __init__(
        self, world: World, process: Process, deliver: Callable[[], Mapping[int, Coordinates]]
    ) -> None:
        self._world = world
        self._process = process
        self._deliver = deliver
        self._answer: Mapping[int, Coordinates] | ClaimsUnavailableError | None = None
        self._read = False
        arrives_s = world.scheduler.now_s + world.latency()
        world.scheduler.at(arrives_s, self._arrive)
        self._back_s = arrives_s + world.latency()

    def _arrive(self) -> None:
        try:
            self._answer = self._deliver()
        except ClaimsUnavailableError as error:
            self._answer = error

    def answer(self) -> Mapping[int, Coordinates]:
        wait_s = self._back_s - self._world.scheduler.now_s
        if wait_s > 0:
            self._process.pause(wait_s)
        else:
            self._world.count("claims ahead")
        self._read = True
        assert self._answer is not None
        if isinstance(self._answer, ClaimsUnavailableError):
            raise self._answer
        return self._answer

    def drop(self) -> None:
        if not self._read:
            self._world.count("claims given up")


class Store:
    """The claim store as one process reaches it."""

    def __init__(self, world: World, process: Process, claims: MemoryClaims) -> None:
        self._world = world
        self._process = process
        self._claims = claims.seen_by()

    def claim(self, *request: Any) -> Mapping[int, Coordinates]:
        strike = self._process.struck(CLAIMS, "claim")
        self.ping()
        if strike is not None and strike.kind == "claims" and strike.seconds > 0.5:
            self._claims.lost_answers = 1
        return self._claims.claim(*request)

    def ask(self, wanted: ClaimRequest) -> Travelling:
        strike = self._process.struck(CLAIMS, "claim")
        lost = strike is not None and strike.kind == "claims" and strike.seconds > 0.5

        def deliver() -> Mapping[int, Coordinates]:
            self.ping()
            self._claims.lost_answers = int(lost)
            return self._claims.ask(wanted).answer()

        return Travelling(self._world, self._process, deliver)

    def ping(self) -> None:
        if self._process.claims_away():
            raise ClaimsUnavailableError("away")


class Telling:
    """Takes every event that the real Events knows."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def loop_moved(self) -> None:
        """Nothing to tell."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in TOLD:
            raise AttributeError(name)
        world, process = self._world, self._process

        def tell(*values: object, **_named: object) -> None:
            world.count(name)
            if world.trace is not None:
                first = "" if not values else f": {str(values[0])[:100]}"
                world.tell(f"{process.name} {name}{first}")

        setattr(self, name, tell)
        return tell


# -- Calls in flight within a simulated process: when each ends is one more choice of the seed.


LENGTHS_S = (0.0, 0.001, 0.003, 0.01, 0.01, 0.05, 0.3)


class SimulatedCalls:
    """Makes calls that end in any order. Judges that none is made twice, and keys one at a time."""

    def __init__(self, world: World, process: Process, limits: CallLimits) -> None:
        self._world = world
        self._process = process
        self._limits = limits
        self._queue = CallQueue(limits.order, 1)
        self._slots: list[Unit] = []
        self._made: set[Coordinates] = set()

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def begun(self) -> set[Call]:
        return {call for unit in self._slots for call in unit}

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, in their order, as soon as limits allow."""
        self._queue.add(calls)
        self._begin()

    def wait(self, seconds: float) -> None:
        """Let time pass; what strikes while business code has the records strikes here."""
        strike = self._process.struck(BUSINESS, f"{self.in_flight} calls")
        slow = strike is not None and strike.kind == "slow"
        self._process.pause(strike.seconds if slow and strike is not None else seconds)

    def drop(self, calls: Sequence[Call]) -> None:
        """Give calls up: their partition left, and another process may make them."""
        for call in calls:
            call.dropped = True
            self._made.discard(call.record.coordinates)

    def close(self) -> None:
        """Nothing is kept."""

    def _begin(self) -> None:
        scheduler = self._world.scheduler
        while self.in_flight < self._limits.concurrency and (unit := self._queue.take()):
            (call,) = unit
            where = call.record.coordinates
            if where in self._made:
                self._world.judge.note("called-twice", f"{where} in {self._process.name}")
            self._made.add(where)
            if any(call.key == other.key for (other,) in self._slots if not other.dropped):
                self._world.judge.note("key-order", f"{where}: two calls of {call.key}")
            self._slots.append(unit)
            chosen = crc32(f"{self._process.name} {where} {scheduler.steps}".encode())
            length_s = LENGTHS_S[chosen % len(LENGTHS_S)]
            scheduler.at(scheduler.now_s + length_s, lambda unit=unit: self._end(unit))  # type: ignore[misc] # bound now

    def _end(self, unit: Unit) -> None:
        """End one call; in a process that was killed it ends nowhere."""
        if self._process.killed or self._process.left:
            return
        self._slots.remove(unit)
        (call,) = unit
        try:
            answer: object = self._process.answer(self._limits.given(call))
        except (ValueError, RetryLater) as error:
            answer = error
        settle(unit, [answer], self._limits, lists=True)
        self._queue.done(unit)
        self._begin()


# -- The assembly --------------------------------------------------------------------------

ATTEMPTS_MAX = 3
CUT_AFTER_S = 0.2
WINDOW_BATCHES = 4
"""A window holds more than a batch, so that results wait for the next transaction."""


class _Elsewhere:
    """Another process for records under suspicion; who kills ours ends it as well."""

    def __init__(self, process: Process, retrying: Retrying, keyed: Keyed | None) -> None:
        self._process, self._retrying, self._keyed = process, retrying, keyed
        self._transformer = Transformer(process.work, 1, retrying)

    def call(self, records: Sequence[Record]) -> list[Result]:
        if self._keyed is not None:
            return call_elsewhere(self._process, self._keyed.state, records, self._retrying)
        return [self._transformer.apply(record) for record in records]

    def close(self) -> None:
        """Nothing is kept."""


def _now_ms(world: World) -> int:
    return int(world.scheduler.now_s * 1000)


def _must_wait(world: World, record: Record) -> bool:
    retried = Retried.decode(dict(record.headers)) if record.topic == RETRY else None
    return retried is not None and retried.until > _now_ms(world)


def _source(world: World, process: Process, topic: RetryTopic | None) -> MemorySource:
    source = MemorySource(world.broker, process.name, wait=process.pause, faults=process.at_step)
    if topic is not None:
        source.held = partial(_must_wait, world)
    return source


def assemble(world: World, process: Process) -> tuple[MemorySource, MemoryTransaction, Worker]:
    """Return the parts of a process, put together as service/hapax/wiring does."""
    options = world.options
    clock = world.scheduler
    events = cast("Any", Telling(world, process))
    transaction = MemoryTransaction(
        world.broker,
        f"app-{process.instance}",
        clock=clock,
        faults=process.at_step,
        wire=Wire(world, process),
    )
    store = None if world.claims is None else Store(world, process, world.claims)
    retry, ends = RetryPolicy(ATTEMPTS_MAX), Ends(idle_s=0.1, interval_s=0.2)
    topic = RetryTopic(RETRY, frozenset(["in"])) if options.later else None
    retrying = Retrying(topic=topic, later_attempts=100)
    source = _source(world, process, topic)
    shared = Shared(events, clock, process.lifecycle)
    keyed = process.keyed = None
    if options.stateful:
        keyed = process.keyed = assemble_state(world, process, shared)
    isolation = Isolation(
        Transformer(function_of(process, keyed) if keyed else process.work, 1, retrying),
        _Elsewhere(process, Retrying(topic=topic), keyed),
        on_death=lambda record, _how, _deaths: world.judge.note("condemned", str(record)),
        on_failure=lambda _reason: None,
    )
    identity = Identity(("header:id",), retry=topic)
    owners = MemoryOwners(world.broker, wait=process.pause)
    steps = Steps(
        identity=identity,
        claiming=Claiming(
            store,
            ClaimOwners(owners, identity, batch_max=10_000),
            pass_on_outage=options.pass_on_outage,
        ),
        transformer=isolation,
        planner=Planner(Destinations("app", OUT, DEAD, topic)),
        dead_letter_rate=DeadLetterRate(topic=DEAD, rate_max=0.1, records_min=10_000),
        around=[LaterTries(retrying, now_ms=partial(_now_ms, world))] if topic else (),
        state=keyed.state if keyed else BatchState(),
    )
    core = ExactlyOnce(steps, source, transaction, clock=clock, interrupt=process.interrupt)
    limits = Limits(
        retry=retry,
        producer_fences=FenceBudget(process.instance, 5),
        member_fences=FenceBudget(process.instance, 2),
        transaction_timeout_s=options.transaction_timeout_s,
        pass_on_outage=options.pass_on_outage,
    )
    recovery = Recovery(shared, source, transaction, store, ends=ends, limits=limits)
    sizing = Sizing(
        pace=Pace(
            interval_s=0.1,
            records_max=options.batch_max,
            bytes_max=1 << 20,
            transaction_timeout_s=options.transaction_timeout_s,
        ),
        retry=retry,
        bounds=Bounds(records_max=None, at_end=False),
        cut_after_s=CUT_AFTER_S,
        ahead=store is not None,
    )
    suspects = Suspects(source, core, isolation, events, records_max=options.batch_max)
    parts = (core, source, suspects, sizing)
    around = {"interrupt": process.interrupt, "watchdog": cast("Any", process)}
    if options.window:
        call_limits = CallLimits(concurrency=options.window, attempts_max=1, retrying=retrying)
        windowing = Windowing(
            Window(),
            cast("Any", SimulatedCalls(world, process, call_limits)),
            isolation,
            records_max=WINDOW_BATCHES * options.batch_max,
            bytes_max=1 << 20,
            at_once=options.window,
        )
        runner: BatchRunner = WindowRunner(*parts, windowing=windowing, **around)
    else:
        runner = BatchRunner(*parts, **around)
    holds = [] if keyed is None else [keyed.hold]
    return source, transaction, Worker(shared, runner, recovery, ends, holds)
