"""What the status page and ``/status.json`` show: who this is, and how it is.

Nothing secret, no content of records. Called in threads of the server; everything it reads is
replaced as a whole by its writer.
"""

from __future__ import annotations

import math
import platform
import shlex
import time
from collections import deque
from dataclasses import KW_ONLY, dataclass
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from hapax.telemetry.metrics import OTHER, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.cluster.lag import PartitionLag
    from hapax.core.records import TopicPartition
    from hapax.processing.batch_result import BatchResult
    from hapax.settings import Settings
    from hapax.telemetry.health import Health, LaneState, RangeDone, RangeInFlight
    from hapax.telemetry.logs import Troubles

NAMED_MAX: Final = 256
"""Records in a call that are named."""
SAMPLE_S: Final = 5.0
KEPT_MAX: Final = 61
"""Five minutes of rates: each needs the sample before it."""
STEP_S: Final = 10.0
STEPS_MAX: Final = 361
"""An hour of the charts, likewise."""
_MARKS: Final = {
    "rebalance": "rebalances",
    "abort": "transactions_aborted",
    "rebuild": "producers_rebuilt",
}
"""What the charts mark, and the total that counts it."""
_TOTALS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "records_in": ("records_consumed", {}),
    "records_out": ("records_produced", {}),
    "duplicates": ("records_skipped", {"reason": "duplicate"}),
    "filtered": ("records_skipped", {"reason": "filtered"}),
    "dead_letters": ("records_dead_lettered", {}),
    "transactions_committed": ("transactions", {"outcome": "committed"}),
    "transactions_aborted": ("transactions", {"outcome": "aborted"}),
    "producers_rebuilt": ("producers_rebuilt", {}),
    "rebalances": ("rebalances", {}),
}


class Sample(NamedTuple):
    """Totals at one moment, Unix time; ``lag`` is None while no partition's lag is known."""

    at_s: float
    totals: Mapping[str, int]
    lag: int | None

    def since(self, then: Sample, name: str) -> int:
        return max(0, self.totals[name] - then.totals[name])

    def rate(self, then: Sample, name: str) -> float:
        return round(self.since(then, name) / (self.at_s - then.at_s), 1)


class Members(Protocol):
    """Who is in the consumer group; knows it without waiting for brokers."""

    def latest(self) -> tuple[float, Mapping[str, Mapping[str, list[int]]]] | None:
        """Return when brokers answered last, Unix time, and topic → partitions by member.

        None: they have not answered yet. A member is a client id, with its host.
        """


