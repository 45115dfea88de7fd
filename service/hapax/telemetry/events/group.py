"""Events of partitions: which are assigned, where the group is in them, and the lag.

Those of the lag monitor come from its own thread. A partition that is no longer assigned has no lag
here; its series disappear with the rebalance as a rule, with the next snapshot at the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.cluster.partition_offsets import HeldBack, held_back
from hapax.telemetry.events.service import Narrator, by_name, named, named_all, printable
from hapax.telemetry.health import skip_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hapax.cluster.lag import PartitionLag, ReaderLag
    from hapax.core.ports import Stuck
    from hapax.core.records import Progress, TopicPartition


class GroupEvents(Narrator):
    """What happens to the assigned partitions and positions, and what other readers have left."""

    def partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """May be none: more members than partitions."""
        self._health.assigned = True
        self._changed("partitions_assigned", partitions)

    def partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._changed("partitions_revoked", partitions)

    def partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self._changed("partitions_lost", partitions)

    def partitions_unowned(self, partitions: Iterable[TopicPartition]) -> None:
        self._metrics.partitions_unowned.of().inc()
        self._logger.warning("partitions_unowned", partitions=named_all(frozenset(partitions)))

    def partition_stuck(self, stuck: Mapping[TopicPartition, Stuck]) -> None:
        """Say which assigned partitions a set that cannot be decoded holds up: all of them."""
        before, self._health.stuck = self._health.stuck, dict(stuck)
        flag, offset = self._metrics.partition_stuck, self._metrics.partition_stuck_offset
        for topic, partition in before.keys() - stuck.keys():
            flag.remove(topic, str(partition))
            offset.remove(topic, str(partition))
        for where, one in stuck.items():
            if before.get(where) == one:
                continue
            flag.of(where[0], str(where[1])).set(1)
            offset.of(where[0], str(where[1])).set(one.offset)
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
        self._logger.warning("open_transactions_left", reason=held_back(held))

    def lane_open_retried(self, where: TopicPartition, reason: str) -> None:
        self._metrics.brokers_awaited.of().inc()
        self._health.fail()
        if self._first("lane_open_retried", named(where)):
            told = printable(reason)
            self._logger.error("lane_open_retried", partition=named(where), reason=told)

    def outputs_cluster_met(self, servers: str, cluster_id: str | None) -> None:
        self._health.outputs_cluster = cluster_id
        self._logger.info("outputs_cluster_met", servers=printable(servers), cluster=cluster_id)

    def lag_observed(self, lags: Mapping[TopicPartition, int]) -> None:
        self._health.lags = lags
        for (topic, partition), lag in lags.items():
            self._metrics.consumer_lag.of(self._metrics.app, topic, str(partition)).set(lag)
        self._logger.debug("lag_observed", lags=by_name(lags))

    def idle_offsets_committed(self, progress: Progress) -> None:
        self._metrics.idle_offsets_committed.of().inc()
        self._health.succeed()
        self._metrics.last_commit_timestamp_seconds.of().set(self._wall_s())
        self._logger.debug("idle_offsets_committed", offsets=by_name(progress))

    def records_redelivered(self, count: int, partition: TopicPartition) -> None:
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
        self._forget_lag(before.keys() - kept.keys())
        for where in found.keys() & kept.keys():
            self._record_lag(where, found[where])
        self._health.partition_lags = kept
        if complete:
            self._health.lag_updated_s = at_s
        if self._tells_debug:
            figures = {
                where: one.figures() if one.is_input else one.log_figures()
                for where, one in found.items()
            }
            self._logger.debug("lag_updated", partition_lags=by_name(figures))

    def lag_monitor_limited(self, remark: str) -> None:
        self._logger.info("lag_monitor_limited", remark=printable(remark))

    def lag_monitor_failed(self, reason: str) -> None:
        self._metrics.lag_monitor_errors.of().inc()
        if self._first("lag_monitor_failed"):
            self._logger.warning("lag_monitor_failed", reason=printable(reason))

    def reader_lag_updated(self, group: str, lags: Sequence[ReaderLag]) -> None:
        self._set_reader_lag(group, lags)
        told = {named((one.topic, one.partition)): one.records_max for one in lags}
        self._logger.debug("reader_lag_updated", group=printable(group), lags=told)

    def reader_lag_failed(self, group: str, reason: str) -> None:
        """Say that a group, or what it reads, could not be asked for: its series disappear."""
        self._set_reader_lag(group, ())
        if self._first("reader_lag_failed", group):
            told = printable(reason)
            self._logger.warning("reader_lag_failed", group=printable(group), reason=told)

    def _changed(self, event: str, partitions: Iterable[TopicPartition]) -> None:
        self._tell_settled()
        changed, before = frozenset(partitions), self._health.partitions
        kind = event.removeprefix("partitions_")
        ours = before | changed if kind == "assigned" else before - changed
        self._forget_lag(before - ours)
        self._health.partitions = ours
        self._metrics.assigned_partitions.of().set(len(ours))
        self._metrics.rebalances.of(kind).inc()
        tell = self._logger.warning if kind == "lost" else self._logger.info
        tell(event, partitions=named_all(changed), ours=len(ours))

    def _forget_lag(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove series that are no longer updated: they would alert permanently."""
        metrics = self._metrics
        for topic, partition in partitions:
            metrics.open_transaction_seconds.remove(topic, str(partition))
            metrics.last_stable_offset_lag.remove(topic, str(partition))
            lag, age = metrics.consumer_lag, metrics.consumer_lag_seconds
            for family in (lag, age, metrics.retention_margin_seconds):
                family.remove(metrics.app, topic, str(partition))

    def _record_lag(self, where: TopicPartition, one: PartitionLag) -> None:
        labels, metrics = (where[0], str(where[1])), self._metrics
        metrics.last_stable_offset_lag.of(*labels).set(one.log.last_stable_offset_lag)
        metrics.open_transaction_seconds.of(*labels).set(one.open_s)
        if one.is_input:
            metrics.consumer_lag.of(metrics.app, *labels).set(one.lag)
        if one.lag_s is not None:
            metrics.consumer_lag_seconds.of(metrics.app, *labels).set(one.lag_s)
        if one.margin_s is None:
            metrics.retention_margin_seconds.remove(metrics.app, *labels)
        else:
            metrics.retention_margin_seconds.of(metrics.app, *labels).set(one.margin_s)

    def _set_reader_lag(self, group: str, lags: Sequence[ReaderLag]) -> None:
        metrics = self._metrics
        gauges = (
            metrics.reader_lag_records,
            metrics.reader_lag_records_max,
            metrics.reader_lag_open,
        )
        found = {
            (one.topic, str(one.partition)): (one.records_min, one.records_max, one.undecided)
            for one in lags
        }
        for labels, _value in [*metrics.reader_lag_open.series()]:
            where = (labels["topic"], labels["partition"])
            if labels["group"] == group and where not in found:
                for family in gauges:
                    family.remove(group, *where)
        for where, values in found.items():
            for family, value in zip(gauges, values, strict=True):
                family.of(group, *where).set(value)
