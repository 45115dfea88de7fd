"""Composition root: settings to adapters, core and engine. The only file that knows both sides.

The order of ``serve`` is the order in which a start can fail, cheapest first; the producer's
registration and the group's join, which take longest, run beside the rest.
"""

from __future__ import annotations

import gc
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from service import __version__
from service.adapters.kafka_clients import (
    consumer_properties,
    library_version,
    producer_properties,
)
from service.adapters.kafka_plain import KafkaAtLeastOnce, KafkaAtMostOnce
from service.adapters.kafka_preflight import kafka_problems
from service.adapters.kafka_source import KafkaSource
from service.adapters.kafka_transaction import KafkaTransaction
from service.core.errors import (
    ClaimsUnavailableError,
    ConfigurationError,
    ExitCode,
    PreflightError,
    ProducerDeadError,
    StopError,
)
from service.core.exactly_once import ExactlyOnce, Interrupt
from service.core.identity import Identity
from service.core.limits import DeadLetterRate, FenceBudget, Pace, Patience
from service.core.plan import Destinations, Planner
from service.core.transform import Transformer, load_transform
from service.engines.assignment import Bounds, Ends
from service.engines.lifecycle import Lifecycle
from service.engines.recovery import Recovery
from service.engines.watchdog import Watchdog
from service.engines.worker import Sizing, Worker
from service.telemetry.events import Events
from service.telemetry.health import Health
from service.telemetry.http import TelemetryServer
from service.telemetry.logs import ClientLogger, capture_library_logs, configure_logs
from service.telemetry.metrics import Metrics
from service.telemetry.status import status_of

if TYPE_CHECKING:
    from service.adapters.redis_claims import RedisClaims
    from service.settings import Settings

CUT_AFTER_S = 1.0
"""Longest that business code holds one batch: revokes, probes and SIGTERM wait for it."""
ENDS_IDLE_S, ENDS_INTERVAL_S = 0.3, 1.0
CLAIMS_REST_S = 0.2
START_TIMEOUT_S = 120.0

TRANSACTIONS: dict[str, type[KafkaTransaction] | type[KafkaAtLeastOnce]] = {
    "exactly_once": KafkaTransaction,
    "at_least_once": KafkaAtLeastOnce,
    "at_most_once": KafkaAtMostOnce,
}


