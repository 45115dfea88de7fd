"""What looks at logs and certificates alongside the engine, put together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.engines.file_watch import FileWatch
from hapax.engines.lag_monitor import LagMonitor, ReaderLagMonitor
from hapax.kafka.client_files import file_digests, files_problem, kafka_files
from hapax.kafka.properties import consumer_properties
from hapax.kafka.read.lag_probe import KafkaLagProbe, reader_probes
from hapax.settings.secrets import secrets_of
from hapax.telemetry.logs import ClientLogger

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from hapax.core.lag import GroupProgress
    from hapax.settings.secrets import Strike
    from hapax.wiring.builders import Shared


def start_lag_monitor(
    shared: Shared, stack: ExitStack, progress: Callable[[], GroupProgress]
) -> None:
    """Look at the logs, and at what readers have left, until the stack unwinds."""
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
