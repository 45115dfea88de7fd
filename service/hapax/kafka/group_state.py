"""Partitions that belong to nobody although the group is at rest.

A static member that comes back within its session timeout gets its old assignment without a
rebalance (KIP-345). When partitions were added meanwhile, its fresh client sees no *change* of
metadata either, and nobody reads them until the next real rebalance (measured: never within 45 s).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import TopicPartition

ANSWER_TIMEOUT_S = 5.0
_ADMIN = (
    "bootstrap.servers",
    "client.id",
    "security.",
    "sasl.",
    "ssl.",
    "https.",
    "socket.",
    "reconnect.",
)


def admin_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a client's properties that any client takes: where the brokers are."""
    return {name: value for name, value in properties.items() if name.startswith(_ADMIN)}


def orphans(
    consumer_properties: Mapping[str, Any],
    partitions: Iterable[TopicPartition],
    logger: object,
) -> list[TopicPartition] | None:
    """Return those of ``partitions`` that no member of the group owns.

    None while the group is changing, and when the brokers do not tell: then nothing is known.
    """
    group = consumer_properties["group.id"]
    admin = AdminClient(admin_properties(consumer_properties), logger=logger)
    try:
        answer = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)[group]
        described = answer.result(ANSWER_TIMEOUT_S)
    except (KafkaException, TimeoutError):
        return None
    if described.state != ConsumerGroupState.STABLE:
        return None
    owned = {
        (one.topic, one.partition)
        for member in described.members
        for one in member.assignment.topic_partitions
    }
    return sorted(set(partitions) - owned)
