"""Executors and lanes in ``/status.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hapax.telemetry.http.partition_rows import ago

if TYPE_CHECKING:
    from hapax.telemetry.health import Health
    from hapax.telemetry.spark_state import LaneState, RangeDone, RangeInFlight


def spark_state(health: Health, now_s: float) -> dict[str, Any]:
    """Return what the driver knows of executors and lanes; a pipeline has no lanes."""
    at_s, executors = health.executors or (None, ())
    return {
        "ui": health.spark_ui or None,
        "executors": [
            msgspec.structs.asdict(each)
            for each in sorted(executors, key=lambda one: (len(one.name), one.name))
            if each.cores
        ],
        "executors_seen_s_ago": ago(at_s, now_s),
        "waits_for_executors": at_s is not None and not any(each.cores for each in executors),
        "waits_because": health.executors_awaited or None,
        "versions": dict(health.executor_versions),
        "record_paths": dict(health.record_paths),
        "lanes": [_lane(number, lane, now_s) for number, lane in sorted(health.lanes.items())],
    }


def _lane(number: int, lane: LaneState, now_s: float) -> dict[str, Any]:
    return {
        "lane": number,
        "partitions": [
            {"topic": topic, "partition": partition, "position": position}
            for (topic, partition), position in sorted(lane.positions.items())
        ],
        "range": None if lane.running is None else _in_flight(lane, lane.running, now_s),
        "last_range": None if lane.last is None else _done(lane.last, now_s),
    }


def _in_flight(lane: LaneState, running: RangeInFlight, now_s: float) -> dict[str, Any]:
    return {
        "since": running.since_s,
        "seconds": ago(running.since_s, now_s),
        "attempt": running.attempt,
        "offsets": [
            {"topic": topic, "partition": number, "from": lane.positions[topic, number], "to": end}
            for (topic, number), end in sorted(running.ends.items())
        ],
    }


def _done(done: RangeDone, now_s: float) -> dict[str, Any]:
    return {
        "at": done.at_s,
        "s_ago": ago(done.at_s, now_s),
        "outcome": done.outcome,
        "records": done.records,
        "transactions": done.transactions,
        "open_ms": round(1000 * done.open_s, 3),
        "work_ms": round(1000 * done.work_s, 3),
        "round_ms": round(1000 * done.round_s, 3),
    }
