"""Events of the two forms on Spark: ranges of offsets, and the micro-batches of a DataFrame.

``range_completed`` is the canonical line of the one: one for each range that a task committed;
``micro_batch_completed`` that of the other: one for each micro-batch, all numbers in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.processing.batch_result import BatchResult
from hapax.telemetry.events.service import Narrator, add, by_name, named, named_all, printable
from hapax.telemetry.health import Executor, LaneState, RangeDone, RangeInFlight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.cluster.micro_batches import Numbers
    from hapax.core.records import Progress, TopicPartition

UNTIMED = (
    "Spark reads no timestamp as 1969-12-31 23:59:59.999 UTC, late for every watermark: let"
    " the sender set one, set message.timestamp.type=LogAppendTime on the topic, or take the event"
    " time from the value"
)


class SparkEvents(Narrator):
    """What happens to lanes and their ranges, and to a streaming query."""

    def lanes_assigned(self, lanes: Mapping[int, Mapping[TopicPartition, int | None]]) -> None:
        """Say which lane has which partitions, at which offset; earlier tasks are fenced."""
        self._health.lanes = {lane: LaneState(dict(at)) for lane, at in lanes.items()}
        self._metrics.ranges_in_flight.of().set(0)
        self._logger.info(
            "lanes_assigned",
            lanes={str(lane): named_all(partitions) for lane, partitions in lanes.items()},
        )

    def executors_awaited(self, reason: str) -> None:
        self._health.executors_awaited = told = printable(reason)
        self._logger.warning("executors_awaited", reason=told)

    def code_shipped(self, names: list[str]) -> None:
        self._logger.info("code_shipped", names=names)

    def executors_ready(self, executors: list[str], versions: Mapping[str, str]) -> None:
        self._health.executors_awaited, self._health.executor_versions = "", dict(versions)
        self._logger.info("executors_ready", executors=executors, versions=dict(versions))

    def range_started(
        self,
        lane: int,
        positions: Mapping[TopicPartition, int | None],
        ends: Progress,
        attempt: int,
    ) -> None:
        """Note that a task begins. ``positions``: of all partitions of the lane."""
        known = self._health.lanes.get(lane)
        running = RangeInFlight(self._wall_s(), attempt, ends)
        self._note_lane(lane, LaneState(dict(positions), running, known.last if known else None))
        offsets = {named(where): [positions.get(where), end] for where, end in ends.items()}
        self._logger.debug("range_started", lane=lane, attempt=attempt, offsets=offsets)

    def executors_changed(self, executors: Sequence[Executor], ui: str) -> None:
        """Note which executors Spark has, and the address of its own pages; say what is new."""
        known = self._health.executors
        self._health.executors, self._health.spark_ui = (self._wall_s(), executors), ui
        able = {each.name: each for each in executors if each.cores}
        self._metrics.executors.of().set(len(able))
        if known is None or {each.name for each in known[1] if each.cores} != able.keys():
            self._logger.info(
                "executors_changed",
                executors={name: each.address for name, each in able.items()},
                cores=sum(each.cores for each in able.values()),
            )

    def executor_seen(self, executor: str, record_path: str) -> None:
        known = self._health.record_paths
        if known.get(executor) == record_path:
            return
        self._health.record_paths = {**known, executor: record_path}
        self._logger.info("executor_seen", executor=executor, record_path=record_path)

    def range_completed(
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
        steps_s = {"open": open_s, "work": work_s, "round": round_s}
        for step, each_s in steps_s.items():
            metrics.range_duration_seconds.of(step).observe(each_s)
        metrics.range_records.of().observe(records)
        steps_ms = {f"{step}_ms": round(each_s * 1000, 3) for step, each_s in steps_s.items()}
        done = RangeDone(self._wall_s(), outcome, records, transactions, **steps_ms)
        self._end_range(lane, done, {where: end for where, (_, end) in spans.items()})
        self._logger.info(
            "range_completed",
            lane=lane,
            outcome=outcome,
            offsets=by_name(spans),
            transactions=transactions,
            records=records,
            **steps_ms,
        )

    def task_lost(self, lane: int, reason: str, failures: int, starts: Progress) -> None:
        self._metrics.tasks_lost.of().inc()
        self._end_range(lane, RangeDone(self._wall_s(), "lost"), {})
        told, at = printable(reason), by_name(starts)
        self._logger.warning("task_lost", lane=lane, reason=told, failures=failures, starts=at)

    def query_started(self, query: str, run: str, checkpoint: str) -> None:
        # The partitions of a query are always its own.
        self._health.assigned = self._health.query = True
        self._logger.info("query_started", query=query, run=run, checkpoint=checkpoint)

    def micro_batch_completed(self, numbers: Numbers) -> None:
        metrics = self._metrics
        metrics.micro_batches.of("repeated" if numbers.repeated else "published").inc()
        add(metrics.records_consumed, numbers.inputs)
        add(metrics.records_produced, numbers.outputs)
        for phase, seconds in numbers.phases_s.items():
            metrics.micro_batch_duration_seconds.of(phase).observe(seconds)
        metrics.late_rows_dropped.of().inc(numbers.late)
        metrics.state_rows.of().set(numbers.state_rows)
        metrics.state_bytes.of().set(numbers.state_bytes)
        metrics.last_commit_timestamp_seconds.of().set(self._wall_s())
        self._health.settle(self._wall_s(), _settled(numbers))
        self._health.micro_batch = (self._wall_s(), numbers)
        self._logger.info("micro_batch_completed", **_line(numbers))

    def records_without_timestamp(self, records: int, late: int) -> None:
        if self._first("records_without_timestamp"):
            self._logger.warning(
                "records_without_timestamp", records=records, late=late, hint=UNTIMED
            )

    def marker_refreshed(self, number: int) -> None:
        self._logger.info("marker_refreshed", next=number)

    def _end_range(self, lane: int, done: RangeDone, progress: Progress) -> None:
        known = self._health.lanes.get(lane)
        if known is not None:  # otherwise it has been taken away
            at = {where: progress.get(where, offset) for where, offset in known.positions.items()}
            self._note_lane(lane, LaneState(at, None, done))

    def _note_lane(self, lane: int, state: LaneState) -> None:
        self._health.lanes = lanes = {**self._health.lanes, lane: state}
        running = sum(each.running is not None for each in lanes.values())
        self._metrics.ranges_in_flight.of().set(running)


def _settled(numbers: Numbers) -> BatchResult:
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
    line = msgspec.structs.asdict(numbers)
    lags, phases_s = line.pop("lags"), line.pop("phases_s")
    return line | {
        "records": sum(numbers.inputs.values()),
        "lag": by_name({where: lag for where, lag in lags.items() if lag}),
        "phases_ms": {name: round(each_s * 1000, 3) for name, each_s in phases_s.items()},
    }
