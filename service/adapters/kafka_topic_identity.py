"""Whether positions belong to the topics that the records come from (kafka_topics.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.core.errors import PositionLostError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.adapters.kafka_consumer import GroupConsumer
    from service.adapters.kafka_positions import Positions
    from service.adapters.kafka_stands import Stands
    from service.core.records import TopicPartition as Where


class TopicIdentity:
    """Compares the ids of topics with those beside the group's offsets. One thread only."""

    def __init__(self, consumer: GroupConsumer, stands: Stands, positions: Positions) -> None:
        self._consumer = consumer
        self._stands = stands
        self._positions = positions
        self._ids = consumer.log.topics

    def check(self, partitions: Iterable[Where]) -> None:
        """Make sure that positions belong to the topics that their records come from."""
        known = [where for where in partitions if self._ids.knows(where[0])]
        if any(self._stands[where].beside is None for where in known):
            self._look_up(known)
        for where in known:
            other = self._ids.other(where[0], self._stands[where].beside or "")
            if other is not None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset of group {self._consumer.group} belongs to"
                    f" a topic that was deleted (id {other}); the one that has its name now is"
                    " another. Set the group's offset, then start again"
                )

    def _look_up(self, known: list[Where]) -> None:
        """See what is beside the offsets that the client began at; it has looked them up alone."""
        wanted = self._consumer.assignment().union(known)
        began = self._positions.committed(
            [where for where in wanted if self._stands[where].beside is None]
        )
        for where in known:
            if began.get(where, 0) is None and self._stands[where].settled is None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset at which reading began is gone, with"
                    " its topic or by somebody's hand. Set the group's offset, or start again:"
                    " HAPAX_INPUT__START decides where"
                )

    def follow(self) -> None:
        """Look whether a topic was made again; raise when we stand somewhere in the old one."""
        for topic, before, now in self._ids.remade():
            nexts = self._stands.next_offsets().items()
            stand = {where: next_ for where, next_ in nexts if where[0] == topic}
            if stand:
                (_topic, partition), next_offset = min(stand.items())
                raise PositionLostError(
                    f"{topic}/{partition}: the next record is {next_offset} of a topic that was"
                    f" deleted and made again while it was read (id {before}, now {now}). Start"
                    " again: the brokers forget a group's offsets with the topic, so"
                    " HAPAX_INPUT__START decides where"
                )
            self._ids.accept(topic)
            self._stands.stale.update(
                where for where in self._consumer.assignment() if where[0] == topic
            )