@dataclass(eq=False)
class Status:
    """Describes this moment. ``members`` is asked only when the status is.

    record_path  ``native`` or ``python`` (docs/fast.md), until executors have reported theirs
    build        versions of what runs
    """

    settings: Settings
    health: Health
    _: KW_ONLY
    metrics: Metrics
    troubles: Troubles
    members: Members | None = None
    transactional_id: str
    record_path: str
    build: Mapping[str, str]
    wall_s: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._shown = self.settings.effective()
        self._began_s = self.wall_s()
        self._samples: deque[Sample] = deque(maxlen=KEPT_MAX)
        self._steps: deque[Sample] = deque(maxlen=STEPS_MAX)

    def sample(self) -> None:
        """Keep what rates follow from; called often, works every few seconds."""
        now_s = self.wall_s()
        for kept, every_s in ((self._samples, SAMPLE_S), (self._steps, STEP_S)):
            # One of the future is of a clock that was set back since.
            if not kept or not 0 <= now_s - kept[-1].at_s < every_s:
                kept.append(Sample(now_s, self._totals(), total_lag(self.health)["records"]))

    def __call__(self) -> dict[str, Any]:
        health, settings, now_s = self.health, self.settings, self.wall_s()
        runbooks = settings.telemetry.runbooks_url.rstrip("/")
        verdict = health.readyz()
        return {
            **_same(settings, "app", "instance", "engine", "guarantee"),
            "record_path": self._record_path(),
            "transactional_id": self.transactional_id,
            "state": health.state(),
            "ready": verdict.ok,
            "paused_by_operator": health.paused_s is not None,
            "reasons": verdict.reasons,
            "causes": [
                {"reason": cause.text, "runbook": f"{runbooks}/{cause.page}"}
                for cause in health.causes() + health.risks()
            ],
            "at": now_s,
            "uptime_s": round(now_s - self._began_s, 3),
            "last_transaction": self._last(now_s),
            "transactions": [_transaction(*each) for each in health.settled.copy()],
            "calls": self._calls(),
            **_kept(health),
            "micro_batch": self._micro_batch(now_s),
            "spark": spark_state(health, now_s) if settings.engine == "spark" else None,
            "total_lag": total_lag(health),
            "rates": self._rates(),
            "history": self._history(),
            "partitions": [_mine(health, where, now_s) for where in sorted(health.inputs)],
            "outputs": [
                _row(one, now_s)
                for _, one in sorted(health.partition_lags.items())
                if not one.is_input
            ],
            "outputs_cluster": self._outputs_cluster(),
            "members": self._group(now_s),
            "lag_updated_s_ago": ago(health.lag_updated_s, now_s),
            "totals": self._totals(),
            "dead_letters": self._dead_letters(),
            "claim_store": self._claim_store(),
            "troubles": [
                trouble._asdict() | {"s_ago": ago(trouble.at_s, now_s)}
                for trouble in self.troubles.latest()
            ],
            "build": {**self.build, "python": platform.python_version()},
            "settings": self._shown,
        }

    def _rates(self) -> list[dict[str, Any]]:
        return [
            {
                "at": round(now.at_s, 3),
                "in_per_s": now.rate(then, "records_in"),
                "out_per_s": now.rate(then, "records_out"),
                "lag": now.lag,
            }
            for then, now in _steps(self._samples)
        ]

    def _history(self) -> dict[str, Any]:
        """Return the last hour in columns, the oldest first, and what happened in its steps."""
        steps = _steps(self._steps)
        marks = [
            {"at": round(now.at_s, 3), "what": what, "count": count}
            for then, now in steps
            for what, name in _MARKS.items()
            if (count := now.since(then, name))
        ]
        return {
            "at": [round(now.at_s, 3) for _, now in steps],
            "in_per_s": [now.rate(then, "records_in") for then, now in steps],
            "out_per_s": [now.rate(then, "records_out") for then, now in steps],
            "lag": [now.lag for _, now in steps],
            "marks": marks,
        }

    def _calls(self) -> dict[str, Any] | None:
        """Return the calls in flight, the first of each partition; None: they do not overlap.

        ``records`` names those that take longest, so that the answer has an end.
        """
        running = self.health.calls
        if running is None:
            return None
        first: dict[str, dict[str, Any]] = {}
        for record, seconds in sorted(running, key=lambda each: each[0].coordinates):
            told = {"record": str(record.coordinates), "seconds": round(seconds, 1)}
            first.setdefault(f"{record.topic}/{record.partition}", told)
        oldest_s = max((seconds for _, seconds in running), default=0.0)
        return {
            "in_flight": len(running),
            "oldest_seconds": round(oldest_s, 1),
            "waited_for": list(first.values()),
            "records": {
                str(record.coordinates): round(seconds, 1)
                for record, seconds in nlargest(NAMED_MAX, running, key=lambda each: each[1])
            },
        }

    def _record_path(self) -> str:
        told = {path.partition(" ")[0] for path in self.health.record_paths.values()}
        return ", ".join(sorted(told)) or self.record_path

    def _outputs_cluster(self) -> dict[str, Any] | None:
        servers = self.settings.output.kafka.bootstrap_servers
        return {"servers": servers, "id": self.health.outputs_cluster} if servers else None

    def _last(self, now_s: float) -> dict[str, Any] | None:
        settled = self.health.settled
        if not settled:
            return None
        at_s, last = settled[-1]
        return {**_transaction(at_s, last), "s_ago": ago(at_s, now_s)}

    def _micro_batch(self, now_s: float) -> dict[str, Any] | None:
        last = self.health.micro_batch
        if last is None:
            return None
        at_s, numbers = last
        total_s = numbers.phases_s.get("total", 0.0)
        records = sum(numbers.inputs.values())
        return {
            "at": at_s,
            "s_ago": ago(at_s, now_s),
            **_same(numbers, "number", "repeated", "state_rows", "state_bytes", "late", "inputs"),
            "watermark": numbers.watermark or None,
            "in_per_s": round(records / total_s, 1) if total_s else None,
            "phases_ms": {name: round(1000 * s, 3) for name, s in numbers.phases_s.items()},
        }

    def _group(self, now_s: float) -> dict[str, Any] | None:
        latest = None if self.members is None else self.members.latest()
        if latest is None:
            return None
        at_s, holds = latest
        named = {name: dict(topics) for name, topics in sorted(holds.items())}
        telemetry, pages = self.settings.telemetry, {}
        for name in named if telemetry.port and not _loopback(telemetry.address) else ():
            host = name.rpartition(" (")[2].removesuffix(")")
            if host and not _loopback(host):
                pages[name] = f"http://{f'[{host}]' if ':' in host else host}:{telemetry.port}/"
        return {"at": at_s, "s_ago": ago(at_s, now_s), "hold": named, "pages": pages}

    def _dead_letters(self) -> list[dict[str, Any]]:
        """Return those of this process by reason, most first, with the command that lists them."""
        listed = self.settings.dead_letter.topic is not None
        samples = (
            (labels["reason"], int(value))
            for labels, value in self.metrics.records_dead_lettered.series()
        )
        return [
            {"reason": reason, "count": count, "command": _listing(reason) if listed else None}
            for reason, count in sorted(samples, key=lambda one: (-one[1], one[0]))
        ]

    def _totals(self) -> dict[str, int]:
        def total(row: str, wanted: dict[str, str]) -> int:
            series = getattr(self.metrics, row).series()
            return int(sum(value for labels, value in series if wanted.items() <= labels.items()))

        return {name: total(*of) for name, of in _TOTALS.items()}

    def _claim_store(self) -> dict[str, Any]:
        away = self.health.claims_away
        if not self.settings.dedup.enabled:
            return {"state": "none"}
        if away is None:
            return {"state": "up"}
        away_s = self.health.monotonic_s() - away.began_s
        return {"state": "away", "away_s": round(away_s, 3), "reason": away.reason}


