"""The rows of partitions in ``/status.json``, and what they add up to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hapax.core.lag import PartitionLag
    from hapax.core.records import TopicPartition
    from hapax.telemetry.health import Health

NEVER: Final = "never"


def partition_rows(
    health: Health, now_s: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the inputs and of what is written to; each row is of one query."""
    partition_lags = health.partition_lags
    mine = [_mine(health, where, now_s) for where in sorted(health.inputs)]
    written = [_row(one, now_s) for _, one in sorted(partition_lags.items()) if not one.is_input]
    return mine, written


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
    row["stuck"] = None if stuck is None else {"offset": stuck.offset, "reason": stuck.reason}
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
        "retention_margin_seconds": NEVER if margin_s == math.inf else _rounded(margin_s),
    }
    return one.figures() | row


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
