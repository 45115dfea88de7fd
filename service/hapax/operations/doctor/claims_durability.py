"""Checks of how well the claim store keeps its claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import HOUR_MS, Check, fail, good, untold, warn
from hapax.operations.doctor.claims import judged, store_of
from hapax.settings.value_types import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, Said

FULL, NEARLY_FULL = 0.95, 0.80


def _memory(case: Case) -> Iterator[Said]:
    store = store_of(case)
    used, allowed = store.used_bytes, store.limit_bytes
    if used is None or allowed is None:
        yield untold(f"{store.name} does not return its memory use")
        return
    limit = allowed or store.machine_bytes or 0
    needed = _needed(case, store.bytes_per_id)
    fix = (
        f"raise {store.limit_name}, or shorten HAPAX_DEDUP__TTL: a full {store.name} takes no "
        "claims"
    )
    if allowed and used > NEARLY_FULL * allowed:
        saw = f"{size(used)} of {store.limit_name} {size(allowed)} are in use"
        yield fail(saw, fix) if used > FULL * allowed else warn(saw, fix)
    elif limit and needed > limit:
        yield warn(
            f"at the rate of the last hour claims need about {size(needed)}, {store.name} has "
            f"{size(limit)}",
            fix,
        )
    else:
        yield good(
            f"{size(used)} in use, about {size(needed)} needed at the rate of the last hour, "
            f"limit {size(allowed) if allowed else 'none'}"
        )


def _needed(case: Case, bytes_per_id: int) -> int:
    """Return the bytes of all claims that live at once, from the input of the last hour."""
    last_hour = sum(
        max(0, log.offsets.high_watermark - log.since[HOUR_MS])
        for name in case.inputs
        for _, log in case.logs(name)
        if log.offsets is not None and HOUR_MS in log.since
    )
    return int(last_hour * case.settings.dedup.ttl_ms / HOUR_MS * bytes_per_id)


def size(count: int) -> str:
    """Write bytes for people: the nearest whole unit."""
    for unit in (1 << 30, 1 << 20, 1 << 10):
        if count >= unit:
            return size_text(count // unit * unit)
    return f"{count}B"


CHECKS: Final = (
    Check(
        "claim-eviction",
        "`maxmemory-policy`",
        "FAIL: not noeviction.",
        "claims",
        judged("eviction"),
    ),
    Check(
        "claim-persistence",
        "append-only file, `appendfsync`, snapshots",
        "FAIL: nothing on disk. WARN: snapshots only, or not synced at every claim.",
        "claims",
        judged("persistence"),
    ),
    Check(
        "claim-replicas",
        "replicas and `min-replicas-to-write`",
        "WARN: none, or claims need not reach one.",
        "claims",
        judged("replicas"),
    ),
    Check(
        "claim-memory",
        "memory in use and, from TTL and the rate of the last hour, needed; against `maxmemory`",
        "FAIL: 95 % are in use. WARN: 80 %, or more is needed than there is.",
        "claims",
        _memory,
    ),
)
