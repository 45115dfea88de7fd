"""Settings to parts: each builder reads the settings of one thing and returns it."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from hapax import __version__
from hapax.claims.kind import StoreOptions, TlsFiles
from hapax.claims.store import kind_of
from hapax.cluster.lag import GroupProgress
from hapax.core.errors import BatchAbortedError, ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.engines.batch_runner import BatchRunner, Sizing, Windowing, WindowRunner
from hapax.engines.idle_offsets import Bounds, Ends
from hapax.engines.isolated_calls import IsolatedCalls
from hapax.engines.lifecycle import Lifecycle, Process
from hapax.engines.membership import schema_hold
from hapax.engines.monitors import FileWatch, LagMonitor, ReaderLagMonitor
from hapax.engines.overlapping_calls import GatheredCalls, call_limits, open_transformer, retrying
from hapax.engines.preflight import Brokers, await_brokers
from hapax.engines.recovery import Recovery
from hapax.engines.steps import now_ms, steps
from hapax.engines.suspects import Suspects
from hapax.engines.watchdog import Watchdog
from hapax.engines.worker import Worker
from hapax.kafka.admin.topics import KafkaPreflight
from hapax.kafka.connection import split
from hapax.kafka.consume.retry_source import KafkaRetrySource
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.consume.target_source import KafkaTargetSource
from hapax.kafka.native import record_path
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.target import TargetTransaction
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.produce.weaker import KafkaAtLeastOnce, KafkaAtMostOnce
from hapax.kafka.properties import client_name, consumer_properties, producer_properties
from hapax.kafka.read.claim_owners import KafkaOwners
from hapax.kafka.read.lag_probe import KafkaLagProbe, reader_probes
from hapax.kafka.tokens import file_digests, files_problem, kafka_files
from hapax.processing.call_window import Window
from hapax.processing.crash_markers import Isolation
from hapax.processing.exactly_once import ExactlyOnce
from hapax.processing.limits import FenceBudget, Limits, Pace, RetryPolicy
from hapax.settings.secrets import secrets_of
from hapax.telemetry.logs import ClientLogger, who

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from hapax.core.ports import ClaimStore, Watch
    from hapax.core.records import Record
    from hapax.engines.membership import PartitionHold
    from hapax.engines.overlapping_calls import SlotCalls
    from hapax.engines.state_restore import Keyed
    from hapax.kafka.native import NativePath
    from hapax.kafka.produce.producer import Placed
    from hapax.processing.batch_result import Core
    from hapax.processing.keyed_state import KeyedState
    from hapax.processing.transform import Transformer, TransformForm
    from hapax.settings import Settings
    from hapax.settings.secrets import Strike
    from hapax.telemetry.events import Events

    Producing = KafkaTransaction | KafkaAtLeastOnce | TargetTransaction

Consuming = TypeVar("Consuming", bound=KafkaSource)

CUT_AFTER_S = 1.0
"""Longest that business code holds one batch: revokes, probes and SIGTERM wait for it."""
FAREWELL_S = 10.0
"""Longest that clients, Spark and the telemetry port may take to close when the last transaction is
decided or given up, which takes the transaction timeout."""
ENDS_IDLE_S, ENDS_INTERVAL_S = 0.3, 1.0
PRODUCER_FENCES_MAX, MEMBER_FENCES_MAX = 4, 2

NO_ASSIGNOR: dict[str, Any] = {}
RANGE: dict[str, Any] = {"group.remote.assignor": "range"}

WEAKER: dict[str, type[KafkaAtLeastOnce]] = {
    "at_least_once": KafkaAtLeastOnce,
    "at_most_once": KafkaAtMostOnce,
}


class Shared(Process, frozen=True):
    """What builders start from, in addition to what the parts share."""

    settings: Settings
    interrupt: Interrupt
    watchdog: Watchdog
    native: NativePath | None


def share(settings: Settings, events: Events) -> Shared:
    clock, interrupt = time, Interrupt()
    lifecycle = Lifecycle(clock, interrupt, timeout_s=settings.shutdown.timeout_ms / 1000)
    watchdog = Watchdog(settings.watchdog.timeout_ms / 1000, on_overrun=events.watchdog_fired)
    last_s = settings.transaction.timeout_ms / 1000 + FAREWELL_S
    watchdog.limit_stop(lambda: lifecycle.overdue, last_s)
    attempt_s, whole_s = call_limits_s(settings)
    watchdog.limit_calls(interrupt, attempt_s, events.call_hung, whole_s)
    native = record_path(settings).path
    return Shared(events, clock, lifecycle, settings, interrupt, watchdog, native)


def source(
    shared: Shared, kind: type[Consuming], *, assignor: dict[str, Any] = NO_ASSIGNOR, **more: Any
) -> Consuming:
    """Return the consumer; it connects, and joins nothing yet."""
    return kind(
        consumer_properties(shared.settings) | assignor,
        shared.settings.input.topics,
        start=shared.settings.start,
        logger=ClientLogger(shared.events, "consumer"),
        clock=shared.clock,
        watch=shared.watchdog.watch,
        native=shared.native if kind is KafkaSource else None,
        **more,
    )


def worker_source(shared: Shared, *, together: bool = False) -> KafkaSource:
    """``together``: a member gets the same partitions of all inputs."""
    if shared.settings.elsewhere:
        return source(shared, KafkaTargetSource)
    topic = retrying(shared.settings).topic
    if topic is None:
        return source(shared, KafkaSource, assignor=RANGE if together else NO_ASSIGNOR)
    return source(shared, KafkaRetrySource, retry=topic.name, now_ms=now_ms)


def brokers(shared: Shared, list_topics: Callable[[float], Any]) -> Brokers:
    return Brokers(shared, shared.settings, KafkaPreflight(shared.settings, list_topics).look)


def target_remarks(shared: Shared, source: KafkaSource) -> list[str] | None:
    """Wait for the cluster of the outputs, where it is another one; None: to stop before that."""
    if not isinstance(source, KafkaTargetSource):
        return []
    preflight = KafkaPreflight(shared.settings, source.lanes.list_topics, outputs=True)
    if not await_brokers(Brokers(shared, shared.settings, preflight.look)):
        return None
    servers = shared.settings.target.kafka.bootstrap_servers
    shared.events.outputs_cluster_met(servers, source.lanes.cluster)
    return source.meet_target(mirrors=shared.settings.transform is None)


def transaction(shared: Shared, source: KafkaSource, placed: Placed | None = None) -> Producing:
    """Return the producing side of the guarantee that is wanted; it has no producer yet."""
    settings, events = shared.settings, shared.events
    around: dict[str, Any] = {"clock": shared.clock, "forward": events.librdkafka_logged}
    around["watch"] = shared.watchdog.watch
    if isinstance(source, KafkaTargetSource):
        source.lanes = TargetTransaction(
            settings,
            logger=ClientLogger(events, "progress"),
            source_cluster=lambda: source.cluster_id,
            on_retry=events.lane_open_retried,
            **around,
        )
        return source.lanes
    config = replace(
        ProducerConfig.of(settings, producer_properties(settings), shared.native), placed=placed
    )
    around["meet_cluster"] = source.meet_cluster
    if settings.guarantee == "exactly_once":
        return KafkaTransaction(config, **around)
    if settings.guarantee == "at_most_once":
        around["on_lost"] = events.outputs_lost
    return WEAKER[settings.guarantee](config, commit_offsets=source.commit, **around)


def claims(shared: Shared, stack: ExitStack) -> ClaimStore | None:
    events = shared.events
    store = claim_store(
        shared.settings,
        on_emptied=events.claims_lost,
        on_clock_jump=events.claims_clock_jumped,
        on_look=events.claims_evicted,
        on_volatile=events.claims_volatile,
    )
    if store is not None:
        stack.callback(store.close)
    return store


def owners(
    settings: Settings, watch: Watch, stack: ExitStack, source: object = None
) -> KafkaOwners | None:
    """Return what looks up the owners of claims; it connects when it is first needed."""
    if settings.dedup.claims_url is None:
        return None
    progress = source.progress_of if isinstance(source, KafkaTargetSource) else None
    found = KafkaOwners(settings, watch=watch, progress=progress)
    found.in_turns = source is not None  # a task serves no group, and keeps nothing for the next
    stack.callback(found.close)
    return found


def worker(
    shared: Shared,
    stack: ExitStack,
    source: KafkaSource,
    transaction: Producing,
    claims: ClaimStore | None,
    business: tuple[Isolation, Transformer | GatheredCalls],
    keyed: Keyed | None = None,
) -> Worker:
    settings, (isolation, transformer) = shared.settings, business
    ends = Ends(idle_s=ENDS_IDLE_S, interval_s=ENDS_INTERVAL_S)
    budgets = limits(settings)
    recovery = Recovery(shared, source, transaction, claims, ends=ends, limits=budgets)
    elsewhere = source.elsewhere if isinstance(source, KafkaTargetSource) else None
    lookup = owners(settings, shared.watchdog.watch, stack, source)
    state = None if keyed is None else keyed.state
    made = steps(settings, claims, lookup, isolation, elsewhere=elsewhere, state=state)
    holds: list[PartitionHold] = list(schema_hold(shared, settings))
    if keyed is not None:
        holds.append(keyed.hold)
    bare = ExactlyOnce(made, source, transaction, clock=shared.clock, interrupt=shared.interrupt)
    core = traced(settings, bare)
    suspects = Suspects(
        source, core, isolation, shared.events, records_max=settings.transaction.records_max
    )
    parts = (core, source, suspects, sizing(settings, budgets.retry, Bounds.of(settings)))
    around: dict[str, Any] = {"interrupt": shared.interrupt, "watchdog": shared.watchdog}
    if isinstance(transformer, GatheredCalls) and keyed is None:
        calls, most = transformer.calls, settings.transaction
        windowing = Windowing(
            Window(), calls, isolation, most.records_max, most.bytes_max, calls.at_once
        )
        runner: BatchRunner = WindowRunner(*parts, windowing=windowing, **around)
    else:
        runner = BatchRunner(*parts, **around)
    return Worker(shared, runner, recovery, ends, holds)


def limits(settings: Settings) -> Limits:
    return Limits(
        retry=RetryPolicy(settings.retry.attempts),
        producer_fences=FenceBudget(settings.instance, fences_max=PRODUCER_FENCES_MAX),
        member_fences=FenceBudget(settings.instance, fences_max=MEMBER_FENCES_MAX),
        transaction_timeout_s=settings.transaction.timeout_ms / 1000,
        pass_on_outage=settings.dedup.on_outage == "pass",
    )


def sizing(
    settings: Settings, retry: RetryPolicy, bounds: Bounds, *, start: int = Pace.START
) -> Sizing:
    """Return what decides about the size of batches; the first holds ``start`` records."""
    limits = settings.transaction
    return Sizing(
        pace=Pace(
            interval_s=limits.interval_ms / 1000,
            records_max=limits.records_max,
            bytes_max=limits.bytes_max,
            transaction_timeout_s=limits.timeout_ms / 1000,
            start=start,
        ),
        retry=retry,
        bounds=bounds,
        cut_after_s=CUT_AFTER_S,
        ahead=settings.dedup.claims_url is not None,
    )


def start_lag_monitor(
    shared: Shared, stack: ExitStack, progress: Callable[[], GroupProgress]
) -> None:
    settings = shared.settings
    written = (settings.output.topic, settings.dead_letter.topic, settings.retry_topic)
    outputs = [topic for topic in written if topic is not None and not settings.elsewhere]
    probe = KafkaLagProbe(
        consumer_properties(settings), outputs, logger=ClientLogger(shared.events, "lag-monitor")
    )
    interval_s = settings.telemetry.lag_interval_ms / 1000
    lag_monitor = LagMonitor(probe, progress, shared.events, interval_s=interval_s)
    readers = ReaderLagMonitor(reader_probes(settings), progress, shared.events, settings)
    for monitor in (lag_monitor, readers):
        monitor.start()
        stack.callback(monitor.stop)


def start_file_watch(shared: Shared, stack: ExitStack, strike: Strike) -> None:
    """Watch the clients' files, before any is built; ``strike`` of the log learns new secrets."""
    settings, worker = shared.settings, shared.settings.engine == "worker"
    if not file_digests(settings):
        return

    def follow(files: list[str]) -> None:
        strike.learn(secrets_of(settings))
        of_kafka = not kafka_files(settings).isdisjoint(files)
        shared.events.client_files_changed(files, restart=of_kafka and not worker)
        shared.lifecycle.outdated |= of_kafka and worker

    watch = FileWatch(
        shared.events, partial(file_digests, settings), partial(files_problem, settings), follow
    )
    watch.start()
    stack.callback(watch.stop)


