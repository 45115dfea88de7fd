"""The Source port on Spark: a member that reads nothing, and ranges without a member.

The driver is the member. It holds the partitions, answers rebalances and lends its group metadata
to the tasks, which read given partitions from given offsets and commit. Its own positions mean
nothing, so its partitions are paused from the start. The broker refuses what a task sends once the
partitions have moved (measured: classic groups refuse any older generation, KIP-848 groups an older
epoch for a partition that the member lost).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from hapax.core.errors import BatchAbortedError, PositionLostError, StopError
from hapax.kafka.consume.client import parse_metadata
from hapax.kafka.consume.positions import Beginning
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offsets_client import BackgroundEnds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress, TopicPartition as Where


class KafkaMember(KafkaSource):
    """Joins, holds and attends. One thread only."""

    ASSIGNS = True

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
        self._consumer.assign_held(consumer, partitions, "member")


class KafkaRange(KafkaSource):
    """Reads ``starts`` (partition → next offset, None: the group has none) without a member."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        starts: Mapping[Where, int | None],
        *,
        member: bytes,
        cluster_id: str | None = None,
        **parts: Any,
    ) -> None:
        """Connect, assign nothing yet. ``parts``: as those of KafkaSource.

        ``cluster_id``: of the cluster that the driver is a member in. Where the group begins is
        the driver's to say: a partition without an offset is read from its first record.
        """
        # Committed offsets are looked up under the group's name; it is not joined here.
        alone = {name: value for name, value in properties.items() if name != "group.instance.id"}
        topics = sorted({topic for topic, _partition in starts})
        super().__init__(alone, topics, **parts)
        if self._positions.beginning.commits:
            self._positions.beginning = Beginning(self._consumer, start="earliest")
        self._consumer.log.topics.meet_cluster(cluster_id)
        self._starts = dict(starts)
        self._member = member

    def place(self) -> None:
        for where, offset in self._starts.items():
            if offset is not None:
                state = self._states[where]
                state.next = state.settled = offset
        if self._consumer.intake is not None:
            self._consumer.intake.route(self._starts)
        with self._consumer.asking("assign"):
            self._consumer.client.incremental_assign(
                [
                    TopicPartition(*where, OFFSET_INVALID if offset is None else offset)
                    for where, offset in self._starts.items()
                ]
            )

    def confirm(self) -> Progress:
        """Return what the group has committed, once no earlier attempt can commit any more.

        An earlier attempt may have come further: continue after it. Raises PositionLostError when
        the group knows less than the driver did: to continue would double records.
        """
        stable = self.committed(self._starts)
        for where, known in self._starts.items():
            offset = stable[where]
            if offset == known:
                continue
            if offset is None or (known is not None and offset < known):
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: {known} was committed, but group"
                    f" {self._consumer.group} now has {offset}: its topic was deleted and"
                    " recreated, or its offsets were set back or deleted. Set the group's offset,"
                    " or start again: where it has none HAPAX_INPUT__START decides"
                )
            self.rewind({where: offset})
        return {where: offset for where, offset in stable.items() if offset is not None}

    def member(self) -> bytes:
        generation, member_id = parse_metadata(self._member)
        if generation < 0 or not member_id:
            raise BatchAbortedError("the driver was no live member of the group")
        return self._member

    def adopt_orphans(self) -> list[Where]:
        """Leave that to the driver."""
        return []

    def reopen(self) -> None:
        """Refuse: a task is no member."""
        raise StopError("a range has no member to replace")
