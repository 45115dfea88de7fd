"""What the claim store reports about itself, and what the configured user may do there.

Permissions are found by trying. What is tried writes one key that is gone a second later; claims
are not touched, and no epoch is begun: a store that was emptied must stay recognisable as one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError, RedisError

from hapax.claims.redis_connection import place, reason_of, unavailable
from hapax.claims.redis_health import judged_health
from hapax.core.claim_store import StoreHealth

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

_NO_SCRIPT = "0" * 40
_SETTINGS = ("maxmemory-policy", "appendfsync", "save", "min-replicas-to-write")


def health_of(client: Redis, app: str) -> StoreHealth:
    """Return what a server says of itself and of the claims of this app; takes seconds at most."""
    began_ms = time.time() * 1000
    try:
        seconds, micros = client.time()
    except (RedisError, OSError) as error:
        return _away(client, error)
    middle_ms = (began_ms + time.time() * 1000) / 2
    skew_ms = int(seconds * 1000 + micros / 1000 - middle_ms)
    meta = f"hapax:{{{app}}}:claims"
    settings: dict[str, str] = {}
    try:
        info = {str(name): str(value) for name, value in client.info().items()}
        for name in _SETTINGS:
            settings |= _setting(client, name)
        refused = _refused(client, meta)
        claimed = None if refused else bool(client.hget(meta, "epoch"))
        cluster = None if refused else client.hget(meta, "cluster")
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


def _refused(client: Redis, meta: str) -> tuple[str, ...]:
    """Return what a claim needs and our user cannot do."""
    key = f"{meta}:doctor"
    tried: dict[str, Callable[[], Any]] = {
        "hset": lambda: client.hset(key, "at", "1"),
        "hget": lambda: client.hget(key, "at"),
        "hmget": lambda: client.hmget(key, ["at"]),
        "hincrby": lambda: client.hincrby(key, "at", 1),
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
