"""Events: one method for each thing that happens, noun and past verb, as the log line is named.

Each method makes the log line and moves the metric from the same fact, so that the two always
agree. Engines call these; adapters and the core do not. docs/events.md says of each when it is
logged; what is said here is more than that.
"""

from __future__ import annotations

from hapax.telemetry.events.group import GroupEvents
from hapax.telemetry.events.service import ClientEvents, ServiceEvents
from hapax.telemetry.events.spark import SparkEvents
from hapax.telemetry.events.transaction import TransactionEvents


class Events(ServiceEvents, GroupEvents, TransactionEvents, SparkEvents, ClientEvents):
    """Everything that can be reported: ``Events(metrics, health, logger)``."""