# -- Tracing: where it is off nothing of it is imported, and the core runs bare -------------------


def start_tracing(settings: Settings, stack: ExitStack) -> None:
    """Raise ConfigurationError when spans have no way out; export the rest at the end."""
    if not settings.telemetry.tracing:
        return
    if settings.spark.dataframe is not None:
        raise ConfigurationError(
            "HAPAX_TELEMETRY__TRACING=on is for records; the micro-batches of"
            " HAPAX_SPARK__DATAFRAME have no spans: set it to off"
        )
    from hapax.telemetry.tracing import close_tracing

    stack.callback(close_tracing, _spans(settings))


def traced(settings: Settings, core: Core, client: str | None = None) -> Core:
    if not settings.telemetry.tracing:
        return core
    from hapax.telemetry.tracing import TracedCore

    host, port = split(settings.kafka.bootstrap_servers.split(",")[0].strip())
    who: Any = {"messaging.client.id": client or client_name(settings), "server.address": host}
    who |= {"messaging.consumer.group.name": settings.app, "server.port": port}
    return TracedCore(core, _spans(settings), who)


def flush_traces(settings: Settings) -> None:
    """Export the spans of a task: Spark may end its Python process at any time."""
    if settings.telemetry.tracing:
        from hapax.telemetry.tracing import flush_tracing

        flush_tracing(_spans(settings))