def _steps(samples: deque[Sample]) -> list[tuple[Sample, Sample]]:
    return [(then, now) for then, now in pairwise(samples.copy()) if now.at_s > then.at_s]


def _same(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _transaction(at_s: float, settled: BatchResult) -> dict[str, Any]:
    phases_s = settled.phases_s
    return {
        "at": at_s,
        **_same(settled, "outcome", "attempt", "records"),
        "outputs": sum(settled.outputs.values()),
        **_same(settled, "duplicates", "filtered", "dead_letters"),
        "duration_ms": round(1000 * sum(phases_s.values()), 3),
        "phases_ms": {phase: round(1000 * each_s, 3) for phase, each_s in phases_s.items()},
    }


def _kept(health: Health) -> dict[str, Any]:
    """Return what is kept as state; nothing at all where the transform keeps none."""
    if (kept := health.kept) is None:
        return {}
    waits = [
        {"topic": topic, "partition": number, "read": read, "of": whole}
        for (topic, number), (read, whole) in sorted(kept.restoring.items())
    ]
    return {"keyed_state": kept._asdict() | {"restoring": waits}}


def _loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def total_lag(health: Health) -> dict[str, Any]:
    """Return the sum over the input partitions whose lag is known, and the oldest age."""
    partition_lags = health.partition_lags
    inputs = [one for one in partition_lags.values() if one.is_input]
    reported = [lag for where, lag in health.lags.items() if where not in partition_lags]
    lags = [one.lag for one in inputs] + reported
    ages_s = [one.lag_s for one in inputs if one.lag_s is not None]
    return {
        "records": sum(lags) if lags else None,
        "seconds": _rounded(max(ages_s, default=None)),
        "partitions": len(health.inputs),
        "known": len(lags),
    }


def _listing(reason: str) -> str:
    which = "" if reason == OTHER else f" --reason {shlex.quote(reason)}"
    return f"hapax dead-letters list{which}"


def ago(at_s: float | None, now_s: float) -> float | None:
    """Return how long ago that was, in seconds; clocks that were set back count as now."""
    return None if at_s is None else round(max(0.0, now_s - at_s), 3)


def _mine(health: Health, where: TopicPartition, now_s: float) -> dict[str, Any]:
    one, stuck = health.partition_lags.get(where), health.stuck.get(where)
    row: dict[str, Any] = (
        {"topic": where[0], "partition": where[1], "lag": health.lags.get(where)}
        if one is None
        else _row(one, now_s)
    )
    row["stuck"] = None if stuck is None else stuck._asdict()
    if health.kept is not None:
        row["held_by"] = "state" if where in health.kept.restoring else None
    return row


def _row(one: PartitionLag, now_s: float) -> dict[str, Any]:
    """Return one partition, spelled as ``hapax offsets --json`` spells it."""
    row: dict[str, Any] = {
        "seen_s_ago": ago(one.at_s, now_s),
        "open_transaction_seconds": round(one.open_s, 3),
    }
    if not one.is_input:
        return one.log_figures() | row
    margin_s = one.margin_s
    row |= {
        "lag_seconds": _rounded(one.lag_s),
        "retention_margin_seconds": None if margin_s == math.inf else _rounded(margin_s),
    }
    return one.figures() | row


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


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
    line = msgspec.structs.asdict(done)
    at_s = line.pop("at_s")
    return {"at": at_s, "s_ago": ago(at_s, now_s), **line}
