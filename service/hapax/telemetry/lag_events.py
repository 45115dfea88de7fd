"""Events of the lag monitor, logged by its own thread: where logs begin and end, and the lag.

A partition that is no longer assigned has no lag here; its series disappear with the next snapshot
at the latest, and with the rebalance as a rule (group_events.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.event_base import Narrator, named, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.lag import PartitionLag
    from hapax.core.records import TopicPartition
    from hapax.telemetry.metrics import Metrics


class LagEvents(Narrator):
    """What the offsets of the logs say."""

    def lag_updated(
        self, partition_lags: Sequence[PartitionLag], at_s: float, *, complete: bool
    ) -> None:
        """Say how partitions stood at ``at_s``, Unix time: ours, and those that are written to.

        Those that are missing in an incomplete snapshot keep their last values.
        """
        ours, before = self._health.partitions, self._health.partition_lags
        found = {(one.topic, one.partition): one for one in partition_lags}
        told = found if complete else {**before, **found}
        kept = {where: one for where, one in told.items() if not one.is_input or where in ours}
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
        """Say that brokers did not answer, or not all of it."""
        self._metrics.lag_monitor_errors.of().inc()
        if self._first("lag_monitor_failed"):
            self._logger.warning("lag_monitor_failed", reason=printable(reason))

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
    """Remove the series of a partition that nobody tells any more: they would alert for ever."""
    labels = (where[0], str(where[1]))
    metrics.consumer_lag.remove(*labels)
    metrics.consumer_lag_seconds.remove(*labels)
    metrics.retention_margin_seconds.remove(*labels)
    metrics.open_transaction_seconds.remove(*labels)
    metrics.last_stable_offset_lag.remove(*labels)


def _facts(one: PartitionLag) -> Mapping[str, object]:
    return one.figures() if one.is_input else one.log_figures()
