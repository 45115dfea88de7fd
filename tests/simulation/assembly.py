"""The real worker, recovery and core on the ports of one simulated process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hapax.core.claim_owners import ClaimOwners
from hapax.core.claiming import Claiming
from hapax.core.exactly_once import ExactlyOnce, Steps
from hapax.core.identity import Identity
from hapax.core.isolation import Isolation
from hapax.core.limits import DeadLetterRate, FenceBudget, Pace
from hapax.core.plan import Destinations, Planner
from hapax.core.retry_policy import RetryPolicy
from hapax.core.transform import Transformer
from hapax.engines.batch_runner import BatchRunner, Sizing
from hapax.engines.idle_offsets import Bounds, Ends
from hapax.engines.lifecycle import Process as Shared
from hapax.engines.recovery import Limits, Recovery
from hapax.engines.suspects import Suspects
from hapax.engines.worker import Worker
from hapax.testing.owners import MemoryOwners
from hapax.testing.source import MemorySource
from hapax.testing.transaction import MemoryTransaction
from tests.simulation.business import DEAD, OUT
from tests.simulation.wire import Store, Telling, Wire

if TYPE_CHECKING:
    from hapax.core.records import Record
    from hapax.core.transform import Result
    from tests.simulation.process import Process
    from tests.simulation.world import World

ATTEMPTS_MAX = 3
CUT_AFTER_S = 0.2


class _Elsewhere:
    """Another process for records under suspicion; who kills ours ends it as well."""

    def __init__(self, process: Process) -> None:
        self._transformer = Transformer(process.work, 1)

    def call(self, record: Record) -> Result:
        return self._transformer.apply(record)

    def close(self) -> None:
        """Nothing is kept."""


def assemble(world: World, process: Process) -> tuple[MemorySource, MemoryTransaction, Worker]:
    """Return the parts of a process, put together as service/hapax/wiring does."""
    options = world.options
    clock = world.scheduler
    events = cast("Any", Telling(world, process))
    source = MemorySource(world.broker, process.name, wait=process.pause, faults=process.at_step)
    transaction = MemoryTransaction(
        world.broker,
        f"app-{process.instance}",
        clock=clock,
        faults=process.at_step,
        wire=Wire(world, process),
    )
    store = None if world.claims is None else Store(world, process, world.claims)
    retry, ends = RetryPolicy(ATTEMPTS_MAX), Ends(idle_s=0.1, interval_s=0.2)
    isolation = Isolation(
        Transformer(process.work, 1),
        _Elsewhere(process),
        on_death=lambda record, _how, _deaths: world.judge.note("condemned", str(record)),
        on_failure=lambda _reason: None,
    )
    identity = Identity(("header:id",))
    owners = MemoryOwners(world.broker, wait=process.pause)
    steps = Steps(
        identity=identity,
        claiming=Claiming(
            store,
            ClaimOwners(owners, identity, batch_max=10_000),
            pass_on_outage=options.pass_on_outage,
        ),
        transformer=isolation,
        planner=Planner(Destinations("app", OUT, DEAD)),
        dead_letter_rate=DeadLetterRate(topic=DEAD, rate_max=0.1, records_min=10_000),
    )
    core = ExactlyOnce(steps, source, transaction, clock=clock, interrupt=process.interrupt)
    shared = Shared(events, clock, process.lifecycle)
    limits = Limits(
        retry=retry,
        producer_fences=FenceBudget(process.instance, 5),
        member_fences=FenceBudget(process.instance, 2),
        transaction_timeout_s=options.transaction_timeout_s,
    )
    recovery = Recovery(shared, source, transaction, store, ends=ends, limits=limits)
    runner = BatchRunner(
        core,
        source,
        Suspects(source, core, isolation, events, records_max=options.batch_max),
        Sizing(
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
        ),
        interrupt=process.interrupt,
        watchdog=cast("Any", process),
    )
    return source, transaction, Worker(shared, runner, recovery, ends)
