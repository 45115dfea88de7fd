"""What a Redis says of itself, judged: whether it keeps claims, and what to set. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from hapax.claims.redis_eviction import KEEPS, evicted_keys
from hapax.core.claim_store import Judgement, StoreHealth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSION_MIN: Final = (6, 2)
BYTES_PER_ID: Final = 40
"""Of a claim in its bucket, its part of the bucket's key included (31 measured, rounded up)."""
LIVES: Final = 2
"""A claim is kept for one to two TTLs: segments go as a whole."""


def judged_health(
    place: str, info: Mapping[str, str], settings: Mapping[str, str], **facts: Any
) -> StoreHealth:
    """Return the health of a server that gave an answer.

    ``info``: fields of INFO. ``settings``: of CONFIG GET. ``facts``: see StoreHealth.
    """
    aspects = {
        "version": _version(info),
        "permissions": _permissions(info, facts.get("refused", ())),
        "role": _role(place, info),
        "eviction": _eviction(info, settings),
        "persistence": _persistence(info, settings),
        "replicas": _replicas(info, settings),
    }
    return StoreHealth(
        name="Redis",
        place=place,
        info=info,
        settings=settings,
        used_bytes=_number(info.get("used_memory")),
        limit_bytes=_number(info.get("maxmemory")),
        machine_bytes=_number(info.get("total_system_memory")),
        limit_name="maxmemory",
        bytes_per_id=LIVES * BYTES_PER_ID,
        judgements={aspect: tuple(said) for aspect, said in aspects.items()},
        **facts,
    )


def outdated(version: str) -> bool:
    """Whether a server is older than what claims need."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < VERSION_MIN


def server_name(info: Mapping[str, object]) -> str:
    """Return what a server is, with its version: ``redis_version`` is what it is compatible with.

    ``info``: what it says of itself.
    """
    for name in ("valkey", "dragonfly", "garnet", "redis"):
        if version := info.get(f"{name}_version"):
            return f"{name.capitalize()} {version}"
    return "Redis"


def _version(info: Mapping[str, str]) -> Iterator[Judgement]:
    found = info.get("redis_version")
    if found is None:
        yield Judgement("UNTOLD", "Redis refuses INFO")
    elif outdated(found):
        yield Judgement("FAIL", server_name(info), "upgrade Redis to 6.2 or later")
    else:
        yield Judgement("PASS", server_name(info))


def _permissions(info: Mapping[str, str], refused: tuple[str, ...]) -> Iterator[Judgement]:
    if _is_replica(info):
        yield Judgement("UNTOLD", "the server is a replica, which refuses every write")
        return
    by_reason: dict[str, list[str]] = {}
    for each in refused:
        command, _, reason = each.partition(": ")
        by_reason.setdefault(reason, []).append(command)
    for reason, commands in by_reason.items():
        yield Judgement(
            "FAIL",
            f"claims need {', '.join(commands)}, which Redis refuses: {reason}",
            "grant it; hapax doctor --acls prints the line for the ACL file",
        )
    if not refused:
        yield Judgement("PASS", "every command that claims need was tried and works")


def _role(place: str, info: Mapping[str, str]) -> Iterator[Judgement]:
    if "role" not in info:
        yield Judgement("UNTOLD", "Redis refuses INFO")
    elif _is_replica(info):
        yield Judgement(
            "FAIL",
            f"Redis at {place} is a replica: it refuses claims",
            "let HAPAX_DEDUP__REDIS_URL lead to the primary",
        )
    else:
        yield Judgement("PASS", "Redis is the primary")


def _eviction(info: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Judgement]:
    policy = settings.get("maxmemory-policy") or info.get("maxmemory_policy")
    if policy is None:
        yield Judgement(
            "UNTOLD", "Redis returns its maxmemory-policy neither in CONFIG nor in INFO"
        )
    elif policy != KEEPS:
        yield Judgement(
            "FAIL",
            f"maxmemory-policy={policy}: Redis deletes claims silently, and duplicates pass",
            "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        )
    else:
        yield Judgement("PASS", "maxmemory-policy=noeviction")
    if evicted := evicted_keys(info):
        yield Judgement(
            "WARN",
            f"Redis has evicted {evicted} keys since it started: claims may be among them",
            "set noeviction, then hapax claims rebuild",
        )


def _persistence(info: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Judgement]:
    logged, sync = info.get("aof_enabled"), settings.get("appendfsync")
    fix = "redis-cli CONFIG SET appendonly yes, CONFIG SET appendfsync always"
    if logged is None:
        yield Judgement("UNTOLD", "Redis refuses INFO")
    elif logged == "0" and settings.get("save") == "":
        saw = "Redis keeps nothing on disk: a restart loses every claim"
        yield Judgement("FAIL", saw, fix)
    elif logged == "0":
        saw = "Redis keeps snapshots only: a restart loses the claims since the last"
        yield Judgement("WARN", saw, fix)
    elif sync is None:
        yield Judgement("UNTOLD", "Redis does not return appendfsync")
    elif sync != "always":
        saw = f"appendfsync={sync}: a crash loses the last claims that Redis acknowledged"
        yield Judgement("WARN", saw, fix)
    else:
        yield Judgement("PASS", "every claim is on disk before it is acknowledged")


def _replicas(info: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Judgement]:
    count = _number(info.get("connected_slaves"))
    least = _number(settings.get("min-replicas-to-write"))
    if count is None or _is_replica(info):
        yield Judgement("UNTOLD", "Redis does not report its replicas")
    elif count == 0:
        yield Judgement(
            "WARN",
            "Redis has no replica: with its disk all claims are lost",
            "run a replica, and set min-replicas-to-write 1",
        )
    elif least == 0:
        yield Judgement(
            "WARN",
            f"{count} replicas, but min-replicas-to-write=0: claims are acknowledged that no "
            "replica has, and a failover loses them",
            "redis-cli CONFIG SET min-replicas-to-write 1",
        )
    else:
        yield Judgement("PASS", f"{count} replicas")


def _is_replica(info: Mapping[str, str]) -> bool:
    return info.get("role") == "slave"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
