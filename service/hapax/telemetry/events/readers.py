"""Events of other groups: what they have not read of topics, from a thread that counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.events.base import Narrator, named, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.reader_lag import ReaderLag


class ReaderEvents(Narrator):
    """What readers of the topics have before them."""

    def reader_lag_updated(self, group: str, lags: Sequence[ReaderLag]) -> None:
        """Say what a group has not read; partitions that are not among these have no series."""
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