class SystemClock:
    """The machine's monotonic time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


def serve(settings: Settings) -> ExitCode:
    """Run the service until it is asked to stop; return what to tell the supervisor."""
    if settings.engine != "worker":
        raise ConfigurationError(
            [f"HAPAX_ENGINE={settings.engine}: this version has the engine worker only"]
        )
    logger = configure_logs(
        settings.telemetry.log_level,
        settings.telemetry.log_format,
        app=settings.app,
        instance=settings.instance,
        engine=settings.engine,
    )
    metrics, health = Metrics(), Health(settings.watchdog.timeout_ms / 1000 + 5)
    events = Events(metrics, health, logger)
    capture_library_logs(events)
    try:
        with ExitStack() as stack:
            server = TelemetryServer(
                settings.telemetry.address,
                settings.telemetry.port,
                registry=metrics.registry,
                health=health,
                status=status_of(
                    {
                        "app": settings.app,
                        "instance": settings.instance,
                        "engine": settings.engine,
                        "guarantee": settings.guarantee,
                        "version": __version__,
                    },
                    health,
                ),
            )
            stack.callback(server.close)
            server.start()
            events.service_started(
                settings.effective(),
                version=__version__,
                engine=settings.engine,
                librdkafka=library_version(),
            )
            Service(settings, events, stack).run()
    except StopError as error:
        if isinstance(error, PreflightError):
            events.preflight_refused(error.problems)
        events.service_stopped(int(error.exit_code), str(error))
        return error.exit_code
    except Exception as error:
        events.service_crashed(error)
        raise
    events.service_stopped(0, "drained")
    return ExitCode.DRAINED


class Service:
    """One worker and all that belongs to it."""

    def __init__(self, settings: Settings, events: Events, stack: ExitStack) -> None:
        self._settings = settings
        self._events = events
        self._stack = stack
        self._clock = SystemClock()
        self._interrupt = Interrupt()
        self._lifecycle = Lifecycle(
            self._clock, self._interrupt, timeout_s=settings.shutdown.timeout_ms / 1000
        )
        self._watchdog = Watchdog(
            settings.watchdog.timeout_ms / 1000, on_overrun=events.watchdog_fired
        )

    def run(self) -> None:
        """Start, work, drain."""
        self._lifecycle.listen()
        self._watchdog.start()
        self._stack.callback(self._watchdog.stop)
        source = self._source()
        transaction = self._transaction(source)
        opening = Opening(transaction, self._lifecycle)
        opening.start()
        function = load_transform(self._settings.transform)
        problems = kafka_problems(self._settings, source.list_topics)
        claims = self._claims()
        remarks: list[str] = []
        problems += self._claims_problems(claims, remarks)
        if problems:
            opening.abandon()
            raise PreflightError(problems)
        self._events.preflight_passed(remarks)
        self._stack.callback(source.close)
        source.subscribe()
        while opening.is_alive():
            source.attend(0.02)
        opening.finish()
        self._stack.callback(transaction.close)
        if self._lifecycle.stopping:
            return
        worker = self._worker(
            source, transaction, claims, Transformer(function, self._settings.retry.attempts)
        )
        # What the start left lives for ever: keep it out of every later garbage collection (the
        # first full one took 20 to 60 ms out of a batch).
        gc.freeze()
        self._events.service_ready()
        worker.run()
        self._events.service_draining(self._lifecycle.reason)

    def _source(self) -> KafkaSource:
        settings = self._settings
        return KafkaSource(
            consumer_properties(settings),
            settings.input.topics,
            start=settings.input.start,
            logger=ClientLogger(self._events, "consumer"),
            clock=self._clock,
            watch=self._watchdog.watch,
        )

    def _transaction(self, source: KafkaSource) -> KafkaTransaction | KafkaAtLeastOnce:
        settings = self._settings
        topics = {settings.output.topic, settings.dead_letter.topic or settings.output.topic}
        return TRANSACTIONS[settings.guarantee](
            producer_properties(settings),
            source,
            required_topics=frozenset(topics),
            round_robin=settings.output.partitioner == "round_robin",
            deadline_s=settings.transaction.timeout_ms / 1000,
            clock=self._clock,
            forward=self._events.client_logged,
            watch=self._watchdog.watch,
        )

    def _claims(self) -> RedisClaims | None:
        dedup = self._settings.dedup
        if dedup.redis_url is None:
            return None
        # Imported only where it is used: 140 ms that a restart without claims need not wait for.
        from service.adapters.redis_claims import RedisClaims  # noqa: PLC0415

        claims = RedisClaims(
            dedup.redis_url.get_secret_value(),
            app=self._settings.app,
            ttl_ms=dedup.ttl_ms,
            on_emptied=self._events.claims_emptied,
            answer_timeout_s=dedup.timeout_ms / 1000,
        )
        self._stack.callback(claims.close)
        return claims

    def _claims_problems(self, claims: RedisClaims | None, remarks: list[str]) -> list[str]:
        if claims is None:
            return []
        problems, warnings = self._checked(claims)
        remarks += warnings
        return [f"HAPAX_DEDUP__REDIS_URL: {problem}" for problem in problems]

    def _checked(self, claims: RedisClaims) -> tuple[list[str], list[str]]:
        """Return the store's problems and warnings.

        Being away is what the outage policy is for, at the start as well; under ``pause`` the
        server that comes back is checked before the first record.
        """
        began_s, policy = self._clock.monotonic(), self._settings.dedup.on_outage
        away = False
        while True:
            try:
                found = claims.check()
            except ClaimsUnavailableError as error:
                away = True
                self._events.claims_unavailable(str(error), policy)
                if policy == "pass" or self._lifecycle.stopping:
                    return [], []
                self._lifecycle.rest(CLAIMS_REST_S)
            else:
                if away:
                    self._events.claims_recovered(self._clock.monotonic() - began_s)
                return found.problems, found.warnings

    def _worker(
        self,
        source: KafkaSource,
        transaction: KafkaTransaction | KafkaAtLeastOnce,
        claims: RedisClaims | None,
        transformer: Transformer,
    ) -> Worker:
        settings = self._settings
        patience = Patience(settings.retry.attempts)
        ends = Ends(idle_s=ENDS_IDLE_S, interval_s=ENDS_INTERVAL_S)
        core = ExactlyOnce(
            identity=Identity(settings.dedup.id),
            claims=claims,
            transformer=transformer,
            planner=Planner(
                Destinations(settings.app, settings.output.topic, settings.dead_letter.topic)
            ),
            transaction=transaction,
            dead_letter_rate=DeadLetterRate(
                topic=settings.dead_letter.topic,
                rate_max=settings.dead_letter.rate_max,
                records_min=settings.dead_letter.records_min,
            ),
            clock=self._clock,
            pass_on_outage=settings.dedup.on_outage == "pass",
            interrupt=self._interrupt,
        )
        recovery = Recovery(
            source=source,
            transaction=transaction,
            claims=claims,
            events=self._events,
            clock=self._clock,
            lifecycle=self._lifecycle,
            patience=patience,
            fences=FenceBudget(settings.instance, fences_max=5),
            member_fences=FenceBudget(settings.instance, fences_max=2),
            ends=ends,
            transaction_timeout_s=settings.transaction.timeout_ms / 1000,
        )
        sizing = Sizing(
            pace=Pace(
                interval_s=settings.transaction.interval_ms / 1000,
                records_max=settings.transaction.records_max,
                bytes_max=settings.transaction.bytes_max,
            ),
            patience=patience,
            bounds=Bounds(
                records_max=settings.stop_after.records, at_end=settings.stop_after.at_end
            ),
            cut_after_s=CUT_AFTER_S,
        )
        return Worker(
            core=core,
            source=source,
            recovery=recovery,
            events=self._events,
            clock=self._clock,
            lifecycle=self._lifecycle,
            interrupt=self._interrupt,
            watchdog=self._watchdog,
            sizing=sizing,
            ends=ends,
        )


class Opening(threading.Thread):
    """Registers the producer while the consumer joins: both wait mostly for brokers."""

    def __init__(
        self, transaction: KafkaTransaction | KafkaAtLeastOnce, lifecycle: Lifecycle
    ) -> None:
        super().__init__(name="opening", daemon=True)
        self._transaction = transaction
        self._lifecycle = lifecycle
        self._failure: BaseException | None = None
        self._abandoned = False

    def run(self) -> None:
        """Try until it works, it cannot work, or nobody waits any more."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (self._abandoned or self._lifecycle.stopping):
            try:
                self._transaction.open()
            except ProducerDeadError as error:
                self._failure = PreflightError([f"the producer cannot start: {error}"])
                if time.monotonic() < deadline_s:
                    continue
            except BaseException as error:  # noqa: BLE001 - told to the thread that waits
                self._failure = error
            else:
                self._failure = None
            return

    def abandon(self) -> None:
        """Stop trying; the process is about to leave."""
        self._abandoned = True

    def finish(self) -> None:
        """Raise what went wrong."""
        self.join()
        if self._failure is not None and not self._lifecycle.stopping:
            raise self._failure
