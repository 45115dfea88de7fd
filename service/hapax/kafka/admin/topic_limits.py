"""What a topic takes, asked before records are accepted for it."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.core.row_needs import TopicTakes, row_problems
from hapax.kafka.connection import no_broker
from hapax.kafka.properties import admin_properties, build, producer_properties
from hapax.kafka.read.offset_client import OffsetClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.row_needs import RowNeeds
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 5.0
SET_BYTES = 70
"""What a set of one message adds to it."""


def refused_rows(settings: Settings, needs: Mapping[str, RowNeeds]) -> list[str]:
    """Return what topics would refuse of rows. Raises PreflightError when no broker answers."""
    with closing(OffsetClient(settings)) as client:
        there = set(needs) - client.absent(needs)
        counts = Counter(topic for topic, _number in client.partitions(there))
        keyless = {topic for topic in there if needs[topic].keyless}
        compacted = client.compacted(keyless) if keyless else set()
    takes = {
        topic: TopicTakes(count, topic_limit(settings, topic).bytes_max, topic in compacted)
        for topic, count in counts.items()
    }
    return row_problems(needs, takes, SET_BYTES)


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
