"""Whether positions belong to the cluster and topics that records come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.cluster.group_start import of_another_client
from hapax.core.errors import PositionLostError
from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.consume.client import PENDING_TIMEOUT_S, GroupConsumer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.partition_state import PartitionStates
    from hapax.kafka.consume.positions import Positions

WAYS_OUT = (
    "Give the pipeline a new HAPAX_APP; or, when this cluster continues where the other one "
    "stopped, stop all its processes and run `hapax claims adopt`. docs/other-cluster.md helps "
    "to choose and describes what happens to records in flight"
)


class TopicIdentity:
    """Compares ids of cluster and topics with those of the group's offsets. One thread only.

    elsewhere  whether progress is on another cluster: then the group's own offsets only inform
    """

    elsewhere = False

    def __init__(
        self, consumer: GroupConsumer, states: PartitionStates, positions: Positions
    ) -> None:
        self._consumer = consumer
        self._states = states
        self._positions = positions
        self._ids = consumer.log.topics

    def check(self, partitions: Iterable[Where]) -> None:
        """Make sure that positions belong to the topics that their records come from."""
        known = [where for where in partitions if self._ids.cluster or self._ids.knows(where[0])]
        if any(self._states[where].beside is None for where in known):
            self._look_up(known)
        self.compare(known)

    def place(self) -> None:
        """Find where partitions continue that the client could not read on in."""
        unplaced = list(self._states.unplaced)
        try:
            self._positions.find(unplaced)
        except PositionLostError:
            self.compare(unplaced)  # another cluster or topic explains it better
            raise

    def compare(self, partitions: Iterable[Where]) -> None:
        """Raise PositionLostError where an offset that is known has another id in its metadata."""
        for where in partitions:
            beside = self._states[where].committed
            self._require_here(where, beside)
            foreign = self._ids.foreign_cluster(beside)
            if foreign is not None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset of group {self._consumer.group} belongs to"
                    f" cluster {foreign}, and the brokers are those of {self._ids.cluster}."
                    f" {WAYS_OUT}"
                )
            other = self._ids.other(where[0], beside)
            if other is not None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset of group {self._consumer.group} belongs to"
                    f" a topic that was deleted (id {other}); the topic with this name now is a "
                    "different one. Set the group's offset, then start again"
                )

    def _require_here(self, where: Where, beside: CommittedMetadata) -> None:
        """Raise where the offset only informs: begun there, the last second would be doubled."""
        if beside.elsewhere is not None:
            raise PositionLostError(
                f"{where[0]}/{where[1]}: the progress of group {self._consumer.group} is on cluster"
                f" {beside.elsewhere}, in the transactions of its outputs, and its offset here may"
                " be a second late: records would be doubled. Set"
                " HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS again, or give the pipeline a new"
                " HAPAX_APP; docs/other-cluster.md says how to come back with this one"
            )

    def _look_up(self, known: list[Where]) -> None:
        """Read the metadata of offsets that the client began at; it looked them up alone."""
        wanted = self._consumer.assignment().union(known)
        began = self._positions.committed([at for at in wanted if self._states[at].beside is None])
        self._take_over(where for where, offset in began.items() if offset is not None)
        for where in known:
            if began.get(where, 0) is None and self._states[where].settled is None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the committed offset at which reading began no "
                    "longer exists: its topic was deleted, or an operator deleted the offset. "
                    "Start again, and HAPAX_INPUT__START decides where; or set the group's offset, "
                    "once hapax transactions list and hapax audit show up to where records have "
                    "their outputs"
                )

    def _take_over(self, partitions: Iterable[Where]) -> None:
        """Note how many partitions a topic has, where another client has read it before Hapax.

        Before the first progress here: from then on, the group looks as if Hapax had begun it.
        """
        known: dict[str, list[CommittedMetadata]] = {}
        for where in partitions:
            known.setdefault(where[0], []).append(self._states[where].committed)
        for topic, beside in known.items():
            if topic in self._ids.began or not of_another_client(beside):
                continue
            every = [(topic, number) for number in self._consumer.numbers(topic)]
            answers = [one for one in self._consumer.committed(every).values() if one.offset >= 0]
            others = of_another_client(CommittedMetadata.of(one) for one in answers)
            self._ids.began[topic] = len(every) if others else None

    def strangers(self, partitions: Iterable[Where]) -> list[str]:
        """Return a sentence when the group's offsets were committed on another cluster.

        For the start: nothing is joined, and an offset that hangs in a transaction is not waited
        for (BatchAbortedError). Raises PositionLostError where they only inform, of progress on
        the cluster of the outputs.
        """
        found: dict[str, list[Where]] = {}
        for where, answer in self._consumer.committed(partitions, PENDING_TIMEOUT_S).items():
            beside = CommittedMetadata.of(answer)
            if answer.offset >= 0 and not self.elsewhere:
                self._require_here(where, beside)
            foreign = self._ids.foreign_cluster(beside) if answer.offset >= 0 else None
            if foreign is not None:
                found.setdefault(foreign, []).append(where)
        return [
            f"the brokers are those of cluster {self._ids.cluster}, but group"
            f" {self._consumer.group} committed its offsets in {len(places)} partitions"
            f" ({places[0][0]}/{places[0][1]}{' and others' if len(places) > 1 else ''}) on cluster"
            f" {foreign}. {WAYS_OUT}"
            for foreign, places in found.items()
        ]

    def follow(self) -> None:
        """Look whether another cluster answers, or a topic was recreated while it was read."""
        if self._ids.other_cluster is not None:
            raise PositionLostError(
                f"the brokers are now those of cluster {self._ids.other_cluster}, while group"
                f" {self._consumer.group} reads cluster {self._ids.cluster}. {WAYS_OUT}"
            )
        for topic, before, now in self._ids.remade():
            # Of a driver of tasks only what is settled is known: it reads nothing itself.
            nexts = self._states.settled_offsets() | self._states.next_offsets()
            stand = {where: next_ for where, next_ in nexts.items() if where[0] == topic}
            if stand:
                (_topic, partition), next_offset = min(stand.items())
                raise PositionLostError(
                    f"{topic}/{partition}: the next record is {next_offset} of a topic that was "
                    f"deleted and recreated while it was read (id {before}, now {now}). Start"
                    " again: the brokers delete a group's offsets with the topic, so"
                    " HAPAX_INPUT__START decides where"
                )
            self._ids.accept(topic)
            self._states.stale.update(at for at in self._consumer.assignment() if at[0] == topic)
