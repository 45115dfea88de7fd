"""The real worker, recovery and core on memory adapters, with a clock that never waits.

A scenario writes input, names faults and runs; then it asks what a reader of the topics sees.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.records import Progress, Record, TopicPartition
from hapax.engines.batch_runner import BatchRunner, Sizing
from hapax.engines.idle_offsets import Bounds, Ends
from hapax.engines.lifecycle import Lifecycle, Process
from hapax.engines.recovery import Recovery
from hapax.engines.suspects import Suspects
from hapax.engines.watchdog import Watchdog
from hapax.engines.worker import Worker
from hapax.processing.batch_result import BatchResult
from hapax.processing.crash_markers import Death, Isolation
from hapax.processing.deduplicate import Claiming, ClaimOwners
from hapax.processing.exactly_once import ExactlyOnce, Steps
from hapax.processing.identity import Identity
from hapax.processing.limits import DeadLetterRate, FenceBudget, Limits, Pace, RetryPolicy
from hapax.processing.plan import Destinations, Planner
from hapax.processing.transform import Transformer
from hapax.telemetry.events import Events
from hapax.testing.broker import MemoryBroker
from hapax.testing.claims import MemoryClaims, MemoryOwners
from hapax.testing.source import InjectedFault, MemorySource, MemoryTransaction
from tests.kit.doubles import CrashError, Script, StuckError, Ticking, Told
from tests.simulation.business import event_of, work
from tests.simulation.judge import Judge

ATTEMPTS_MAX = 3
TRANSACTION_TIMEOUT_S = 10.0
OPEN = {"leak", "stuck-LSO"}
"""What a killed process leaves until its transaction times out; not judged here."""


class Elsewhere:
    """Another process: a CrashError of the transform ends it, and not the worker."""

    def __init__(self, transform: Callable[[Record], Any]) -> None:
        self._transformer = Transformer(transform, 1)
        self.called: list[int] = []

    def call(self, records: Sequence[Record]) -> Any:
        self.called += [record.offset for record in records]
        try:
            return [self._transformer.apply(record) for record in records]
        except CrashError:
            raise Death("it was ended by SIGSEGV", hung=False) from None

    def close(self) -> None:
        """Nothing is kept."""


class Unsuspecting(Suspects):
    """Marks nothing: a scenario that counts transactions means those of its batches."""

    def mark(self, batch: Batch, inside: Progress | None = None) -> None:
        self._trusted.update(batch.first)


class Pipeline:
    """One broker, one claim store, and workers that come and go.

    ``marked``: the first batch of each partition is marked, as in the service.
    """

    turns_max = 3000

    def __init__(
        self,
        partitions: int = 1,
        *,
        faults: Callable[[str], InjectedFault | None] | None = None,
        transform: Callable[[Record], Any] = work,
        sources: tuple[str, ...] = ("header:id",),
        claims: bool | MemoryClaims = True,
        pass_on_outage: bool = False,
        records_max: int | None = None,
        at_end: bool = False,
        open_timeout_s: float | None = math.inf,
        batch_max: int = 500,
        shutdown_s: float = 25.0,
        marked: bool = False,
        trust: str = "checked",
    ) -> None:
        self.clock = Ticking()
        self.broker = MemoryBroker(
            {"in": partitions, "out": 2, "dead": 1}, inputs=["in"], clock=self.clock
        )
        self.claims: Any = claims if isinstance(claims, MemoryClaims) else None
        if claims is True:
            self.claims = MemoryClaims(clock=self.clock, ttl_ms=3_600_000)
        self.faults = faults or Script()
        self.told = Told()
        self.turns = 0
        self._transform = transform
        self._sources = sources
        self._pass_on_outage = pass_on_outage
        self._bounds = (records_max, at_end)
        self._open_timeout_s = open_timeout_s
        self._batch_max = batch_max
        self._shutdown_s = shutdown_s
        self._marked = marked
        self._trust = trust
        self.start("w")

    def start(self, name: str) -> None:
        """Build a worker as a new process would; the broker and the claims are what lasts."""
        broker, clock, events = self.broker, self.clock, cast("Events", self.told)
        self.interrupt = Interrupt()
        self.lifecycle = Lifecycle(
            clock, self.interrupt, timeout_s=self._shutdown_s, wait=clock.wait
        )
        self.source = MemorySource(broker, name, wait=clock.wait, faults=self.faults)
        self.transaction = MemoryTransaction(broker, "app-w", clock=clock, faults=self.faults)
        is_checked = self._trust == "checked"
        self.owners: Any = MemoryOwners(broker, wait=clock.wait) if is_checked else None
        self.retry = RetryPolicy(ATTEMPTS_MAX)
        self.ends = Ends(idle_s=0.3, interval_s=1.0)
        self.watchdog = Watchdog(60.0, on_overrun=lambda _call, _s: None)
        self.elsewhere = Elsewhere(self._transform)
        self.isolation = Isolation(
            Transformer(self._transform, 1),
            self.elsewhere,
            on_death=lambda record, how, deaths: events.crashing_record_found(
                record.coordinates, how, deaths
            ),
            on_failure=events.isolation_failed,
        )
        identity = Identity(self._sources, inputs=["in"])
        steps = Steps(
            identity=identity,
            claiming=Claiming(
                self.claims,
                ClaimOwners(self.owners, identity, batch_max=10_000),
                pass_on_outage=self._pass_on_outage,
            ),
            transformer=self.isolation,
            planner=Planner(Destinations("app", "out", "dead")),
            dead_letter_rate=DeadLetterRate(topic="dead", rate_max=0.1, records_min=10_000),
        )
        self.core = ExactlyOnce(
            steps, self.source, self.transaction, clock=clock, interrupt=self.interrupt
        )
        process = Process(events, clock, self.lifecycle)
        self.recovery = Recovery(
            process,
            self.source,
            self.transaction,
            self.claims,
            ends=self.ends,
            limits=Limits(
                retry=self.retry,
                producer_fences=FenceBudget("w", 5),
                member_fences=FenceBudget("w", 5),
                transaction_timeout_s=TRANSACTION_TIMEOUT_S,
                pass_on_outage=self._pass_on_outage,
            ),
        )
        self.worker = Worker(process, self._runner(events), self.recovery, self.ends)

    def _runner(self, events: Events) -> BatchRunner:
        bounds = Bounds(records_max=self._bounds[0], at_end=self._bounds[1])
        bounds.open_timeout_s = self._open_timeout_s
        return BatchRunner(
            self.core,
            self.source,
            (Suspects if self._marked else Unsuspecting)(
                self.source, self.core, self.isolation, events, records_max=self._batch_max
            ),
            Sizing(
                pace=Pace(
                    interval_s=0.1,
                    records_max=self._batch_max,
                    bytes_max=1 << 20,
                    transaction_timeout_s=TRANSACTION_TIMEOUT_S,
                ),
                retry=self.retry,
                bounds=bounds,
                cut_after_s=1.0,
                ahead=self.claims is not None,
            ),
            interrupt=self.interrupt,
            watchdog=self.watchdog,
        )

    # -- input ----------------------------------------------------------------------------

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Write records whose id is their value up to a slash: ``a/2`` is a twin of ``a``."""
        for value in values:
            headers = (("id", value.split(b"/")[0]),)
            self.broker.write("in", value, key=value, partition=partition, headers=headers)

    # -- running --------------------------------------------------------------------------

    def run(self, *, open_first: bool = True) -> None:
        """Work until all input has had its effect (or a bounded run ends by itself)."""
        self.told.on["loop_moved"] = self._watch
        if open_first:
            self.transaction.open()
        self.worker.run()

    def run_judged(self, *, open_first: bool = True) -> None:
        self.run(open_first=open_first)
        self.judge()

    def drained(self) -> bool:
        ends = {where: end for where, end in self.broker.ends().items() if end}
        return {where: self.broker.committed.get(where) for where in ends} == ends

    def _watch(self) -> None:
        self.turns += 1
        if self.turns > self.turns_max:
            raise StuckError(f"{self.broker.committed} of {self.broker.ends()}")
        if self._bounds == (None, False) and self.drained() and not self.lifecycle.stopping:
            self.lifecycle.stop("drained")

    # -- judging --------------------------------------------------------------------------

    def outputs(self) -> list[bytes]:
        return sorted(record.value or b"" for record in self.broker.records("out"))

    def dead(self) -> list[bytes]:
        return [record.value or b"" for record in self.broker.records("dead")]

    def committed(self) -> Mapping[TopicPartition, int]:
        return self.broker.committed

    def judge(self) -> None:
        """Hold the broker's topics against the promise; AssertionError names the record."""
        assert self.drained(), f"committed {self.broker.committed}, ends {self.broker.ends()}"
        judge(self.broker, claims=True)


def judge(broker: MemoryBroker, *, claims: bool) -> None:
    """Hold what ``work`` has made of ``in`` against the promise; AssertionError names the record.

    ``claims``: of the records of an event, one has its effect; without, each has.
    """
    found = Judge(broker)
    found.expect(Counter(event_of(record.value or b"") for record in broker.records("in")))
    found.watch([*broker.records("out"), *broker.records("dead")], broker.committed)
    found.finish(claims=claims, emptied=0)
    wrong = [each for each in found.found if each[0] not in OPEN]
    assert not wrong, wrong


def taken(pipeline: Pipeline) -> Batch:
    return pipeline.source.take(500, 0.0)


def run(pipeline: Pipeline, batch: Batch | None = None) -> BatchResult:
    return pipeline.core.run(batch or taken(pipeline), {}, 1)


def opened(pipeline: Pipeline) -> Pipeline:
    pipeline.transaction.open()
    return pipeline


def filled(**options: Any) -> Pipeline:
    pipeline = Pipeline(2, **options)
    pipeline.write(b"a", b"two", b"a/2", b"boom", b"filter")
    pipeline.write(b"b", partition=1)
    return opened(pipeline)
