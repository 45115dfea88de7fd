"""Events of ranges: what the tasks of a Spark application did.

``range_completed`` is the canonical line of this engine: one for each range that a task committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.event_base import Narrator, named, named_all, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress, TopicPartition


class RangeEvents(Narrator):
    """What happens to lanes and their ranges."""

    def lanes_assigned(self, lanes: Mapping[int, Iterable[TopicPartition]]) -> None:
        """Say which lane has which partitions; every earlier task of theirs is fenced."""
        self._logger.info(
            "lanes_assigned",
            lanes={str(lane): named_all(partitions) for lane, partitions in lanes.items()},
        )

    def range_completed(  # noqa: PLR0913 - the facts of one line
        self,
        lane: int,
        outcome: str,
        spans: Mapping[TopicPartition, tuple[int, int]],
        *,
        transactions: int,
        records: int,
        open_s: float,
        work_s: float,
        round_s: float,
    ) -> None:
        """Say what a task came to. ``round_s``: from planning to the report, as the driver saw."""
        metrics = self._metrics
        metrics.ranges.of(outcome).inc()
        metrics.range_duration_seconds.of("open").observe(open_s)
        metrics.range_duration_seconds.of("work").observe(work_s)
        metrics.range_duration_seconds.of("round").observe(round_s)
        metrics.range_records.of().observe(records)
        if self._tells_info:
            self._logger.info(
                "range_completed",
                lane=lane,
                outcome=outcome,
                offsets={named(where): list(span) for where, span in spans.items()},
                transactions=transactions,
                records=records,
                open_ms=round(open_s * 1000, 3),
                work_ms=round(work_s * 1000, 3),
                round_ms=round(round_s * 1000, 3),
            )

    def task_lost(self, lane: int, reason: str, failures: int, starts: Progress) -> None:
        """Say that a task ended without a report: its process was killed, or its executor lost.

        What it had committed is found by the next one, which goes on from there.
        """
        self._metrics.tasks_lost.of().inc()
        self._logger.warning(
            "task_lost",
            lane=lane,
            reason=printable(reason),
            failures=failures,
            starts={named(where): offset for where, offset in starts.items()},
        )
