"""Composition root: settings to adapters, core and engine. The only place that knows both sides.

The order of ``serve`` is the order in which a start can fail, cheapest first.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from hapax import __version__
from hapax.core.errors import ExitCode, PreflightError, StopError
from hapax.engines.membership import Opening
from hapax.engines.overlapping_calls import load_calls
from hapax.engines.preflight import check
from hapax.engines.spark.session import require_pyspark
from hapax.kafka.admin.topics import GroupMembers
from hapax.kafka.connection import unanswered
from hapax.kafka.native import record_path
from hapax.kafka.produce.target import shown_id
from hapax.kafka.properties import library_version
from hapax.kafka.read.group_start import start_remarks
from hapax.settings.secrets import Strike, secrets_around, secrets_of
from hapax.telemetry.events import Events
from hapax.telemetry.health import Health
from hapax.telemetry.http.server import TelemetryServer
from hapax.telemetry.http.status import Status
from hapax.telemetry.logs import Troubles, capture_library_logs, configure_logs, who
from hapax.telemetry.metrics import Metrics
from hapax.wiring import builders as parts

if TYPE_CHECKING:
    from hapax.kafka.produce.producer import Report
    from hapax.settings import Settings
    from hapax.wiring.builders import Shared

LIVENESS_MARGIN_S = 5.0
"""Longer than the watchdog's deadline: it ends the process first, and says why."""


def serve(settings: Settings) -> ExitCode:
    """Run the service until it is asked to stop; return the exit code for the supervisor."""
    troubles = Troubles()
    strike = Strike({*secrets_of(settings), *secrets_around(os.environ)})
    logger = configure_logs(
        settings.telemetry.log_level,
        settings.telemetry.log_format,
        troubles=troubles,
        strike=strike,
        version=__version__,
        **who(settings),
    )
    metrics = Metrics(settings.app)
    health = Health(settings.watchdog.timeout_ms / 1000 + LIVENESS_MARGIN_S)
    events = Events(metrics, health, logger)
    capture_library_logs(events)
    try:
        shared = parts.share(settings, events)
        health.waiting = shared.watchdog.waiting
        with ExitStack() as stack:
            status = _status(settings, health, metrics, troubles)
            server = TelemetryServer(
                settings.telemetry.address,
                settings.telemetry.port,
                registry=metrics.registry,
                health=health,
                status=status,
                sample=status.sample,
                intake=shared.lifecycle,
            )
            stack.callback(server.close)
            server.start()
            events.service_started(
                settings.changed(),
                version=__version__,
                engine=settings.engine,
                librdkafka=library_version(),
                record_path=str(record_path(settings)),
            )
            parts.start_file_watch(shared, stack, strike)
            _run(shared, stack)
    except StopError as error:
        if isinstance(error, PreflightError):
            events.preflight_refused(error.problems)
        events.service_stopped(int(error.exit_code), str(error))
        return error.exit_code
    except BaseException as error:
        events.service_crashed(error)
        if isinstance(error, Exception):
            raise
        return ExitCode.UNEXPECTED  # an exit with 0 from elsewhere would say that all is done
    events.service_stopped(0, shared.lifecycle.end(bounded=settings.bounded))
    return ExitCode.DRAINED


def _status(settings: Settings, health: Health, metrics: Metrics, troubles: Troubles) -> Status:
    return Status(
        settings,
        health,
        metrics=metrics,
        troubles=troubles,
        members=GroupMembers(settings),
        transactional_id=shown_id(settings),
        record_path=record_path(settings).name,
        build={"version": __version__, "librdkafka": library_version()},
    )


def _run(shared: Shared, stack: ExitStack) -> None:
    parts.start_tracing(shared.settings, stack)
    shared.lifecycle.listen()
    shared.watchdog.start()
    stack.callback(shared.watchdog.stop)
    if shared.settings.engine == "worker":
        _run_worker(shared, stack)
        return
    # Imported only where it is used: half a second that a restarted worker need not wait for.
    require_pyspark()
    if shared.settings.spark.dataframe is not None:
        from hapax.wiring.spark import run_pipeline as run
    else:
        from hapax.wiring.spark import run_records as run
    run(shared, stack)


def _run_worker(shared: Shared, stack: ExitStack) -> None:
    form = load_calls(shared.settings) if len(shared.settings.input.topics) > 1 else None
    source = parts.worker_source(shared, together=form is not None and form.stateful)
    placed: dict[int, Report] = {}
    transaction = parts.transaction(shared, source, placed)
    opening = Opening(transaction, shared)
    opening.start()
    stack.callback(opening.abandon)
    form = form or load_calls(shared.settings)
    claims = parts.claims(shared, stack)
    remarks = check(parts.brokers(shared, source.list_topics), source, claims)
    more = None if remarks is None else parts.target_remarks(shared, source)
    if remarks is None or more is None:
        return
    with_state = None
    if form.stateful:
        from hapax.kafka.read.changelog import Changelog
        from hapax.wiring.state import keyed_state

        with_state = partial(keyed_state, shared, Changelog(shared.settings).required())
    shared.events.preflight_passed(remarks + more + start_remarks(shared.settings, source.told))
    stack.callback(source.close)
    source.subscribe()
    opening.attend(source, partial(unanswered, shared.settings.kafka.bootstrap_servers))
    stack.callback(transaction.close)
    if shared.lifecycle.stopping:
        return
    keyed = None if with_state is None else with_state(source, transaction, placed, stack)
    transformer = parts.transformer(shared, form, stack, keyed and keyed.state)
    state = keyed and keyed.state
    isolation = parts.isolation(shared.settings, transformer, shared.events, state)
    stack.callback(isolation.close)
    worker = parts.worker(
        shared, stack, source, transaction, claims, (isolation, transformer), keyed
    )
    # What the start left is permanent: the first full collection took 20 to 60 ms out of a batch.
    gc.freeze()
    # A batch keeps its objects until the commit: collections after each 700 took 0.65 of 5.2 s.
    gc.set_threshold(50_000)
    keep_freed_memory()
    parts.start_lag_monitor(shared, stack, partial(parts.group_progress, shared, source))
    shared.lifecycle.listen()  # again: business code or its libraries may have set handlers
    shared.events.service_ready()
    worker.run()
    parts.tell_waiting(shared, source)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BYTES = 32 << 20
"""The most that glibc would come to by itself for the second."""


def keep_freed_memory() -> bool:
    """Let the heap keep what a batch frees; return whether the C library accepts that.

    The messages of a batch are freed together. glibc gave them back to the system, and the next
    batch took the same pages again, one page fault each: a tenth of a record's CPU.
    """
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Either of them ends that glibc adjusts both, so both are set.
    return mallopt is not None and all(
        mallopt(which, KEPT_BYTES) == 1 for which in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)
    )
