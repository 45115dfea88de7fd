"""What a broker answers about the nodes and topics of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin._metadata import ClusterMetadata

_TIMEOUT_S = 1.0


def admin(bootstrap_servers: str) -> AdminClient:
    """Return a client that keeps quiet: refused connections are normal while a broker starts."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",
        }
    )


def brokers(client: AdminClient) -> set[int]:
    """Return the ids of the brokers that the answer names; none where there is no answer."""
    answer = _ask(client)
    return set() if answer is None else set(answer.brokers)


def led_partitions(client: AdminClient, topic: str) -> int:
    """Return how many partitions of a topic have a leader, in the eyes of the one asked."""
    answer = _ask(client)
    if answer is None or topic not in answer.topics:
        return 0
    partitions = answer.topics[topic].partitions.values()
    return sum(partition.leader >= 0 and partition.error is None for partition in partitions)


def are_led(client: AdminClient, partitions: Mapping[str, int]) -> bool:
    """Return whether all partitions of topics have a leader, in the eyes of the one asked."""
    return all(led_partitions(client, name) == count for name, count in partitions.items())


def answer(client: AdminClient, partitions: Mapping[str, int]) -> bool:
    """Return whether the leaders of all partitions of topics answer."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {
        TopicPartition(name, number): latest
        for name, count in partitions.items()
        for number in range(count)
    }
    try:
        for one in client.list_offsets(places, request_timeout=_TIMEOUT_S).values():
            one.result()
    except KafkaException:
        return False
    return True


def _ask(client: AdminClient) -> ClusterMetadata | None:
    try:
        return client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException:
        return None
