"""Health: what the probes answer. It is set, and never asks Kafka or Redis.

The loop's thread writes plain attributes, the server's threads read them; each is replaced as a
whole, so that no lock is needed.

startupz  initialised: the producer has its epoch, the consumer has subscribed
livez     the loop moved within the limit; before it runs there is nothing to hang
readyz    started, assigned for the first time, not draining, claims as the policy wants them, a
          broker answers, and what is taken gets through: the loop moves, and not from one failure
          to the next
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.cluster.lag import PartitionLag
    from hapax.cluster.micro_batches import Numbers
    from hapax.core.ports import Stuck
    from hapax.core.records import Record, TopicPartition
    from hapax.processing.batch_result import BatchResult
    from hapax.processing.state import StateFigures

STALL_S = 5.0
"""A loop that does not move for so long waits for brokers, or for a very slow record."""
FAILING_S = 3.0
"""Failures for so long, without a success among them, are no hiccup."""
FORGOTTEN_S = 10.0
"""The last failure counts for so long: with nothing more to do no success may follow it."""
SETTLED_MAX = 100
"""Transactions that are kept, in numbers."""


class Outage(NamedTuple):
    """Brokers or the claim store do not answer.

    since_s  Unix time of the first call without an answer; began_s: the same, monotonic
    reason   addresses, and what is wrong there; no secrets
    """

    since_s: float
    began_s: float
    reason: str

    @property
    def since(self) -> str:
        """Return the time of day, in UTC as in the log."""
        return time.strftime("%H:%M:%S", time.gmtime(self.since_s))


class Cause(NamedTuple):
    """Why a process is not ready. ``page``: where to read on, below the folder of the docs."""

    text: str
    page: str


class ProbeResult(NamedTuple):
    """A probe's answer; ``reasons`` holds a phrase for each thing that is missing."""

    ok: bool
    reasons: list[str]


class Executor(msgspec.Struct, frozen=True):
    """One executor that Spark says is active; in a local master the driver is one.

    name                      Spark's id of it
    running, done, failed     tasks
    memory_bytes, memory_max_bytes  of storage
    """

    name: str
    address: str
    cores: int
    running: int
    done: int
    failed: int
    memory_bytes: int
    memory_max_bytes: int


class RangeInFlight(msgspec.Struct, frozen=True):
    """A range that a task works on. ``since_s``: Unix time; ``ends``: offsets after the last."""

    since_s: float
    attempt: int
    ends: Mapping[TopicPartition, int]


class RangeDone(msgspec.Struct, frozen=True):
    """The last range of a lane. ``at_s``: Unix time; ``outcome``: ``lost`` without a report."""

    at_s: float
    outcome: str
    records: int = 0
    transactions: int = 0
    open_ms: float = 0.0
    work_ms: float = 0.0
    round_ms: float = 0.0


class LaneState(msgspec.Struct, frozen=True):
    """A lane: the next offset of each partition, None: nothing is committed; and its ranges."""

    positions: Mapping[TopicPartition, int | None]
    running: RangeInFlight | None = None
    last: RangeDone | None = None


