"""The real worker, recovery and core on the ports of one simulated process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hapax.core.exactly_once import ExactlyOnce
from hapax.core.identity import Identity
from hapax.core.isolation import Isolation
from hapax.core.limits import DeadLetterRate, FenceBudget, Pace, Patience
from hapax.core.plan import Destinations, Planner
from hapax.core.transform import Transformer
from hapax.engines.idle_offsets import Bounds, Ends
from hapax.engines.recovery import Recovery
from hapax.engines.suspects import Suspects
from hapax.engines.worker import Sizing, Worker
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
    store = None if world.claims is None else Store(process, world.claims)
    patience, ends = Patience(ATTEMPTS_MAX), Ends(idle_s=0.1, interval_s=0.2)
    isolation = Isolation(
        Transformer(process.work, 1),
        _Elsewhere(process),
        on_death=lambda record, _how, _deaths: world.judge.note("condemned", str(record)),
        on_failure=lambda _reason: None,
    )
    core = ExactlyOnce(
        identity=Identity(("header:id",)),
        claims=store,
        transformer=isolation,
        planner=Planner(Destinations("app", OUT, DEAD)),
        source=source,
        transaction=transaction,
        dead_letter_rate=DeadLetterRate(topic=DEAD, rate_max=0.1, records_min=10_000),
        clock=clock,
        pass_on_outage=options.pass_on_outage,
        interrupt=process.interrupt,
        owners=MemoryOwners(world.broker, wait=process.pause),
    )
    recovery = Recovery(
        source=source,
        transaction=transaction,
        claims=store,
        events=events,
        clock=clock,
        lifecycle=process.lifecycle,
        patience=patience,
        fences=FenceBudget(process.instance, 5),
        member_fences=FenceBudget(process.instance, 2),
        ends=ends,
        transaction_timeout_s=options.transaction_timeout_s,
    )
    worker = Worker(
        core=core,
        source=source,
        recovery=recovery,
        events=events,
        clock=clock,
        lifecycle=process.lifecycle,
        interrupt=process.interrupt,
        watchdog=cast("Any", process),
        sizing=Sizing(
            pace=Pace(
                interval_s=0.1,
                records_max=options.batch_max,
                bytes_max=1 << 20,
                transaction_timeout_s=options.transaction_timeout_s,
            ),
            patience=patience,
            bounds=Bounds(records_max=None, at_end=False),
            cut_after_s=CUT_AFTER_S,
        ),
        ends=ends,
        suspects=Suspects(source, core, isolation, events, records_max=options.batch_max),
    )
    return source, transaction, worker
