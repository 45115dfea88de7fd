"""Events: one method for each thing that happens, noun and past verb, as the log line is named.

Each method makes the log line and moves the metric from the same fact, so that the two can never
tell different stories. Engines call these; adapters and the core do not.
"""

from __future__ import annotations

from hapax.telemetry.client_events import ClientEvents
from hapax.telemetry.group_events import GroupEvents
from hapax.telemetry.lag_events import LagEvents
from hapax.telemetry.micro_batch_events import MicroBatchEvents
from hapax.telemetry.range_events import RangeEvents
from hapax.telemetry.service_events import ServiceEvents
from hapax.telemetry.transaction_events import TransactionEvents


class Events(
    ServiceEvents,
    GroupEvents,
    TransactionEvents,
    RangeEvents,
    MicroBatchEvents,
    LagEvents,
    ClientEvents,
):
    """Everything that can be told: ``Events(metrics, health, logger)``."""
