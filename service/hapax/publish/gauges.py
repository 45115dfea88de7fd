"""What a publisher tells of itself: its metrics, moved where things happen or read when asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.telemetry.spool_metrics import SpoolMetrics

if TYPE_CHECKING:
    from hapax.publish.drainer import Drainer
    from hapax.spool.group_commit import GroupCommit
    from hapax.spool.log import SpoolLog


class Gauges:
    """Metrics of one publisher."""

    def __init__(self, log: SpoolLog, drainer: Drainer) -> None:
        self.table = SpoolMetrics()
        self._log = log
        self._drainer = drainer
        self._published = 0
        self._idle_s = time.monotonic()
        self.table.spool_records_waiting.of().set_function(lambda: self.waiting)
        self.table.spool_bytes.of().set_function(lambda: log.size_bytes)
        self.table.spool_waiting_seconds.of().set_function(self._waiting_s)

    def of_acceptance(self, commit: GroupCommit) -> None:
        """Read what the accepting side knows, when asked."""
        self.table.spool_full.of().set_function(lambda: float(commit.full))

    @property
    def waiting(self) -> int:
        """Accepted records that are not known to be in Kafka."""
        return self._log.certified_next - max(self._drainer.next, self._log.first)

    def accept(self, seconds: float, records: int) -> None:
        """Take note of a round of the spool."""
        self.table.spool_sync_seconds.of().observe(seconds)
        self.table.spool_records_accepted.of().inc(records)
        if records and self.waiting <= records:
            self._idle_s = time.monotonic()

    def publish(self) -> None:
        """Take note of how far the drainer has come."""
        reached, self._idle_s = self._drainer.next, time.monotonic()
        if self._published:
            self.table.spool_records_published.of().inc(reached - self._published)
        self._published = reached

    def _waiting_s(self) -> float:
        return time.monotonic() - self._idle_s if self.waiting else 0.0
