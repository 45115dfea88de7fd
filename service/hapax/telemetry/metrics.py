"""The table of metrics. A row here is a series in ``/metrics`` and a line of docs/metrics.md.

Rules: base units; a counter ends in ``_total``; every label is bounded; buckets are explicit and
start below 1 ms, because a transaction without a network between takes less than 2 ms. No label
grows without end: it lists its values or has a limit, and what comes on top is counted under
``other``, so that a stranger's exception names cannot fill Prometheus.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import prometheus_client as prometheus
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import Metric

OTHER = "other"
PREFIX = "hapax_"

M = TypeVar("M", bound=Counter | Gauge | Histogram)

DURATIONS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
LATENCIES = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0
)  # fmt: skip
RANGES = (
    10.0, 100.0, 1_000.0, 10_000.0, 30_000.0, 100_000.0, 300_000.0, 1_000_000.0, 3_000_000.0
)  # fmt: skip
SYNCS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
SIZES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0)


class Label(NamedTuple):
    """A label with all its ``values``, or with a ``limit`` on how many different ones it takes."""

    name: str
    values: tuple[str, ...] = ()
    limit: int = 0


class Row(Generic[M]):
    """One metric as it is in the table.

    A class attribute that is a row becomes a Family on the instance, under the same name; the
    exposed name is the attribute's with prefix, and with ``_total`` for counters.
    """

    def __init__(
        self, kind: type[M], meaning: str, *labels: Label, buckets: tuple[float, ...] = ()
    ) -> None:
        self.kind = kind
        self.meaning = meaning
        self.labels = labels
        self.buckets = buckets
        self.attribute = ""

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.attribute = name

    def __get__(self, instance: object, owner: type[object]) -> Family[M]:
        raise AttributeError(f"{self.attribute} is a row; an instance has the family")

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.attribute}{'_total' if self.kind is Counter else ''}"

    def build(self, registry: CollectorRegistry) -> Family[M]:
        names = [label.name for label in self.labels]
        more: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return Family(self, self.kind(self.name, self.meaning, names, registry=registry, **more))


count = partial(Row[Counter], Counter)
gauge = partial(Row[Gauge], Gauge)
histogram = partial(Row[Histogram], Histogram)


class Family(Generic[M]):
    """A metric with its label children, each bound once: a hit costs one dict look-up."""

    def __init__(self, row: Row[M], metric: M) -> None:
        self._row = row
        self._metric = metric
        self._children: dict[tuple[str, ...], M] = {}
        self._seen = [set(label.values) for label in row.labels]
        # Series that exist from the start let a rate see their first movement.
        if all(label.values for label in row.labels):
            for values in product(*(label.values for label in row.labels)):
                self.of(*values)

    def of(self, *values: str) -> M:
        child = self._children.get(values)
        return self._bind(values) if child is None else child

    def series(self) -> Iterator[tuple[Mapping[str, str], float]]:
        for metric in self._metric.collect():
            for sample in metric.samples:
                if sample.name == self._row.name:
                    yield sample.labels, sample.value

    def remove(self, *values: str) -> None:
        if self._children.pop(values, None) is not None:
            self._metric.remove(*values)

    def _bind(self, values: tuple[str, ...]) -> M:
        bounded = tuple(
            self._bounded(label, seen, value)
            for label, seen, value in zip(self._row.labels, self._seen, values, strict=True)
        )
        child = cast("M", self._metric.labels(*bounded)) if bounded else self._metric
        if bounded == values:
            self._children[values] = child
        return child

    @staticmethod
    def _bounded(label: Label, seen: set[str], value: str) -> str:
        if value in seen:
            return value
        if len(seen) >= label.limit:
            return OTHER
        seen.add(value)
        return value


PHASES = ("identify", "claim", "transform", "plan", "send", "send_offsets", "commit", "total")
MICRO_BATCH_PHASES = ("plan", "work", "publish", "total")

_TOPIC = Label("topic", limit=1_000)
_PARTITION = (_TOPIC, Label("partition", limit=10_000))
_OWN = (Label("group", limit=1), *_PARTITION)
_READER = (Label("group", limit=100), *_PARTITION)


class _Table:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for row in rows(type(self)):
            setattr(self, row.attribute, row.build(self.registry))


class _BusinessMetrics(Collector):
    """Metrics of business code, where it has any (hapax/context.py)."""

    def collect(self) -> Iterable[Metric]:
        context = sys.modules.get("hapax.context")
        return context.REGISTRY.collect() if context else ()


class Metrics(_Table):
    """The table, built into a registry of its own; ``app``: the pipeline, and its group.

    Each row is a Family on the instance: ``metrics.records_consumed.of("orders").inc(12)``.
    """

    records_consumed = count("Input records of committed transactions.", _TOPIC)
    records_produced = count(
        "Records written by committed transactions, dead letters included.", _TOPIC
    )
    records_skipped = count(
        "Input records without an output; redelivered: handed out again by the client although "
        "committed.",
        Label("reason", ("duplicate", "filtered", "looped", "redelivered")),
    )
    records_dead_lettered = count(
        "Dead letters, by the type of the exception.", Label("reason", limit=50)
    )
    records_retried = count(
        "Records written to the retry topic: for a later try (asked), or to another level of it "
        "before they are due (moved).",
        Label("why", ("asked", "moved")),
    )
    records_waiting = gauge(
        "Records of the retry topic that this process has read before they are due; up to 2,000 "
        "of each partition, more wait on the brokers."
    )
    records_without_id = count("Records processed although they carry no id.")
    records_unchecked = count("Records processed without the claim store, under the policy pass.")
    bytes_consumed = count(
        "Bytes of keys, values and headers of the input of committed transactions."
    )
    transactions = count(
        "Transactions by how they ended; fenced and fatal cost the producer.",
        Label("outcome", ("committed", "aborted", "fenced", "fatal")),
    )
    idle_offsets_committed = count(
        "Commits of idle offsets: progress alone, after control records and aborted data."
    )
    micro_batches = count(
        "Micro-batches; repeated: found published after a stop.",
        Label("outcome", ("published", "repeated")),
    )
    late_rows_dropped = count("Rows dropped because they came after the watermark.")
    partitions_isolated = count(
        "Partitions taken over where a process had died: their next records are called in another "
        "process."
    )
    crashing_records = count("Records found to kill or hang the process that calls the transform.")
    calls_in_flight = gauge("Calls of the transform that are being made, where they overlap.")
    call_oldest_seconds = gauge("For how long the oldest call in flight has taken.")
    batches_halved = count("Times the batch size was halved to isolate a culprit.")
    dedup_lookups = count(
        "Ids looked up in the claim store: new or owned by the same record, owned by another "
        "record (hit), without an answer (error).",
        Label("result", ("miss_or_own", "hit", "error")),
    )
    dedup_claim_losses = count("Times the claim store was found to have lost its claims.")
    dedup_clock_jumps = count(
        "Times the claim store's clock was set forward, which ends claims early."
    )
    dedup_keys_evicted = count(
        "Keys that the claim store evicted; claims may have been among them."
    )
    dedup_store_evicts = gauge("1 while the claim store may delete claims to save memory, else 0.")
    dedup_store_volatile = gauge("1 while a restart of the claim store loses claims, else 0.")
    schemas_missing = gauge("1 while records wait for a schema, else 0.")
    dedup_ids_on_different_keys = count(
        "Batches in which records with different keys have one id: all but the first are dropped."
    )
    dedup_claims_taken_over = count(
        "Claims taken over, whose owners were not processed and can no longer be read."
    )
    rebalances = count(
        "Changes of the assigned partitions.", Label("kind", ("assigned", "revoked", "lost"))
    )
    producers_rebuilt = count("Producers replaced within the process.", Label("cause", limit=20))
    partitions_unowned = count("Times partitions of the input had no owner.")
    members_fenced = count("Times the group gave this instance name to another member.")
    brokers_awaited = count(
        "Times no broker answered: to a new producer, at a start, or to an idle worker's check."
    )
    in_doubt_fences = count("Producers replaced because a late request might still be applied.")
    librdkafka_errors = count(
        "Errors of the Kafka client, by log facility; ERROR: what a consumer handed out instead of "
        "records.",
        Label("facility", limit=100),
    )
    ranges = count(
        "Ranges of the Spark engine by how they ended; what one committed before counts in any "
        "case.",
        Label("outcome", ("done", "aborted", "fenced", "dead", "claims", "schemas", "stop")),
    )
    tasks_lost = count("Tasks of the Spark engine that ended without a report.")
    watchdog_fired = count("Calls that overran their deadline.", Label("call", limit=50))
    telemetry_failures = count("Log lines of the Kafka client that could not be logged.")
    log_lines_dropped = count(
        "Log lines dropped because standard output is not read fast enough or cannot be written."
    )
    lag_monitor_errors = count(
        "Queries for log offsets not fully answered; the lag gauges keep their last values."
    )

    transaction_duration_seconds = histogram(
        "Time of a committed transaction, by step and in total.",
        Label("phase", PHASES),
        buckets=DURATIONS,
    )
    micro_batch_duration_seconds = histogram(
        "Time of a micro-batch: Spark's planning, its tasks (work), the transaction (publish), "
        "and in total.",
        Label("phase", MICRO_BATCH_PHASES),
        buckets=DURATIONS,
    )
    record_latency_seconds = histogram(
        "Age at commit, by its timestamp, of the oldest and the newest record of each transaction.",
        buckets=LATENCIES,
    )
    transaction_records = histogram("Input records of a committed transaction.", buckets=SIZES)
    dedup_latency_seconds = histogram(
        "Time that a batch waited for its claims; under a backlog they travel while the batch "
        "before is in work.",
        buckets=DURATIONS,
    )

    range_duration_seconds = histogram(
        "Time of a range: until producer and positions are known (open), in the task (work), and "
        "from planning to the report at the driver (round).",
        Label("step", ("open", "work", "round")),
        buckets=DURATIONS,
    )
    range_records = histogram("Input records of a range.", buckets=RANGES)

    consumer_lag = gauge(
        "Last stable offset minus committed offset, of assigned partitions; control records "
        "count. Of a DataFrame pipeline: records it has not read.",
        *_OWN,
    )
    consumer_lag_seconds = gauge(
        "Age of the oldest unread record, of assigned partitions, at least: that of the newest "
        "record known to be read before it. 0 when nothing is unread.",
        *_OWN,
    )
    retention_margin_seconds = gauge(
        "Seconds until retention deletes the next unread record, at the least; 0 or less: now. "
        "+Inf when nothing is unread or nothing is deleted.",
        *_OWN,
    )
    open_transaction_seconds = gauge(
        "For how long the last stable offset has not moved below the end of the log, of inputs "
        "and outputs; 0 when no transaction is open.",
        *_PARTITION,
    )
    last_stable_offset_lag = gauge(
        "Offsets between the last stable offset and the end of the log, of inputs and outputs.",
        *_PARTITION,
    )
    paused = gauge("1 while an operator has paused the intake (hapax pause), else 0.")
    partition_stuck = gauge(
        "1 for an assigned partition before a set of records that cannot be read. The series "
        "disappears when the partition moves.",
        *_PARTITION,
    )
    partition_stuck_offset = gauge("Offset of the first record of that set.", *_PARTITION)
    executors = gauge("Executors of Spark that can run tasks.")
    ranges_in_flight = gauge("Ranges that tasks of the Spark engine work on.")
    state_rows = gauge("Rows, or entries by key, that are kept as state.")
    state_bytes = gauge("Memory of that state on all executors together; by key: on disk.")
    state_max_bytes = gauge("HAPAX_STATE__SIZE_MAX where state is kept by key, else 0.")
    state_partitions_restoring = gauge("Partitions that wait for their state.")
    state_unread_offsets = gauge("Offsets of the changelog that are left to read for them.")
    state_changes_restored = count("Changes of state that were read from the changelog.")
    last_commit_timestamp_seconds = gauge("Unix time of the last commit; 0 before the first.")
    last_poll_timestamp_seconds = gauge("Unix time at which the loop last moved; 0 before it runs.")
    ready = gauge("1 while `/readyz` returns 200; a rollout waits for it.")
    assigned_partitions = gauge("Assigned partitions.")
    dedup_store_up = gauge("0 while the claim store does not answer, else 1, also without a store.")
    native_routes_lost = count("Partitions whose route to the native path was set again.")
    native_path_left = gauge(
        "1 while the process uses Python because native path and reference differed, else 0."
    )
    build_info = gauge(
        "Always 1; the labels name what runs. To join: on (job, instance) group_left (app).",
        *(Label(what, limit=1) for what in ("app", "version", "engine", "python", "librdkafka")),
    )
    reader_lag_records = gauge(
        "Committed records that a group of HAPAX_TELEMETRY__READERS has not read, at least: "
        "without markers, aborted records and an open tail. Of the worker that has partition 0 of "
        "the first input topic; no series while the group cannot be queried.",
        *_READER,
    )
    reader_lag_records_max = gauge(
        "The same at most: more where the group has no valid offset, and while a long backlog is "
        "being counted.",
        *_READER,
    )
    reader_lag_open = gauge(
        "Offsets before such a group that wait for open transactions.", *_READER
    )

    def __init__(self, app: str = "") -> None:
        self.app = app
        # A "_created" series for each counter doubles the scrape and no alert here reads it.
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call] # the library has no types here
        super().__init__()
        self.registry.register(_BusinessMetrics())
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.GCCollector(registry=self.registry)
        self.dedup_store_up.of().set(1)


class SpoolMetrics(_Table):
    """The metrics of one publisher; ``registry`` is a collector that another registry takes."""

    spool_records_accepted = count("Records accepted: they are on disk.")
    spool_records_published = count("Records published: they are in Kafka.")
    spool_records_skipped = count("Records left out for good, as skip_at says.")
    spool_records_waiting = gauge("Accepted records that are not known to be in Kafka.")
    spool_bytes = gauge("Bytes that the spool's files take.")
    spool_waiting_seconds = gauge(
        "For how long accepted records have waited without any transaction; 0: none wait."
    )
    spool_sync_seconds = histogram(
        "Seconds of a round of the spool: one write and one sync.", buckets=SYNCS
    )
    spool_full = gauge("1 while a call waits for room in the spool, or was refused for it.")


def rows(table: type[_Table] = Metrics) -> list[Row[Any]]:
    return [row for row in vars(table).values() if isinstance(row, Row)]
