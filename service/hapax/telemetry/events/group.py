"""Events of partitions: which are assigned, where the group is in them, and the lag.

Those of the lag monitor come from its own thread. A partition that is no longer assigned has no lag
here; its series disappear with the rebalance as a rule, with the next snapshot at the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.partition_offsets import HeldBack, held_back
from hapax.telemetry.events.base import Narrator, named, named_all, printable
from hapax.telemetry.health import skip_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hapax.core.lag import PartitionLag, ReaderLag
    from hapax.core.ports import Stuck
    from hapax.core.records import Progress, TopicPartition
    from hapax.telemetry.metrics import Metrics


class GroupEvents(Narrator):
    """What happens to the assigned partitions and positions."""

    def partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """May be none: more members than partitions."""
        self._tell_settled()
        added = frozenset(partitions)
        self._health.assigned = True
        self._changed("partitions_assigned", "assigned", added, self._health.partitions | added)

    def partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._tell_settled()
        gone = frozenset(partitions)
        self._changed("partitions_revoked", "revoked", gone, self._health.partitions - gone)

    def partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that these went to another member without asking: this one was slow, or cut off."""
        self._tell_settled()
        gone = frozenset(partitions)
        self._changed("partitions_lost", "lost", gone, self._health.partitions - gone)

    def partitions_unowned(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that no member owned these partitions, and that the group shares out again."""
        self._metrics.partitions_unowned.of().inc()
        self._logger.warning("partitions_unowned", partitions=named_all(frozenset(partitions)))

    def partition_stuck(self, stuck: Mapping[TopicPartition, Stuck]) -> None:
        """Say which assigned partitions a set that cannot be decoded holds up: all of them."""
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

    def open_transactions_awaited(self, held: Mapping[TopicPartition, HeldBack]) -> None:
        """Say what a bounded run waits for; nothing: it waits no more."""
        self._health.held_back = held_back(held) if held else ""
        if held:
            self._logger.warning("open_transactions_awaited", reason=held_back(held))

    def open_transactions_left(self, held: Mapping[TopicPartition, HeldBack]) -> None:
        """Say what a bounded run leaves after open transactions as it ends."""
        self._logger.warning("open_transactions_left", reason=held_back(held))

    def lane_open_retried(self, where: TopicPartition, reason: str) -> None:
        self._metrics.brokers_awaited.of().inc()
        self._health.fail()
        if self._first("lane_open_retried", named(where)):
            self._logger.error(
                "lane_open_retried", partition=named(where), reason=printable(reason)
            )

    def outputs_cluster_met(self, servers: str, cluster_id: str | None) -> None:
        self._health.outputs_cluster = cluster_id
        self._logger.info("outputs_cluster_met", servers=printable(servers), cluster=cluster_id)

    def lag_observed(self, lags: Mapping[TopicPartition, int]) -> None:
        self._health.lags = lags
        for (topic, partition), lag in lags.items():
            self._metrics.consumer_lag.of(topic, str(partition)).set(lag)
        if self._tells_debug:
            self._logger.debug(
                "lag_observed", lags={named(partition): lag for partition, lag in lags.items()}
            )

    def idle_offsets_committed(self, progress: Progress) -> None:
        """Say that progress alone was committed, beyond control records and aborted data."""
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

    def lag_updated(
        self, partition_lags: Sequence[PartitionLag], at_s: float, *, complete: bool
    ) -> None:
        """Say how partitions were at ``at_s``, Unix time: assigned ones, and those written to.

        Those that are missing in an incomplete snapshot keep their last values.
        """
        ours, before = self._health.partitions, self._health.partition_lags
        found = {(one.topic, one.partition): one for one in partition_lags}
        told = found if complete else {**before, **found}
        kept = {
            where: one
            for where, one in told.items()
            if not one.is_input or where in ours or self._health.query
        }
        for where in before.keys() - kept.keys():
            forget_lag(self._metrics, where)
        for where in found.keys() & kept.keys():
            self._record_lag(where, found[where])
        self._health.partition_lags = kept
        if complete:
            self._health.lag_updated_s = at_s
        if self._tells_debug:
            self._logger.debug(
                "lag_updated",
                partition_lags={named(where): _facts(one) for where, one in found.items()},
            )

    def lag_monitor_limited(self, remark: str) -> None:
        """Log what the lag monitor cannot find out here, once."""
        self._logger.info("lag_monitor_limited", remark=printable(remark))

    def lag_monitor_failed(self, reason: str) -> None:
        self._metrics.lag_monitor_errors.of().inc()
        if self._first("lag_monitor_failed"):
            self._logger.warning("lag_monitor_failed", reason=printable(reason))

    def _changed(
        self,
        event: str,
        kind: str,
        changed: frozenset[TopicPartition],
        ours: frozenset[TopicPartition],
    ) -> None:
        # A lag that is no longer updated would alert permanently.
        for topic, partition in self._health.partitions - ours:
            forget_lag(self._metrics, (topic, partition))
        self._health.partitions = ours
        self._metrics.assigned_partitions.of().set(len(ours))
        self._metrics.rebalances.of(kind).inc()
        tell = self._logger.warning if kind == "lost" else self._logger.info
        tell(event, partitions=named_all(changed), ours=len(ours))

    def _record_lag(self, where: TopicPartition, one: PartitionLag) -> None:
        labels, metrics = (where[0], str(where[1])), self._metrics
        metrics.last_stable_offset_lag.of(*labels).set(one.log.last_stable_offset_lag)
        metrics.open_transaction_seconds.of(*labels).set(one.open_s)
        if one.is_input:
            metrics.consumer_lag.of(*labels).set(one.lag)
        if one.lag_s is not None:
            metrics.consumer_lag_seconds.of(*labels).set(one.lag_s)
        if one.margin_s is None:
            metrics.retention_margin_seconds.remove(*labels)
        else:
            metrics.retention_margin_seconds.of(*labels).set(one.margin_s)


def forget_lag(metrics: Metrics, where: TopicPartition) -> None:
    """Remove the series of a partition that are no longer updated: they would alert permanently."""
    labels = (where[0], str(where[1]))
    metrics.consumer_lag.remove(*labels)
    metrics.consumer_lag_seconds.remove(*labels)
    metrics.retention_margin_seconds.remove(*labels)
    metrics.open_transaction_seconds.remove(*labels)
    metrics.last_stable_offset_lag.remove(*labels)


def _facts(one: PartitionLag) -> Mapping[str, object]:
    return one.figures() if one.is_input else one.log_figures()


class ReaderEvents(Narrator):
    """What readers of the topics have before them."""

    def reader_lag_updated(self, group: str, lags: Sequence[ReaderLag]) -> None:
        self._set(group, lags)
        if self._tells_debug:
            told = {named((one.topic, one.partition)): one.records_max for one in lags}
            self._logger.debug("reader_lag_updated", group=printable(group), records_max=told)

    def reader_lag_failed(self, group: str, reason: str) -> None:
        """Say that a group, or what it reads, could not be asked for: its series disappear."""
        self._set(group, ())
        if self._first("reader_lag_failed", group):
            self._logger.warning(
                "reader_lag_failed", group=printable(group), reason=printable(reason)
            )

    def _set(self, group: str, lags: Sequence[ReaderLag]) -> None:
        metrics = self._metrics
        found = {(group, one.topic, str(one.partition)): one for one in lags}
        for labels, _value in [*metrics.reader_lag_open.series()]:
            values = (labels["group"], labels["topic"], labels["partition"])
            if labels["group"] == group and values not in found:
                metrics.reader_lag_records.remove(*values)
                metrics.reader_lag_records_max.remove(*values)
                metrics.reader_lag_open.remove(*values)
        for values, one in found.items():
            metrics.reader_lag_records.of(*values).set(one.records_min)
            metrics.reader_lag_records_max.of(*values).set(one.records_max)
            metrics.reader_lag_open.of(*values).set(one.undecided)