def _spans(settings: Settings) -> Any:
    from hapax.telemetry.tracing import open_tracing

    return open_tracing(settings.app, settings.instance, __version__)


# -- Business code: its calls and later tries, and a process for suspects -------------------------


CALL_SHARE = 0.9
"""Of ``max.poll.interval.ms``: a batch that takes longer is taken away anyway."""


def call_limits_s(settings: Settings) -> tuple[float, float]:
    """Return seconds that one attempt may take, and all attempts at a record where none polls."""
    timeout_ms = settings.call.timeout_ms
    whole_s = CALL_SHARE * settings.group.max_poll_interval_ms / 1000
    return whole_s if timeout_ms is None else timeout_ms / 1000, whole_s


def transformer(
    shared: Shared, form: TransformForm, stack: ExitStack, state: KeyedState | None = None
) -> Transformer | GatheredCalls:
    events = shared.events
    made = open_transformer(form, call_limits(shared.settings), events.event_loop_blocked, state)
    if isinstance(made, GatheredCalls):
        stack.callback(made.close)
        shared.watchdog.follow(partial(_follow, made.calls, events))
    return made


def _follow(calls: SlotCalls, events: Events) -> tuple[Record, float] | None:
    events.calls_observed(calls.running())
    return calls.tick()


def isolation(
    settings: Settings,
    transformer: Transformer | GatheredCalls,
    events: Events,
    state: KeyedState | None = None,
) -> Isolation:
    limits, found = call_limits(settings), events.crashing_record_found
    return Isolation(
        transformer,
        IsolatedCalls(settings.transform, limits, *call_limits_s(settings), state, **who(settings)),
        on_death=lambda record, how, deaths: found(record.coordinates, how, deaths),
        on_failure=events.isolation_failed,
        at_once=transformer.calls.at_once if isinstance(transformer, GatheredCalls) else 1,
    )


