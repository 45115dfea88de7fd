"""What the status page and ``/status.json`` show: who this is, and how it is.

Nothing secret, nothing per record. Called in threads of the server; everything it reads is replaced
as a whole by whoever writes it.
"""

from __future__ import annotations

import math
import platform
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.lag import PartitionLag
    from hapax.core.records import TopicPartition
    from hapax.telemetry.health import Health
    from hapax.telemetry.metrics import Metrics
    from hapax.telemetry.recent_errors import Troubles

NEVER: Final = "never"
_TOTALS: Final = {
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


class ProcessIdentity(msgspec.Struct, frozen=True):
    """What never changes while the process runs.

    record_path  ``native`` or ``python`` (docs/fast.md), until executors have told theirs
    claim_store  whether there is one
    runbooks     address of the folder of the docs, for links
    """

    app: str
    instance: str
    engine: str
    guarantee: str
    transactional_id: str
    version: str
    librdkafka: str
    record_path: str
    claim_store: bool
    runbooks: str


class Status:
    """Describes this moment."""

    def __init__(
        self,
        identity: ProcessIdentity,
        health: Health,
        metrics: Metrics,
        troubles: Troubles,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._health = health
        self._metrics = metrics
        self._troubles = troubles
        self._wall_s = wall_s
        self._began_s = wall_s()

    def __call__(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        health, identity, now_s = self._health, self._identity, self._wall_s()
        verdict = health.readyz()
        ours, written = self._partitions(now_s)
        return {
            "app": identity.app,
            "instance": identity.instance,
            "engine": identity.engine,
            "guarantee": identity.guarantee,
            "record_path": self._record_path(),
            "transactional_id": identity.transactional_id,
            "state": health.state(),
            "ready": verdict.ok,
            "paused_by_operator": health.paused_s is not None,
            "reasons": verdict.reasons,
            "causes": [
                {"reason": cause.text, "runbook": f"{identity.runbooks.rstrip('/')}/{cause.page}"}
                for cause in health.causes()
            ],
            "at": now_s,
            "uptime_s": round(now_s - self._began_s, 3),
            "last_transaction": self._last(now_s),
            "calls": self._calls(),
            "partitions": ours,
            "outputs": written,
            "lag_updated_s_ago": _ago(health.lag_updated_s, now_s),
            "totals": self._totals(),
            "claim_store": self._claim_store(),
            "troubles": [
                trouble._asdict() | {"s_ago": _ago(trouble.at_s, now_s)}
                for trouble in self._troubles.latest()
            ],
            "build": {
                "version": identity.version,
                "python": platform.python_version(),
                "librdkafka": identity.librdkafka,
            },
        }

    def _calls(self) -> dict[str, Any] | None:
        """Return the calls in flight, the first of each partition; None: they do not overlap."""
        running = self._health.calls
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
        }

    def _record_path(self) -> str:
        """Return that of the executors where there are any: a driver takes no records."""
        told = {path.partition(" ")[0] for path in self._health.record_paths.values()}
        return ", ".join(sorted(told)) or self._identity.record_path

    def _partitions(self, now_s: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows of our inputs and of what is written to; each row is of one look."""
        partition_lags, lags = self._health.partition_lags, self._health.lags
        ours = self._health.partitions | (lags.keys() - partition_lags.keys())
        mine = [self._mine(where, now_s) for where in sorted(ours)]
        written = [
            _row(one, now_s) for _, one in sorted(partition_lags.items()) if not one.is_input
        ]
        return mine, written

    def _mine(self, where: TopicPartition, now_s: float) -> dict[str, Any]:
        one, stuck = self._health.partition_lags.get(where), self._health.stuck.get(where)
        row: dict[str, Any] = (
            {"topic": where[0], "partition": where[1], "lag": self._health.lags.get(where)}
            if one is None
            else _row(one, now_s)
        )
        row["stuck"] = None if stuck is None else {"offset": stuck.offset, "reason": stuck.reason}
        return row

    def _last(self, now_s: float) -> dict[str, Any] | None:
        last = self._health.last_settled
        if last is None:
            return None
        at_s, settled = last
        phases_s = settled.phases_s
        return {
            "s_ago": _ago(at_s, now_s),
            "outcome": settled.outcome,
            "attempt": settled.attempt,
            "records": settled.records,
            "outputs": sum(settled.outputs.values()),
            "duplicates": settled.duplicates,
            "filtered": settled.filtered,
            "dead_letters": settled.dead_letters,
            "duration_ms": round(1000 * sum(phases_s.values()), 3),
            "phases_ms": {phase: round(1000 * each_s, 3) for phase, each_s in phases_s.items()},
        }

    def _totals(self) -> dict[str, int]:
        samples = [
            sample for metric in self._metrics.registry.collect() for sample in metric.samples
        ]
        return {
            name: int(
                sum(
                    sample.value
                    for sample in samples
                    if sample.name == f"hapax_{row}_total"
                    and labels.items() <= sample.labels.items()
                )
            )
            for name, (row, labels) in _TOTALS.items()
        }

    def _claim_store(self) -> dict[str, Any]:
        away = self._health.claims_away
        if not self._identity.claim_store:
            return {"state": "none"}
        if away is None:
            return {"state": "up"}
        away_s = self._health.monotonic_s() - away.began_s
        return {"state": "away", "away_s": round(away_s, 3), "reason": away.reason}


def _row(one: PartitionLag, now_s: float) -> dict[str, Any]:
    """Return one partition, spelled as ``hapax offsets --json`` spells it."""
    row: dict[str, Any] = {
        "seen_s_ago": _ago(one.at_s, now_s),
        "open_transaction_seconds": round(one.open_s, 3),
    }
    if not one.is_input:
        return one.log_figures() | row
    margin_s = one.margin_s
    row |= {
        "lag_seconds": _rounded(one.lag_s),
        "retention_margin_seconds": NEVER if margin_s == math.inf else _rounded(margin_s),
    }
    return one.figures() | row


def _ago(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else round(max(0.0, now_s - at_s), 3)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
