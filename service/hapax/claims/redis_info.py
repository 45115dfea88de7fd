"""What the claim store tells about itself, and what our user may do there.

Permissions are found by trying. What is tried writes one key that is gone a second later; claims
are not touched, and no epoch is begun: a store that was emptied must stay recognisable as one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError, RedisError

from hapax.claims.redis_connection import connect, place, reason_of, unavailable
from hapax.core.cluster_state import ClaimStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

ANSWER_TIMEOUT_S = 2.0
_NO_SCRIPT = "0" * 40
_SETTINGS = ("maxmemory-policy", "appendfsync", "save", "min-replicas-to-write")


def look_at_redis(url: str, app: str, **options: Any) -> ClaimStore:
    """Return what a server tells; takes seconds at most.

    ``options``: see ``redis_connection.connect``. Raises ConfigurationError for a URL that cannot
    work.
    """
    client = connect(
        url, connect_timeout_s=ANSWER_TIMEOUT_S, answer_timeout_s=ANSWER_TIMEOUT_S, **options
    )
    try:
        began_ms = time.time() * 1000
        try:
            seconds, micros = client.time()
        except (RedisError, OSError) as error:
            return ClaimStore(place=place(client), problem=str(unavailable(client, error)))
        middle_ms = (began_ms + time.time() * 1000) / 2
        return _ask(client, app, skew_ms=int(seconds * 1000 + micros / 1000 - middle_ms))
    finally:
        client.close()


def _ask(client: Redis, app: str, *, skew_ms: int) -> ClaimStore:
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
        return ClaimStore(
            place=place(client), problem=str(unavailable(client, error)), skew_ms=skew_ms
        )
    return ClaimStore(
        place=place(client),
        info=info,
        settings=settings,
        refused=refused,
        skew_ms=skew_ms,
        claimed=claimed,
        cluster_id=cluster.decode() if isinstance(cluster, bytes) else cluster or None,
    )


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
