"""What a topic takes, asked before records are accepted for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.kafka.connection import no_broker
from hapax.kafka.properties import admin_properties, build, producer_properties

if TYPE_CHECKING:
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 5.0
SET_BYTES = 70
"""What a set of one message adds to it."""


class TopicLimit(NamedTuple):
    """Whether the topic is there, and its largest message; None: not known."""

    there: bool
    bytes_max: int | None


def topic_limit(settings: Settings, topic: str) -> TopicLimit:
    """Ask for the limit of a topic. Raises PreflightError when no broker answers.

    The size is not known where messages are compressed, or where it may not be read.
    """
    properties = producer_properties(settings, transactional=False)
    admin = build(AdminClient, {**admin_properties(properties), "log_level": 0}, None)
    try:
        # All topics: asking for one makes some brokers create it.
        found = admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise no_broker(settings, error) from error
    if found is None or found.error is not None:
        return TopicLimit(there=False, bytes_max=None)
    if properties.get("compression.type", properties.get("compression.codec", "none")) != "none":
        return TopicLimit(there=True, bytes_max=None)
    return TopicLimit(there=True, bytes_max=_bytes_max(admin, topic))


def _bytes_max(admin: AdminClient, topic: str) -> int | None:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([asked], request_timeout=ANSWER_TIMEOUT_S).values()
    try:
        return int(answer.result(ANSWER_TIMEOUT_S)["max.message.bytes"].value)
    except (KafkaException, TimeoutError, KeyError):
        return None
