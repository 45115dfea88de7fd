"""Events of surveys: where logs begin and end, beside where we stand. Told by a thread of its own.

A partition that is no longer ours has no lag of ours; its series disappear with the next survey at
the latest, and with the rebalance as a rule (group_events.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.event_base import Narrator, named, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.lag import Standing
    from hapax.core.records import TopicPartition
    from hapax.telemetry.metrics import Metrics


class SurveyEvents(Narrator):
    """What the marks of the logs say."""

    def logs_surveyed(self, standings: Sequence[Standing], at_s: float, *, complete: bool) -> None:
        """Say how partitions stood at ``at_s``, Unix time: ours, and those that are written to.

        Those that are missing in an incomplete survey stand as they were.
        """
        ours, before = self._health.partitions, self._health.standings
        found = {(one.topic, one.partition): one for one in standings}
        told = found if complete else {**before, **found}
        kept = {where: one for where, one in told.items() if not one.ours or where in ours}
        for where in before.keys() - kept.keys():
            forget_standing(self._metrics, where)
        for where in found.keys() & kept.keys():
            self._stand(where, found[where])
        self._health.standings = kept
        if complete:
            self._health.surveyed_s = at_s
        if self._tells_debug:
            self._logger.debug(
                "logs_surveyed",
                standings={named(where): _facts(one) for where, one in found.items()},
            )

    def survey_limited(self, remark: str) -> None:
        """Say what surveys cannot find out here; told once."""
        self._logger.info("survey_limited", remark=printable(remark))

    def survey_failed(self, reason: str) -> None:
        """Say that brokers did not answer, or not all of it."""
        self._metrics.survey_failures.of().inc()
        if self._first("survey_failed"):
            self._logger.warning("survey_failed", reason=printable(reason))

    def _stand(self, where: TopicPartition, standing: Standing) -> None:
        labels, metrics = (where[0], str(where[1])), self._metrics
        metrics.stable_gap.of(*labels).set(standing.undecided)
        metrics.open_transaction_seconds.of(*labels).set(standing.open_s)
        if standing.ours:
            metrics.consumer_lag.of(*labels).set(standing.lag)
        if standing.lag_s is not None:
            metrics.consumer_lag_seconds.of(*labels).set(standing.lag_s)
        if standing.margin_s is None:
            metrics.retention_margin_seconds.remove(*labels)
        else:
            metrics.retention_margin_seconds.of(*labels).set(standing.margin_s)


def forget_standing(metrics: Metrics, where: TopicPartition) -> None:
    """Remove the series of a partition that nobody tells any more: they would alert for ever."""
    labels = (where[0], str(where[1]))
    metrics.consumer_lag.remove(*labels)
    metrics.consumer_lag_seconds.remove(*labels)
    metrics.retention_margin_seconds.remove(*labels)
    metrics.open_transaction_seconds.remove(*labels)
    metrics.stable_gap.remove(*labels)


def _facts(standing: Standing) -> Mapping[str, object]:
    return standing.figures() if standing.ours else standing.log_figures()
