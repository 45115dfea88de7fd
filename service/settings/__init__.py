"""Environment to frozen groups.

model         the whole tree; its groups stand in pipeline (the way of a record) and kafka
forms, texts  how a value is written; units reads durations and sizes
kafka_properties  further client properties, and why some are refused
rules         what two settings must keep together
environment   finds the variables, validates, and tells every problem at once
names         variables that nothing reads
reference     the table for people
"""

from service.settings.environment import load_settings, load_with_origins
from service.settings.kafka import ConsumerGroup, Kafka, Security, Transaction
from service.settings.model import VARIABLES, Settings
from service.settings.pipeline import (
    DeadLetter,
    Dedup,
    Input,
    OutputTopic,
    Retry,
    Shutdown,
    StopAfter,
    Telemetry,
    Watchdog,
)

__all__ = [
    "VARIABLES",
    "ConsumerGroup",
    "DeadLetter",
    "Dedup",
    "Input",
    "Kafka",
    "OutputTopic",
    "Retry",
    "Security",
    "Settings",
    "Shutdown",
    "StopAfter",
    "Telemetry",
    "Transaction",
    "Watchdog",
    "load_settings",
    "load_with_origins",
]
