"""Answers of the admin client as facts."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException

from hapax.core.cluster_state import Address, ConsumerGroup, GroupMember, Partition, Topic
from hapax.kafka.errors import describe
from hapax.kafka.tcp_probe import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

ANSWER_TIMEOUT_S = 3.0


def waited(answer: Future[Any], until_s: float) -> tuple[Any, str | None]:
    """Wait for an answer; return it, or None and why there is none."""
    try:
        return answer.result(max(0.0, until_s - time.monotonic())), None
    except KafkaException as error:
        return None, describe(error.args[0])
    except (TimeoutError, FutureTimeoutError):
        return None, f"no answer within {ANSWER_TIMEOUT_S:.0f} s"


def listeners_of(metadata: Any) -> dict[int, Address]:
    """Return where each broker says it is, and whether it can be reached there."""
    places = {number: f"{each.host}:{each.port}" for number, each in metadata.brokers.items()}
    reached = probe(places.values())
    return {number: reached[place] for number, place in sorted(places.items())}


def topic_of(answer: Future[Any], settings: dict[str, str], until_s: float) -> Topic:
    """Return a topic from the answer to DescribeTopics."""
    found, why = waited(answer, until_s)
    if found is None:
        return Topic(problem=why, settings=settings)
    partitions = {
        each.id: Partition(
            leader=-1 if each.leader is None else each.leader.id,
            replicas=tuple(node.id for node in each.replicas),
            in_sync=tuple(node.id for node in each.isr),
        )
        for each in found.partitions
    }
    return Topic(
        partitions=partitions, settings=settings, operations=names_of(found.authorized_operations)
    )


def group_of(found: Any) -> ConsumerGroup:
    """Return the group from the answer to DescribeConsumerGroups."""
    members = [
        GroupMember(
            client_id=each.client_id,
            host=each.host,
            static_name=each.group_instance_id,
            topics=tuple(sorted({one.topic for one in each.assignment.topic_partitions})),
            partitions=len(each.assignment.topic_partitions),
        )
        for each in found.members
    ]
    consumer = found.type == ConsumerGroupType.CONSUMER
    return ConsumerGroup(
        state=ConsumerGroupState(found.state).name,
        protocol="consumer" if consumer else "classic",
        assignor=found.partition_assignor or "",
        members=tuple(members),
        operations=names_of(found.authorized_operations),
    )


def names_of(operations: Iterable[Any] | None) -> tuple[str, ...] | None:
    """Return the names of operations; None where they were not told."""
    return None if operations is None else tuple(sorted(each.name for each in operations))


def values_of(entries: Mapping[str, Any] | None) -> dict[str, str]:
    """Return settings by name, without those that are secret."""
    return {
        name: entry.value
        for name, entry in (entries or {}).items()
        if entry.value is not None and not entry.is_sensitive
    }
