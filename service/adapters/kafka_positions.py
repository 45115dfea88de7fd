"""Where to read on: at the group's offsets, at the first of a new partition, behind a rewind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.core.errors import PositionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from service.adapters.kafka_consumer import GroupConsumer
    from service.adapters.kafka_stands import Stands
    from service.core.ports import Clock
    from service.core.records import Progress
    from service.core.records import TopicPartition as Where

ELECTION_S = 10.0


class Positions:
    """Moves the stands of a consumer's partitions. One thread only.

    start         where a group without offsets begins: earliest, latest or refuse
    group_knows   whether the group has an offset in any partition of a topic
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        stands: Stands,
        clock: Clock,
        *,
        start: str,
        group_knows: Callable[[str], bool],
    ) -> None:
        self._consumer = consumer
        self._stands = stands
        self._clock = clock
        self._start = start
        self._group_knows = group_knows

    def committed(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        """Return the group's stable committed offsets; None where there is none."""
        answers = self._consumer.committed(partitions)
        for where, answer in answers.items():
            self._stands[where].beside = answer.metadata or ""
        return {
            where: answer.offset if answer.offset >= 0 else None
            for where, answer in answers.items()
        }

    def rewind(self, progress: Mapping[Where, int]) -> None:
        """Read again from these offsets; partitions that are no longer ours are ignored."""
        ours = self._consumer.assignment()
        with self._consumer.asking("seek"):
            for where, offset in progress.items():
                if where in ours:
                    self._move(where, offset)
                    self._stands[where].settled = offset

    def _move(self, where: Where, offset: int) -> None:
        self._stands.move(where, offset)
        self._consumer.seek(where, offset)

    def reread_stale(self) -> None:
        """Partitions that left or came back inside one call: what was fetched before is stale."""
        stale = frozenset(self._stands.stale)
        again = stale & self._consumer.assignment()
        self._stands.restart(stale)
        stable = self.committed(again)
        self.rewind({where: offset for where, offset in stable.items() if offset is not None})
        for where in again:
            if stable[where] is None:
                self._begin(where)
        self._stands.stale -= stale  # only now: without an answer they stay stale

    def find(self, where: Where) -> None:
        """Tell a group without offsets from a position that fell off the log."""
        stand = self._stands[where]
        position = self.committed([where])[where] if stand.next is None else stand.next
        if position is None:
            self._begin(where)
            return
        low, high = self._consumer.watermarks(where)
        now_s = self._clock.monotonic()
        if stand.missing_since_s is None:
            stand.missing_since_s = now_s
        # Right after an election the end of the log may lag behind for a moment; its beginning
        # never comes back.
        late = now_s - stand.missing_since_s > ELECTION_S
        if position < low or (position > high and late):
            raise PositionLostError(
                f"{where[0]}/{where[1]}: the next record is {position}, but the log now holds"
                f" {low} to {high}: it was deleted by retention or the topic is another one."
                " Decide what to do with the gap, set the group's offset, then start again"
            )
        with self._consumer.asking("seek"):
            self._move(where, position)  # what is handed out and not settled yet stays so

    def _begin(self, where: Where) -> None:
        """Start a partition for which the group has no offset."""
        low, _high = self._consumer.watermarks(where)
        if self._start == "refuse":
            raise PositionLostError(
                f"{where[0]}/{where[1]}: group {self._consumer.group} has no committed offset and"
                " HAPAX_INPUT__START=refuse; set the group's offset, or choose earliest or latest"
            )
        if self._start == "latest" and not self._group_knows(where[0]):
            self._begin_at_ends(where)
        else:
            self.rewind({where: low})

    def _begin_at_ends(self, first: Where) -> None:
        """Start all our partitions of a topic at their ends, at one moment.

        The client tells of them one by one. Those that it tells of after the first was committed
        would be taken for new ones, and be read from their beginning.
        """
        ours = {where for where in self._consumer.assignment() if where[0] == first[0]} | {first}
        new = sorted(where for where in ours if self._stands[where].next is None)
        ends: Progress = {where: self._consumer.watermarks(where)[1] for where in new}
        self.rewind(ends)
        # Committed like an end: a group that forgets where it began jumps at its next start.
        self._stands.ends |= ends
