"""Events: one method for each thing that happens, noun and past verb, as the log line is named.

Each method makes the log line and moves the metric from the same fact, so that the two can never
tell different stories. Engines call these; adapters and the core do not.
"""

from __future__ import annotations

from service.telemetry.client_events import ClientEvents
from service.telemetry.group_events import GroupEvents
from service.telemetry.micro_batch_events import MicroBatchEvents
from service.telemetry.range_events import RangeEvents
from service.telemetry.service_events import ServiceEvents
from service.telemetry.survey_events import SurveyEvents
from service.telemetry.transaction_events import TransactionEvents


class Events(
    ServiceEvents,
    GroupEvents,
    TransactionEvents,
    RangeEvents,
    MicroBatchEvents,
    SurveyEvents,
    ClientEvents,
):
    """Everything that can be told: ``Events(metrics, health, logger)``."""
