"""A member of the group that reads nothing: the driver of a Spark application.

It holds the partitions, answers rebalances and lends its group metadata to the tasks, which read
and commit. Its own positions mean nothing, so its partitions are paused from the start.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offsets_client import BackgroundEnds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where


class KafkaMember(KafkaSource):
    """Joins, holds and attends. One thread only."""

    @cached_property
    def _stable_ends(self) -> BackgroundEnds:
        return BackgroundEnds(admin_properties(self._consumer.properties), self._consumer.log)

    def attend(self, wait_s: float = 0.0) -> None:
        super().attend(wait_s)
        self._states.drop_pending()
        self._waiting_bytes = 0

    def stable_ends(self, partitions: Iterable[Where]) -> Progress:
        """Leave out partitions without an answer yet, or return the end known before."""
        ends = self._stable_ends.of(partitions)
        self._changes.errors += self._stable_ends.errors
        self._stable_ends.errors.clear()
        return self._stops.limit(ends)

    def committed(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        """Return stable offsets. From then on they show whether a topic was recreated."""
        stable = super().committed(partitions)
        self.mark_processed({where: at for where, at in stable.items() if at is not None})
        return stable

    def begin(self, partitions: Iterable[Where]) -> Progress | None:
        """Return what was committed as the beginning of partitions without an offset.

        None: another member is about to; ask again soon. Only ``latest`` and spans commit:
        elsewhere a partition without an offset is read from its first record by any member.
        """
        if not self._positions.beginning.commits:
            return {}
        wanted = list(partitions)
        begun = self._positions.beginning.places(wanted)
        return {w: begun[w] for w in wanted} if begun.keys() >= set(wanted) else None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_assign(consumer, partitions)
        for one in assign_unplaced(consumer, partitions, self._consumer.properties):
            self._consumer.hold((one.topic, one.partition), "member", held=True)


def assign_unplaced(
    consumer: Consumer,
    partitions: Iterable[TopicPartition],
    properties: Mapping[str, Any],
    at: int = OFFSET_END,
) -> list[TopicPartition]:
    """Assign here: the client would look up and fetch what is not taken. Return as assigned."""
    held = [TopicPartition(one.topic, one.partition, at) for one in partitions]
    if (
        properties.get("group.protocol") == "consumer"
        or properties.get("partition.assignment.strategy") == "cooperative-sticky"
    ):
        consumer.incremental_assign(held)
    else:
        consumer.assign(held)
    return held
