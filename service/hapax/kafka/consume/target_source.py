"""The source of a pipeline whose outputs go to another cluster: its progress counts there.

The group shares the partitions out, and nothing else of it counts: a partition that comes is read
from what the cluster of the outputs has committed for it, once its lane there is open
(produce/target.py). What the group has committed here follows for tools that show lag, and shows
one thing: that the partition had progress once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, PositionLostError
from hapax.core.offset_commit import informative
from hapax.kafka.consume.client import places
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.read.offsets_client import client_offset, offset_or_none
from hapax.processing.plan import OtherCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.record_path import Batch
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.kafka.produce.target import TargetTransaction

NOWHERE = 0
"""Where a partition is assigned before it is placed. An end or a beginning would be looked up, and
the answer would move the partition after it was placed: librdkafka 2.16 does not compare it with
the seek that came in between, and all records up to the end were lost (the campaign, 1 of 32
strikes)."""
TOLD_INTERVAL_S = 1.0
"""How far the group's own offsets may lag."""


class KafkaTargetSource(KafkaSource):
    """Brings records of partitions whose progress is on another cluster. One thread only.

    lanes      where the progress is; to be set first
    elsewhere  what outputs carry, once ``meet_target`` has returned
    """

    lanes: TargetTransaction
    elsewhere: OtherCluster

    ASSIGNS = True

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        start: str,
        clock: Clock,
        **client: Any,
    ) -> None:
        super().__init__(properties, topics, start=start, clock=clock, **client)
        self._identity.elsewhere = True
        self._untold: Progress = {}
        self._told_s = 0.0

    def meet_target(self, *, mirrors: bool) -> list[str]:
        """``mirrors``: records pass unchanged, and keep partitions where numbers are equal."""
        counts = Counter(topic for topic, _number in self._consumer.partitions(self._topics))
        partitions = self.lanes.partitions
        unlike = [f"{topic} {count}" for topic, count in counts.items() if count != partitions]
        self.elsewhere = OtherCluster(
            (self.cluster_id or "").encode(),
            (self.lanes.cluster or "").encode(),
            mirrors,
            partitions if mirrors and not unlike else 0,
        )
        if not (mirrors and unlike):
            return []
        remark = (
            f"the output topic has {partitions} partitions, and of the inputs {', '.join(unlike)}:"
            " records do not keep the number of their partition, and hapax offsets translate"
            " cannot be used"
        )
        return [remark]

    def told(self, partitions: Iterable[Where] | None = None) -> dict[Where, TopicPartition]:
        """Return what the group has here; of some partitions what the cluster of outputs has."""
        if partitions is None:
            return super().told()
        return self.lanes.progress(partitions, frozenset())

    def subscribe(self) -> None:
        """Join the group; from here on its own offsets do not count."""
        self._consumer.progress = self._progress
        super().subscribe()

    def progress_of(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        found = self.lanes.progress(partitions, frozenset())
        return {where: offset_or_none(one) for where, one in found.items()}

    def take(self, records_max: int, wait_s: float) -> Batch:
        """See the port; partitions that have come are placed first."""
        self._place()
        self._tell()
        self.lanes.keep()
        return super().take(records_max, wait_s)

    def mark_processed(self, progress: Mapping[Where, int]) -> None:
        super().mark_processed(progress)
        self._untold.update(progress)

    def close(self) -> None:
        """Leave; what the group has not got is committed first."""
        with suppress(BatchAbortedError):
            self._tell(now=True)
        super().close()

    def _place(self) -> None:
        if self._states.stale and self._states.stale & self._consumer.assignment():
            self._positions.reread_stale()
        # Placed here, or by the call in which they came, which knows nothing of what is held.
        for where in set(self._consumer.held("unplaced")) - self._states.stale:
            self._consumer.hold_ours(where, "unplaced", held=False)

    def _progress(self, partitions: Iterable[Where]) -> dict[Where, TopicPartition]:
        wanted = list(partitions)
        found = self.lanes.progress(wanted, self._consumer.assignment())
        unknown = [where for where in wanted if found[where].offset < 0]
        for where, before in self._consumer.of_group(unknown).items():
            if before.offset >= 0:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: group {self._consumer.group} has read up to"
                    f" {before.offset}, and the cluster of the outputs has no progress of it: its"
                    " output topic was deleted, its offsets expired while nothing ran, it is"
                    " another cluster, or the group worked without one before. Give the pipeline a"
                    " new HAPAX_APP, or see docs/other-cluster.md to set the progress"
                )
        return found

    def _tell(self, *, now: bool = False) -> None:
        """Commit what was processed for tools that show the group. Nothing relies on it."""
        now_s = self._clock.monotonic()
        if not self._untold or (not now and now_s - self._told_s < TOLD_INTERVAL_S):
            return
        ours = self._consumer.assignment()
        offsets = [
            informative(self.offset(where, at), self.lanes.cluster)
            for where, at in self._untold.items()
            if where in ours
        ]
        self._untold, self._told_s = {}, now_s
        commit, told = self._consumer.client.commit, list(map(client_offset, offsets))
        with suppress(KafkaException):  # a group that is changing; the next commit shows more
            if now:
                commit(offsets=told, asynchronous=False)
            else:
                commit(offsets=told)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_assign(consumer, partitions)
        self._consumer.assign_held(consumer, partitions, "unplaced", NOWHERE)
        self.lanes.leave(places(partitions))
        self._states.stale.update(places(partitions))

    def _leave(self, left: list[Where]) -> None:
        super()._leave(left)
        self.lanes.leave(left)
