"""What must be there before the first record is read: brokers, topics, partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from service.adapters.kafka_access import refusal
from service.adapters.kafka_errors import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.settings import Settings

BROKERS_TIMEOUT_S = 10.0


def kafka_problems(settings: Settings, list_topics: Callable[[float], Any]) -> list[str]:
    """Return one sentence for each thing that is missing; nothing is created or consumed."""
    servers = settings.kafka.bootstrap_servers
    try:
        metadata = list_topics(BROKERS_TIMEOUT_S)
    except KafkaException as error:
        problem = (
            f"HAPAX_KAFKA__BOOTSTRAP_SERVERS={servers}: no broker answered within"
            f" {BROKERS_TIMEOUT_S:.0f} s ({refusal(settings) or describe(error.args[0])}); check"
            " address, port,"
            " protocol and credentials"
        )
        return [problem]
    wanted = dict.fromkeys(settings.input.topics, "HAPAX_INPUT__TOPICS")
    wanted[settings.output.topic] = "HAPAX_OUTPUT__TOPIC"
    if settings.dead_letter.topic:
        wanted[settings.dead_letter.topic] = "HAPAX_DEAD_LETTER__TOPIC"
    return [
        f"{setting}: topic {topic} does not exist or may not be read; create it or mend the name"
        for topic, setting in wanted.items()
        if topic not in metadata.topics or metadata.topics[topic].error is not None
    ]


def cluster_of(list_topics: Callable[[float], Any]) -> str | None:
    """Return Kafka's id of the cluster (KIP-78); None when no broker answers or it has none."""
    try:
        return list_topics(BROKERS_TIMEOUT_S).cluster_id or None
    except KafkaException:
        return None
