"""Checks of how well the claim store keeps its claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import HOUR_MS, Check, fail, good, number, untold, warn
from hapax.operations.doctor.claims import is_replica, store_of
from hapax.settings.units import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, Said

BYTES_PER_ID: Final = 40
"""Of a claim in its bucket, its part of the bucket's key included (31 measured, rounded up)."""
LIVES: Final = 2
"""A claim is kept for one to two TTLs: segments go as a whole."""
FULL, NEARLY_FULL = 0.95, 0.80


def _eviction(case: Case) -> Iterator[Said]:
    store = store_of(case)
    policy = store.settings.get("maxmemory-policy") or store.info.get("maxmemory_policy")
    if policy is None:
        yield untold("Redis tells its maxmemory-policy neither in CONFIG nor in INFO")
    elif policy != "noeviction":
        yield fail(
            f"maxmemory-policy={policy}: Redis forgets claims silently, and events that were sent "
            "twice pass",
            "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        )
    else:
        yield good("maxmemory-policy=noeviction")


def _persistence(case: Case) -> Iterator[Said]:
    store = store_of(case)
    logged = store.info.get("aof_enabled")
    fix = "redis-cli CONFIG SET appendonly yes, CONFIG SET appendfsync always"
    if logged is None:
        yield untold("Redis does not let us read INFO")
    elif logged == "0" and store.settings.get("save") == "":
        yield fail("Redis keeps nothing on disk: a restart forgets every claim", fix)
    elif logged == "0":
        yield warn("Redis keeps snapshots only: a restart forgets the claims since the last", fix)
    else:
        yield from _sync(store.settings.get("appendfsync"), fix)


def _sync(value: str | None, fix: str) -> Iterator[Said]:
    if value is None:
        yield untold("Redis does not let us read appendfsync")
    elif value != "always":
        yield warn(
            f"appendfsync={value}: a crash forgets the last claims that Redis acknowledged", fix
        )
    else:
        yield good("every claim is on disk before it is acknowledged")


def _replicas(case: Case) -> Iterator[Said]:
    store = store_of(case)
    count = number(store.info.get("connected_slaves"))
    least = number(store.settings.get("min-replicas-to-write"))
    if count is None or is_replica(store):
        yield untold("Redis does not tell its replicas")
    elif count == 0:
        yield warn(
            "Redis has no replica: with its disk all claims are lost",
            "run a replica, and set min-replicas-to-write 1",
        )
    elif least == 0:
        yield warn(
            f"{count} replicas, but min-replicas-to-write=0: claims are acknowledged that no "
            "replica has, and a failover forgets them",
            "redis-cli CONFIG SET min-replicas-to-write 1",
        )
    else:
        yield good(f"{count} replicas")


def _memory(case: Case) -> Iterator[Said]:
    store = store_of(case)
    used, allowed = number(store.info.get("used_memory")), number(store.info.get("maxmemory"))
    if used is None or allowed is None:
        yield untold("Redis does not let us read INFO memory")
        return
    limit = allowed or number(store.info.get("total_system_memory")) or 0
    needed = _needed(case)
    fix = "raise maxmemory, or shorten HAPAX_DEDUP__TTL: a full Redis takes no claims"
    if allowed and used > NEARLY_FULL * allowed:
        saw = f"{size(used)} of maxmemory {size(allowed)} are in use"
        yield fail(saw, fix) if used > FULL * allowed else warn(saw, fix)
    elif limit and needed > limit:
        yield warn(
            f"at the rate of the last hour claims need about {size(needed)}, Redis has "
            f"{size(limit)}",
            fix,
        )
    else:
        yield good(
            f"{size(used)} in use, about {size(needed)} needed at the rate of the last hour, "
            f"limit {size(allowed) if allowed else 'none'}"
        )


def _needed(case: Case) -> int:
    """Return the bytes of all claims that live at once, from the input of the last hour."""
    last_hour = sum(
        max(0, (log.high_watermark or 0) - log.since[HOUR_MS])
        for name in case.inputs
        for _, log in case.logs(name)
        if HOUR_MS in log.since
    )
    return int(last_hour * LIVES * case.settings.dedup.ttl_ms / HOUR_MS * BYTES_PER_ID)


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
        _eviction,
    ),
    Check(
        "claim-persistence",
        "append-only file, `appendfsync`, snapshots",
        "FAIL: nothing on disk. WARN: snapshots only, or not synced at every claim.",
        "claims",
        _persistence,
    ),
    Check(
        "claim-replicas",
        "replicas and `min-replicas-to-write`",
        "WARN: none, or claims need not reach one.",
        "claims",
        _replicas,
    ),
    Check(
        "claim-memory",
        "memory in use and, from TTL and the rate of the last hour, needed; against `maxmemory`",
        "FAIL: 95 % are in use. WARN: 80 %, or more is needed than there is.",
        "claims",
        _memory,
    ),
)
