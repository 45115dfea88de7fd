"""What a Redis says of itself, judged: whether it keeps claims, and what to set.

Whether it deletes keys when its memory is full is checked while the service runs, for both the
policy and the memory can be changed at any time. Each check is one INFO, which managed servers
allow where they forbid CONFIG.

Permissions are found by trying. What is tried writes one key that is gone a second later; claims
are not touched, and no epoch is begun: a store that was emptied must stay recognisable as one.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from hapax.claims.redis_connection import place, reason_of, unavailable
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.ports import Judgement, Preflight, StoreHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redis import Redis

    from hapax.claims.kind import StoreOptions

KEEPS = "noeviction"
VERSION_MIN: Final = (6, 2)
BYTES_PER_ID: Final = 98
"""Of resident memory: 85 to 95 on Redis 7.0, some 70 on Valkey 9.1 (docs/capacity.md)."""
LIVES: Final = 1.5
"""An id is kept for one to one and a half times its time to live: generations go as a whole."""
_NO_SCRIPT = "0" * 40
_SETTINGS = ("maxmemory-policy", "appendfsync", "save", "min-replicas-to-write")


class Eviction:
    """What the server does where its memory is full, as the last look found it."""

    def __init__(self, client: Redis, options: StoreOptions) -> None:
        """Ask nothing yet. ``on_look`` gets the problem, and keys evicted since the last look."""
        self._client = client
        self._on_look, self._on_volatile = options.on_look, options.on_volatile
        self._seen: tuple[object, int] = ("", 0)
        self.problem = ""

    def look(self, place: str) -> None:
        """Ask once; raises RedisError, and ClaimsUnavailableError where claims may be deleted."""
        try:
            info = self._client.info()
        except ResponseError:
            self._client.ping()  # whether it is INFO that is refused, or everything
            info = {}
        policy = str(info.get("maxmemory_policy", KEEPS))
        # A server that does not say is taken at its word that it answers, as at the start.
        self.problem = "" if policy == KEEPS else f"Redis at {place} {evicts(policy)}"
        before, self._seen = self._seen, (info.get("run_id"), evicted_keys(info))
        # Since the last answer of the same server.
        evicted = self._seen[1] - before[1] if before[0] == self._seen[0] else 0
        if self._on_look is not None:
            self._on_look(self.problem, evicted)
        volatile = ""
        if info.get("aof_enabled") == 0:
            judged = _persistence({"aof_enabled": "0"}, _setting(self._client, "save"))
            volatile = f"{next(judged).saw}; set appendonly yes"
        if self._on_volatile is not None:
            self._on_volatile(volatile)
        self.vouch()

    def vouch(self) -> None:
        """Raise ClaimsUnavailableError where the last look found that claims may be deleted."""
        if self.problem:
            raise ClaimsUnavailableError(self.problem)


def evicts(policy: str) -> str:
    """Return what is wrong with a policy, as the rest of a sentence."""
    return f"evicts keys (maxmemory-policy {policy}) and would delete claims silently: set {KEEPS}"


def evicted_keys(info: Mapping[str, Any]) -> int:
    return _number(str(info.get("evicted_keys"))) or 0


def judged_health(
    place: str, info: Mapping[str, str], settings: Mapping[str, str], **facts: Any
) -> StoreHealth:
    """``info``: fields of INFO. ``settings``: of CONFIG GET."""
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
        bytes_per_id=int(LIVES * BYTES_PER_ID),
        judgements={aspect: tuple(said) for aspect, said in aspects.items()},
        **facts,
    )


def outdated(version: str) -> bool:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < VERSION_MIN


def server_name(info: Mapping[str, object]) -> str:
    """Return product and version: ``redis_version`` is what it is compatible with."""
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
            "redis-cli CONFIG SET maxmemory-policy noeviction, then hapax claims rebuild",
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
    with suppress(RedisError):  # forbidden by an ACL, or renamed as managed services do
        return {str(key): str(value) for key, value in client.config_get(name).items()}
    return {}


def _refused(client: Redis, base: str) -> tuple[str, ...]:
    key = f"{base}:doctor"
    tried: dict[str, Callable[[], Any]] = {
        "hset": lambda: client.hset(key, "at", "1"),
        "hget": lambda: client.hget(key, "at"),
        "hmget": lambda: client.hmget(key, ["at"]),
        "hlen": lambda: client.hlen(key),
        "hdel": lambda: client.hdel(key, "at"),
        "unlink": lambda: client.unlink(key),
        "set": lambda: client.set(f"{key}:mark", "1", px=1000),
        "get": lambda: client.get(f"{key}:mark"),
        # After the last write, or that could make the key again, permanently.
        "pexpireat": lambda: client.pexpireat(key, int(time.time() * 1000) + 1000),
        "script load": lambda: client.script_load("return 1"),
        "evalsha": lambda: client.evalsha(_NO_SCRIPT, 1, key),
    }
    refused = []
    for name, attempt in tried.items():
        try:
            attempt()
        except NoScriptError:
            continue  # the answer of a server that allows scripts
        except RedisError as error:
            refused.append(f"{name}: {reason_of(error)}")
    return tuple(refused)


def preflight(client: Redis) -> Preflight:
    """Raise RedisError: no answer, or a replica; what an ACL hides becomes a warning."""
    found = Preflight([], [])
    server = _info(client, "server")
    if not server:
        found.warnings.append("Redis refuses INFO: its version is not checked.")
    elif outdated(str(server.get("redis_version", "0"))):
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
    with suppress(ResponseError):
        return dict(client.info(section))
    return {}


def _eviction_policy(client: Redis) -> str | None:
    policy: object = None
    with suppress(ResponseError):  # forbidden by an ACL, or renamed as managed services do
        policy = client.config_get("maxmemory-policy").get("maxmemory-policy")
    policy = policy or _info(client, "memory").get("maxmemory_policy")
    return None if policy is None else str(policy)
