"""What the claim store reports about itself, and what the configured user may do there.

Permissions are found by trying. What is tried writes one key that is gone a second later; claims
are not touched, and no epoch is begun: a store that was emptied must stay recognisable as one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from hapax.claims.redis_connection import place, reason_of, unavailable
from hapax.claims.redis_eviction import KEEPS, evicted_keys, evicts
from hapax.claims.redis_health import judged_health, outdated, server_name
from hapax.core.claim_store import Preflight, StoreHealth

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

_NO_SCRIPT = "0" * 40
_SETTINGS = ("maxmemory-policy", "appendfsync", "save", "min-replicas-to-write")


def health_of(client: Redis, base: str) -> StoreHealth:
    """Return what a server says of itself and of the claims of this app; takes seconds at most."""
    began_ms = time.time() * 1000
    try:
        seconds, micros = client.time()
    except (RedisError, OSError) as error:
        return _away(client, error)
    middle_ms = (began_ms + time.time() * 1000) / 2
    skew_ms = int(seconds * 1000 + micros / 1000 - middle_ms)
    settings: dict[str, str] = {}
    try:
        info = {str(name): str(value) for name, value in client.info().items()}
        for name in _SETTINGS:
            settings |= _setting(client, name)
        refused = _refused(client, base)
        claimed = None if refused else bool(client.hget(f"{base}:meta", "epoch"))
        cluster = None if refused else client.hget(f"{base}:meta", "cluster")
    except (RedisError, OSError) as error:
        return _away(client, error, skew_ms=skew_ms)
    return judged_health(
        place(client),
        info,
        settings,
        refused=refused,
        skew_ms=skew_ms,
        claimed=claimed,
        cluster_id=cluster.decode() if isinstance(cluster, bytes) else cluster or None,
    )


def _away(client: Redis, error: Exception, *, skew_ms: int | None = None) -> StoreHealth:
    problem = str(unavailable(client, error))
    return StoreHealth(name="Redis", place=place(client), problem=problem, skew_ms=skew_ms)


def _setting(client: Redis, name: str) -> dict[str, str]:
    try:
        answer = client.config_get(name)
    except RedisError:  # forbidden by an ACL, or renamed as managed services do
        return {}
    return {str(key): str(value) for key, value in answer.items()}


def _refused(client: Redis, base: str) -> tuple[str, ...]:
    """Return what a claim needs and our user cannot do."""
    key = f"{base}:doctor"
    tried: dict[str, Callable[[], Any]] = {
        "hset": lambda: client.hset(key, "at", "1"),
        "hget": lambda: client.hget(key, "at"),
        "hmget": lambda: client.hmget(key, ["at"]),
        "hsetnx": lambda: client.hsetnx(key, "at", "1"),
        "hgetall": lambda: client.hgetall(key),
        "hdel": lambda: client.hdel(key, "at"),
        "del": lambda: client.delete(key),
        "set": lambda: client.set(f"{key}:mark", "1", px=1000),
        "get": lambda: client.get(f"{key}:mark"),
        # After the last write, or that could make the key again, for ever.
        "pexpireat": lambda: client.pexpireat(key, int(time.time() * 1000) + 1000),
        "script load": lambda: client.script_load("return 1"),
        "evalsha": lambda: client.evalsha(_NO_SCRIPT, 1, key),
    }
    refused = []
    for name, attempt in tried.items():
        try:
            attempt()
        except NoScriptError:
            continue  # the answer of a server that lets us run scripts
        except RedisError as error:
            refused.append(f"{name}: {reason_of(error)}")
    return tuple(refused)


def preflight(client: Redis) -> Preflight:
    """Check version, eviction policy and durability of a server that answers.

    Raises RedisError when it does not answer or is a replica; what an ACL hides becomes a warning.
    """
    found = Preflight([], [])
    server = _info(client, "server")
    if not server:
        found.warnings.append("Redis refuses INFO: its version is not checked.")
    else:
        version = str(server.get("redis_version", "0"))
        if outdated(version):
            found.problems.append(f"{server_name(server)} is too old: use Redis 6.2 or later.")
    if _info(client, "replication").get("role") == "slave":
        # Claims are not written before there are some: a replica would be noticed too late.
        raise ReadOnlyError("READONLY")
    policy = _eviction_policy(client)
    if policy is None:
        found.warnings.append(
            "Redis refuses both CONFIG and INFO memory: make sure that its maxmemory-policy is "
            "noeviction, or it deletes claims silently."
        )
    elif policy != KEEPS:
        found.problems.append(f"Redis {evicts(policy)}.")
    elif evicted := evicted_keys(_info(client, "stats")):
        found.warnings.append(
            f"Redis has evicted {evicted} keys since it started: claims may be among them, and "
            "hapax claims rebuild reads them back."
        )
    if _info(client, "persistence").get("aof_enabled") == 0:
        found.warnings.append(
            "Redis keeps no append-only file: a restart loses claims, and duplicates of earlier "
            "events pass. Set appendonly yes."
        )
    return found


def _info(client: Redis, section: str) -> dict[str, object]:
    try:
        return dict(client.info(section))
    except ResponseError:
        return {}


def _eviction_policy(client: Redis) -> str | None:
    policy: object
    try:
        policy = client.config_get("maxmemory-policy").get("maxmemory-policy")
    except ResponseError:  # forbidden by an ACL, or renamed as managed services do
        policy = None
    policy = policy or _info(client, "memory").get("maxmemory_policy")
    return None if policy is None else str(policy)
