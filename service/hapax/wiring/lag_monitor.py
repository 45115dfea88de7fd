"""The lag monitor, put together: whose logs it watches, and how far the process is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.lag import GroupProgress
from hapax.engines.lag_monitor import LagMonitor
from hapax.kafka.properties import consumer_properties
from hapax.kafka.read.lag_probe import KafkaLagProbe
from hapax.telemetry.logs import ClientLogger

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from hapax.wiring.builders import Shared


def start_lag_monitor(
    shared: Shared, stack: ExitStack, progress: Callable[[], GroupProgress] = GroupProgress
) -> None:
    """OffsetSnapshot until the stack unwinds. Without a progress: only what is written to."""
    settings = shared.settings
    outputs = [settings.output.topic]
    if settings.dead_letter.topic is not None:
        outputs.append(settings.dead_letter.topic)
    probe = KafkaLagProbe(
        consumer_properties(settings), outputs, logger=ClientLogger(shared.events, "lag-monitor")
    )
    lag_monitor = LagMonitor(
        probe,
        progress,
        shared.events,
        interval_s=settings.telemetry.lag_interval_ms / 1000,
    )
    lag_monitor.start()
    stack.callback(lag_monitor.stop)
