"""The lookout, put together: which logs are surveyed, and where we stand in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.lag import Standpoint
from hapax.engines.lag_monitor import Lookout
from hapax.kafka.properties import consumer_properties
from hapax.kafka.read.lag_probe import KafkaSurveyor
from hapax.telemetry.logs import ClientLogger

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from hapax.wiring.builders import Shared


def start_lookout(
    shared: Shared, stack: ExitStack, standpoint: Callable[[], Standpoint] = Standpoint
) -> None:
    """Survey until the stack unwinds. Without a standpoint: only what is written to."""
    settings = shared.settings
    outputs = [settings.output.topic]
    if settings.dead_letter.topic is not None:
        outputs.append(settings.dead_letter.topic)
    surveyor = KafkaSurveyor(
        consumer_properties(settings), outputs, logger=ClientLogger(shared.events, "survey")
    )
    lookout = Lookout(
        surveyor,
        standpoint,
        shared.events,
        interval_s=settings.telemetry.lag_interval_ms / 1000,
    )
    lookout.start()
    stack.callback(lookout.stop)
