"""Events of the DataFrame form: its query, its micro-batches, its marker.

``micro_batch_completed`` is the canonical line: one for each micro-batch, all numbers in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.batch_result import BatchResult
from hapax.telemetry.event_base import Narrator, named

if TYPE_CHECKING:
    from hapax.core.micro_batches import Numbers


class MicroBatchEvents(Narrator):
    """What happens to a streaming query."""

    def query_started(self, query: str, run: str, checkpoint: str) -> None:
        """Say which query runs; its id lives in the checkpoint."""
        self._health.assigned = True  # the partitions of a query are always its own
        self._logger.info("query_started", query=query, run=run, checkpoint=checkpoint)

    def micro_batch_completed(self, numbers: Numbers) -> None:
        """Say what a micro-batch came to."""
        metrics = self._metrics
        metrics.micro_batches.of("repeated" if numbers.repeated else "published").inc()
        for topic, count in numbers.inputs.items():
            metrics.records_consumed.of(topic).inc(count)
        for topic, count in numbers.outputs.items():
            metrics.records_produced.of(topic).inc(count)
        for phase, seconds in numbers.phases_s.items():
            metrics.micro_batch_duration_seconds.of(phase).observe(seconds)
        metrics.late_rows_dropped.of().inc(numbers.late)
        metrics.state_rows.of().set(numbers.state_rows)
        metrics.state_bytes.of().set(numbers.state_bytes)
        metrics.last_commit_timestamp_seconds.of().set(self._wall_s())
        self._health.last_settled = (self._wall_s(), _settled(numbers))
        if self._tells_info:
            self._logger.info("micro_batch_completed", **_line(numbers))

    def marker_refreshed(self, number: int) -> None:
        """Say that the marker of an idle query was committed again, before it expires."""
        self._logger.info("marker_refreshed", next=number)


def _settled(numbers: Numbers) -> BatchResult:
    """Return the micro-batch as what the status page knows: a transaction."""
    phases_s = {phase: each for phase, each in numbers.phases_s.items() if phase != "total"}
    return BatchResult(
        outcome="repeated" if numbers.repeated else "committed",
        attempt=numbers.attempts,
        offsets={},
        records=sum(numbers.inputs.values()),
        inputs=numbers.inputs,
        outputs=numbers.outputs,
        phases_s=phases_s,
    )


def _line(numbers: Numbers) -> dict[str, object]:
    return {
        "number": numbers.number,
        "records": sum(numbers.inputs.values()),
        "inputs": numbers.inputs,
        "outputs": numbers.outputs,
        "repeated": numbers.repeated,
        "attempts": numbers.attempts,
        "lag": {named(where): lag for where, lag in numbers.lags.items() if lag},
        "late": numbers.late,
        "state_rows": numbers.state_rows,
        "state_bytes": numbers.state_bytes,
        "watermark": numbers.watermark,
        "phases_ms": {name: round(s * 1000, 3) for name, s in numbers.phases_s.items()},
    }