class Health:
    """State of this process.

    ``loop_limit_s``: longer than the longest legal blocking call (the watchdog's deadline), and
    shorter than ``max.poll.interval.ms``. ``loop_s`` is the monotonic time of the loop's last move.
    ``partition_lags`` are of the last probe of each partition; ``lag_updated_s`` is the Unix time
    of the last probe that all brokers answered. ``lags`` is what a DataFrame pipeline reports,
    which has no offsets of its own, and ``query`` that this is one;
    ``paused_s`` is the Unix time since when an operator has paused the intake, None: it is not;
    ``record_paths`` are those of Spark's executors, by machine;
    ``executors`` are those that Spark named last, with the Unix time; ``executors_awaited`` says
    what a start on a cluster waits for, empty: nothing; ``executor_versions`` are what executors
    have answered to run; ``spark_ui`` is where Spark's own pages are, empty: there are none;
    ``lanes`` by number, as the driver knows them;
    ``outputs_cluster`` is Kafka's id of the cluster of the outputs where that is another one, None
    until it has answered;
    ``settled`` are the last transactions, each with the Unix time of its end; ``micro_batch`` is
    that of a DataFrame pipeline, likewise.
    """

    def __init__(
        self, loop_limit_s: float, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.loop_limit_s = loop_limit_s
        self.monotonic_s = monotonic_s
        self.started = False
        self.assigned = False
        self.draining = False
        self.paused_s: float | None = None
        self.claims_ok = True
        self.claims_away: Outage | None = None
        self.claims_evicted = False
        """Whether the claim store may delete claims to save memory."""
        self.claims_volatile: str | None = None
        self.brokers_away: Outage | None = None
        self.cut_off: Outage | None = None
        """Since when no broker answers the consumer itself."""
        self.schemas_away: Outage | None = None
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.stuck: Mapping[TopicPartition, Stuck] = {}
        self.held_back = ""  # what a bounded run waits for, with nothing else left to do
        self.partition_lags: Mapping[TopicPartition, PartitionLag] = {}
        self.lag_updated_s: float | None = None
        self.lags: Mapping[TopicPartition, int] = {}
        self.query = False
        self.record_paths: Mapping[str, str] = {}
        self.executors: tuple[float, Sequence[Executor]] | None = None
        self.executors_awaited = ""
        self.executor_versions: Mapping[str, str] = {}
        self.spark_ui = ""
        self.lanes: Mapping[int, LaneState] = {}
        self.outputs_cluster: str | None = None
        self.settled: deque[tuple[float, BatchResult]] = deque(maxlen=SETTLED_MAX)
        self.kept: StateFigures | None = None  # None: the transform keeps no state
        self.calls: Sequence[tuple[Record, float]] | None = None
        """Records in a call of the transform, and its seconds; None: calls do not overlap."""
        self.micro_batch: tuple[float, Numbers] | None = None
        self.loop_s: float | None = None
        self.waiting: Callable[[], tuple[str, float] | None] = lambda: None
        """The client's call that the loop has been in for so many seconds."""
        self._failures_s: tuple[float, float] | None = None  # the first one and the last one

    @property
    def inputs(self) -> frozenset[TopicPartition]:
        """The assigned partitions; of a query all that it reads."""
        lags = self.partition_lags.items() if self.query else ()
        return self.partitions | self.lags.keys() | {where for where, one in lags if one.is_input}

    def fail(self) -> None:
        now_s, failures_s = self.monotonic_s(), self._failures_s
        if failures_s is None or now_s - failures_s[1] > FORGOTTEN_S:
            failures_s = (now_s, now_s)
        self._failures_s = (failures_s[0], now_s)

    def settle(self, at_s: float, result: BatchResult) -> None:
        """Keep the numbers of a transaction, without what grows with partitions and texts."""
        few = msgspec.structs.replace(result, offsets={}, dead_letter_examples=(), ids=None)
        self.settled.append((at_s, few))

    def succeed(self) -> None:
        self._failures_s = None

    def startupz(self) -> ProbeResult:
        """Say whether the start is over, and what it waits for."""
        return _verdict([] if self.started else [*self._starting(), *self._outages()])

    def livez(self) -> ProbeResult:
        loop_s = self.loop_s
        age_s = 0.0 if loop_s is None else self.monotonic_s() - loop_s
        late = f"the loop has not moved for {age_s:.1f} s (limit {self.loop_limit_s:g} s)"
        reasons = [late] if age_s > self.loop_limit_s else []
        return ProbeResult(not reasons, reasons)

    def readyz(self) -> ProbeResult:
        """Say whether records are being processed, or would be if there were any."""
        return _verdict(self.causes())

    def causes(self) -> list[Cause]:
        """Return why this process is not ready, what can be cured first."""
        causes = [*self._outages(), *self._starting()]
        if not self.assigned:
            text = "waiting for the first assignment of partitions"
            causes.append(Cause(text, "alerts.md#hapaxworkernotstarted"))
        if self.draining:
            causes.append(Cause("draining", "kubernetes.md#update-and-roll-back"))
        if self.held_back:
            causes.append(Cause(self.held_back, "backfill.md#open-transactions"))
        if self.paused_s is not None:
            since = time.strftime("%H:%M:%S", time.gmtime(self.paused_s))
            text = f"paused by an operator since {since}: hapax resume"
            causes.append(Cause(text, "commands.md#pause-and-resume-take-nothing-for-a-while"))
        waiting = {} if self.kept is None else self.kept.restoring
        if self.partitions and self.partitions <= waiting.keys():
            count = len(self.partitions)
            text = f"all of {count} partitions wait for their state, which is being read"
            causes.append(Cause(text, "state.md#what-happens-when"))
        return causes + self._held_up() + self._stalled()

    def _held_up(self) -> list[Cause]:
        return [
            Cause(
                f"{topic}/{partition} is stuck: the set at offset {one.offset} cannot be read"
                f" ({one.reason}); {skip_command((topic, partition), one)} passes it",
                "alerts.md#hapaxpartitionstuck",
            )
            for (topic, partition), one in sorted(self.stuck.items())
        ]

    def _outages(self) -> list[Cause]:
        brokers, claims, causes = self.brokers_away, self.claims_away, []
        # A running worker outlives a moment without brokers; a start waits for them.
        if brokers is not None and (
            not self.started or self.monotonic_s() - brokers.began_s > FAILING_S
        ):
            told = f"no broker has answered since {brokers.since} ({brokers.reason})"
            causes.append(Cause(told, "alerts.md#hapaxbrokersaway"))
        if self.cut_off is not None:
            told = f"{self.cut_off.reason} since {self.cut_off.since}"
            causes.append(Cause(told, "alerts.md#hapaxbrokersaway"))
        if not self.claims_ok:
            text, page = "the claim store does not answer", "alerts.md#hapaxclaimstoredown"
            if self.claims_evicted:
                text, page = "the claim store deletes claims", "alerts.md#hapaxclaimsevicted"
            causes.append(Cause(text, page))
            if claims is not None:
                causes.append(Cause(f"{claims.reason}, since {claims.since}", page))
        if (schemas := self.schemas_away) is not None:
            text = f"records wait for a schema since {schemas.since}: {schemas.reason}"
            causes.append(Cause(text, "schemas.md#what-happens-on-which-failure"))
        return causes

    def state(self) -> str:
        """Return one of: starting, running, at risk, paused, stuck, stalled, draining.

        paused: by an operator, or the claim store is away and the policy is to wait. stalled: for
        another reason of readyz. stuck: a partition is held up by a set that cannot be decoded; the
        others continue. at risk: it runs, and retention deletes unread records soon.
        """
        if not self.started:
            return "starting"
        if self.draining:
            return "draining"
        if self.paused_s is not None or not self.claims_ok:
            return "paused"
        if not self.assigned:
            return "starting"
        if self.stuck:
            return "stuck"
        running = "at risk" if self.risks() else "running"
        return "stalled" if self._outages() or self._stalled() else running

    def risks(self) -> list[Cause]:
        """Return the inputs whose next record has used half of its retention, or all of it."""
        lags = sorted((where, self.partition_lags.get(where)) for where in self.inputs)
        return [
            Cause(
                f"retention deletes unread records of {topic}/{partition} "
                + (f"in {one.margin_s:.0f} s, at the earliest" if one.margin_s > 0 else "now"),
                "alerts.md#hapaxretentionhalfused",
            )
            for (topic, partition), one in lags
            if one is not None
            and one.margin_s is not None
            and (one.margin_s <= 0 or one.margin_s < (one.lag_s or 0))
        ]

    def _stalled(self) -> list[Cause]:
        now_s, loop_s, failures_s = self.monotonic_s(), self.loop_s, self._failures_s
        reasons = []
        stands_s, waits = 0.0 if loop_s is None else now_s - loop_s, self.waiting()
        if waits is not None and min(stands_s, waits[1]) > FAILING_S:
            text = f"{waits[0]} has had no answer for {waits[1]:.0f} s"
            reasons.append(Cause(text, "alerts.md#hapaxbrokersaway"))
        elif stands_s > STALL_S:
            text = f"the loop has not moved for {stands_s:.0f} s"
            reasons.append(Cause(text, "alerts.md#hapaxloopstuck"))
        if failures_s is not None and now_s - failures_s[1] < FORGOTTEN_S:
            failing_s = now_s - failures_s[0]
            if failing_s > FAILING_S:
                text = f"nothing has been committed for {failing_s:.0f} s of failures"
                reasons.append(Cause(text, "alerts.md#hapaxpipelinestalled"))
        return reasons

    def _starting(self) -> list[Cause]:
        text = "starting: transactions are not initialised yet"
        return [] if self.started else [Cause(text, "alerts.md#hapaxworkernotstarted")]


def skip_command(where: TopicPartition, one: Stuck) -> str:
    return f"hapax offsets skip {where[0]}/{where[1]}/{one.offset} --dead-letter"


def _verdict(causes: list[Cause]) -> ProbeResult:
    return ProbeResult(ok=not causes, reasons=[cause.text for cause in causes])
