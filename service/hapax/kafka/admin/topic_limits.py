"""What a topic takes, asked before records are accepted for it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.core.topic_rules import TopicRules, TopicTakes, row_problems
from hapax.kafka.admin.answers import values_of
from hapax.kafka.connection import no_broker
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC
from hapax.kafka.properties import admin_properties, build, producer_properties
from hapax.kafka.read.offsets_client import BlockingOffsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from hapax.core.topic_rules import RowNeeds
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 5.0
SET_BYTES = 70
"""What a set of one message adds to it."""
_REST_S = 0.1
_NO_TOPIC = UNKNOWN_TOPIC | {KafkaError.TOPIC_EXCEPTION}


def absent_topics(properties: Mapping[str, Any], names: Collection[str], wait_s: float) -> set[str]:
    """Return the names that no topic has, also after waiting so long for one; it creates none.

    One that may not be described is not among them. Raises KafkaException when no broker answers.
    """
    admin, asked = _admin(properties), TopicCollection(list(names))
    until_s = time.monotonic() + wait_s
    while True:
        answers = admin.describe_topics(asked, request_timeout=ANSWER_TIMEOUT_S)
        codes = {name: _code(answer) for name, answer in answers.items()}
        gone = {name for name, code in codes.items() if code in _NO_TOPIC}
        if not gone or time.monotonic() >= until_s:
            return gone
        time.sleep(_REST_S)


def _code(answer: Future[Any]) -> int:
    try:
        answer.result(ANSWER_TIMEOUT_S + _REST_S)
    except KafkaException as error:
        code: int = error.args[0].code()
        if code in _NO_TOPIC | FORBIDDEN:
            return code
        raise
    return KafkaError.NO_ERROR


def topic_settings(
    properties: Mapping[str, Any], topics: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the settings of topics; of one that may not be read, or without an answer, nothing."""
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found, admin = {}, _admin(properties)  # it is to live until the answers arrive
    answers = admin.describe_configs(asked, request_timeout=ANSWER_TIMEOUT_S)
    for resource, answer in answers.items():
        with suppress(KafkaException, TimeoutError):
            found[resource.name] = values_of(answer.result(ANSWER_TIMEOUT_S))
    return found


def _admin(properties: Mapping[str, Any]) -> AdminClient:
    return build(AdminClient, {**admin_properties(properties), "log_level": 0}, None)


def refused_rows(settings: Settings, needs: Mapping[str, RowNeeds]) -> list[str]:
    """Return what topics would refuse of rows. Raises PreflightError when no broker answers."""
    with closing(BlockingOffsets(settings)) as client:
        there = set(needs) - client.absent(needs)
        counts = Counter(topic for topic, _number in client.partitions(there))
    limits = {topic: topic_limit(settings, topic) for topic in counts}
    takes = {
        topic: TopicTakes(counts[topic], limit.bytes_max, limit.rules)
        for topic, limit in limits.items()
    }
    return row_problems(needs, takes, SET_BYTES, int(time.time() * 1000))


class TopicLimit(NamedTuple):
    """Whether the topic exists, its largest message (None: not known), and what it refuses."""

    there: bool
    bytes_max: int | None
    rules: TopicRules = TopicRules()


def topic_limit(settings: Settings, topic: str) -> TopicLimit:
    """Ask for the limits of a topic. Raises PreflightError when no broker answers.

    The size is not known where messages are compressed, and nothing where it may not be read.
    """
    properties = producer_properties(settings, transactional=False)
    try:
        # All topics: asking for one makes some brokers create it.
        found = _admin(properties).list_topics(timeout=ANSWER_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise no_broker(settings, error) from error
    if found is None or found.error is not None:
        return TopicLimit(there=False, bytes_max=None)
    told = topic_settings(properties, [topic]).get(topic, {})
    bytes_max = told.get("max.message.bytes")
    if properties.get("compression.type", properties.get("compression.codec", "none")) != "none":
        bytes_max = None
    return TopicLimit(
        there=True,
        bytes_max=None if bytes_max is None else int(bytes_max),
        rules=TopicRules.of(told),
    )
