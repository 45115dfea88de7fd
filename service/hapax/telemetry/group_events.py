"""Events of the consumer group: which partitions are ours, and where we stand in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.event_base import Narrator, named, named_all, printable
from hapax.telemetry.health import skip_command
from hapax.telemetry.lag_events import forget_lag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.ports import Stuck
    from hapax.core.records import Progress, TopicPartition


class GroupEvents(Narrator):
    """What happens to our partitions and positions."""

    def partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that these are ours too. May be none: more members than partitions."""
        added = frozenset(partitions)
        self._health.assigned = True
        self._changed("partitions_assigned", "assigned", added, self._health.partitions | added)

    def partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that these go to another member, in good order."""
        gone = frozenset(partitions)
        self._changed("partitions_revoked", "revoked", gone, self._health.partitions - gone)

    def partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that these went to another member unasked: we were too slow, or cut off."""
        gone = frozenset(partitions)
        self._changed("partitions_lost", "lost", gone, self._health.partitions - gone)

    def partitions_unowned(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that nobody owned these partitions, and that the group shares out again."""
        self._metrics.partitions_unowned.of().inc()
        self._logger.warning("partitions_unowned", partitions=named_all(frozenset(partitions)))

    def partition_stuck(self, stuck: Mapping[TopicPartition, Stuck]) -> None:
        """Say which partitions of ours are held up by a set that cannot be decoded: all of them."""
        before, self._health.stuck = self._health.stuck, dict(stuck)
        for (topic, partition), one in before.items():
            if stuck.get((topic, partition)) != one:
                self._metrics.partition_stuck.remove(topic, str(partition), str(one.offset))
        for where, one in stuck.items():
            if before.get(where) == one:
                continue
            self._metrics.partition_stuck.of(where[0], str(where[1]), str(one.offset)).set(1)
            self._logger.critical(
                "partition_stuck",
                partition=named(where),
                offset=one.offset,
                reason=printable(one.reason),
                skip=skip_command(where, one),
            )
        moved = before.keys() - stuck.keys()
        if moved:
            self._logger.warning("partitions_unstuck", partitions=named_all(moved))

    def lag_observed(self, lags: Mapping[TopicPartition, int]) -> None:
        """Say the lag of a DataFrame pipeline, whose offsets are in its checkpoint.

        Everything else has its lag from the lag monitor (lag_events.py).
        """
        self._health.lags = lags
        for (topic, partition), lag in lags.items():
            self._metrics.consumer_lag.of(topic, str(partition)).set(lag)
        if self._tells_debug:
            self._logger.debug(
                "lag_observed", lags={named(partition): lag for partition, lag in lags.items()}
            )

    def idle_offsets_committed(self, progress: Progress) -> None:
        """Say that progress alone was committed, behind control records and aborted data."""
        self._metrics.idle_offsets_committed.of().inc()
        self._health.succeed()
        self._metrics.last_commit_timestamp_seconds.of().set(self._wall_s())
        if self._tells_debug:
            self._logger.debug(
                "idle_offsets_committed",
                offsets={named(partition): offset for partition, offset in progress.items()},
            )

    def records_redelivered(self, count: int, partition: TopicPartition) -> None:
        """Say that the client handed out committed records again; they were dropped."""
        self._metrics.records_skipped.of("redelivered").inc(count)
        self._logger.info("records_redelivered", partition=named(partition), count=count)

    def _changed(
        self,
        event: str,
        kind: str,
        changed: frozenset[TopicPartition],
        ours: frozenset[TopicPartition],
    ) -> None:
        # A lag that nobody updates any more would alert for ever.
        for topic, partition in self._health.partitions - ours:
            forget_lag(self._metrics, (topic, partition))
        self._health.partitions = ours
        self._metrics.assigned_partitions.of().set(len(ours))
        self._metrics.rebalances.of(kind).inc()
        tell = self._logger.warning if kind == "lost" else self._logger.info
        tell(event, partitions=named_all(changed), ours=len(ours))
