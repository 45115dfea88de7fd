"""The real worker, recovery and core on the ports of one simulated process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from hapax.core.call_window import CallLimits, Window
from hapax.core.crash_markers import Isolation
from hapax.core.deduplicate import Claiming, ClaimOwners
from hapax.core.exactly_once import ExactlyOnce, Steps
from hapax.core.headers import Retried
from hapax.core.identity import Identity
from hapax.core.later_calls import LaterCalls
from hapax.core.limits import DeadLetterRate, FenceBudget, Limits, Pace, RetryPolicy
from hapax.core.plan import Destinations, Planner
from hapax.core.retry_later import Retrying, RetryTopic
from hapax.core.transform import Transformer
from hapax.engines.batch_runner import BatchRunner, Sizing, Windowing, WindowRunner
from hapax.engines.idle_offsets import Bounds, Ends
from hapax.engines.lifecycle import Process as Shared
from hapax.engines.recovery import Recovery
from hapax.engines.suspects import Suspects
from hapax.engines.worker import Worker
from hapax.testing.claims import MemoryOwners
from hapax.testing.source import MemorySource
from hapax.testing.transaction import MemoryTransaction
from tests.simulation.business import DEAD, OUT, RETRY
from tests.simulation.calls import SimulatedCalls
from tests.simulation.wire import Store, Telling, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.records import Record
    from hapax.core.transform import Result
    from tests.simulation.options import Options
    from tests.simulation.process import Process
    from tests.simulation.world import World

ATTEMPTS_MAX = 3
CUT_AFTER_S = 0.2
WINDOW_BATCHES = 4
"""A window holds more than a batch, so that results wait for the next transaction."""


class _Elsewhere:
    """Another process for records under suspicion; who kills ours ends it as well."""

    def __init__(self, process: Process, retrying: Retrying) -> None:
        self._transformer = Transformer(process.work, 1, retrying)

    def call(self, records: Sequence[Record]) -> list[Result]:
        return [self._transformer.apply(record) for record in records]

    def close(self) -> None:
        """Nothing is kept."""


def _now_ms(world: World) -> int:
    return int(world.scheduler.now_s * 1000)


def _must_wait(world: World, record: Record) -> bool:
    retried = Retried.decode(dict(record.headers)) if record.topic == RETRY else None
    return retried is not None and retried.until > _now_ms(world)


def _topic(options: Options) -> RetryTopic | None:
    return RetryTopic(RETRY, frozenset(["in"])) if options.later else None


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
    topic = _topic(options)
    retrying = Retrying(topic=topic, later_attempts=100)
    source = _source(world, process, topic)
    isolation = Isolation(
        Transformer(process.work, 1, retrying),
        _Elsewhere(process, Retrying(topic=topic)),
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
        transformer=isolation
        if topic is None
        else LaterCalls(isolation, retrying, now_ms=partial(_now_ms, world)),
        planner=Planner(Destinations("app", OUT, DEAD, topic)),
        dead_letter_rate=DeadLetterRate(topic=DEAD, rate_max=0.1, records_min=10_000),
    )
    core = ExactlyOnce(steps, source, transaction, clock=clock, interrupt=process.interrupt)
    shared = Shared(events, clock, process.lifecycle)
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
    return source, transaction, Worker(shared, runner, recovery, ends)
