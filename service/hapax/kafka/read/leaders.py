"""Who leads which partition, so that a broker that is away hides its own partitions only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer

    from hapax.core.records import TopicPartition


class Leaders:
    """What one client was told; forget it together with the client."""

    def __init__(self, consumer: Consumer, timeout_s: float) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s
        self._known: dict[TopicPartition, int] = {}

    def groups(self, partitions: Iterable[TopicPartition]) -> list[list[TopicPartition]]:
        """Return the partitions by their leader. Raises KafkaException: no broker answers."""
        wanted = list(partitions)
        for topic in sorted({topic for topic, _ in set(wanted) - self._known.keys()}):
            self._look(topic)
        groups: dict[int, list[TopicPartition]] = {}
        for where in wanted:
            groups.setdefault(self._known.get(where, -1), []).append(where)
        return list(groups.values())

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Return the topic's partitions, in order. Raises KafkaException as above."""
        if not any(name == topic for name, _number in self._known):
            self._look(topic)
        return sorted(where for where in self._known if where[0] == topic)

    def forget(self) -> None:
        """Ask again: partitions may have been added."""
        self._known.clear()

    def _look(self, topic: str) -> None:
        metadata = self._consumer.list_topics(topic, timeout=self._timeout_s)
        for number, partition in metadata.topics[topic].partitions.items():
            self._known[(topic, number)] = partition.leader