def group_progress(shared: Shared, source: KafkaSource) -> GroupProgress:
    """Return how far the group is in the inputs; what waits is no lag, and is counted apart."""
    found = GroupProgress(source.processed(), source.positions())
    if not isinstance(source, KafkaRetrySource):
        return found
    shared.events.records_wait(source.waiting())
    topic = shared.settings.retry_topic
    both = (found.committed, found.positions)
    read = ({where: at for where, at in each.items() if where[0] != topic} for each in both)
    return GroupProgress(*read)


def tell_waiting(shared: Shared, source: KafkaSource) -> None:
    """Say how many records wait when a bounded run ends: it does not wait for them."""
    if isinstance(source, KafkaRetrySource) and shared.settings.bounded:
        with suppress(BatchAbortedError):  # it is only a remark
            topic = str(shared.settings.retry_topic)
            shared.events.records_left_waiting(source.waiting(), source.unread(), topic)


def claim_store(
    settings: Settings, *, timeout_s: float | None = None, **told: Any
) -> ClaimStore | None:
    """``timeout_s``: for connecting and each answer; ``told``: as in StoreOptions."""
    dedup = settings.dedup
    if dedup.claims_url is None:
        return None
    password = None if dedup.key_password is None else dedup.key_password.get_secret_value
    options = StoreOptions(
        app=settings.app,
        ttl_ms=dedup.ttl_ms,
        tls=TlsFiles(dedup.ca_file, dedup.certificate_file, dedup.key_file, password),
        answer_timeout_s=dedup.timeout_ms / 1000,
        current=None if dedup.redis_url is None else dedup.redis_url.get_secret_value,
        **told,
    )
    if timeout_s is not None:
        options = options._replace(connect_timeout_s=timeout_s, answer_timeout_s=timeout_s)
    return kind_of(dedup.claims_url).open(dedup.claims_url, options)
