"""Claim stores for tests: a Redis of one's own, records, and a clock that is set by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import SplitResult

import redis

from hapax.claims.kind import StoreOptions, StoreRights, Transport
from hapax.claims.redis import SCRIPT, RedisClaims
from hapax.claims.store import KINDS
from hapax.core.ports import Clock
from hapax.core.records import Record
from hapax.sandbox.guard import Guard
from hapax.sandbox.processes import Ports
from hapax.sandbox.servers import Redis
from hapax.sandbox.watchdog import ChildWatchdog
from hapax.testing.claims import MemoryClaims

HOUR_MS = 3_600_000

SMALL_PIECES = {
    "AT_ONCE, SIZE = '3', 16, 3500, 14": "AT_ONCE, SIZE = '3', 16, 2, 14",
    "CLAIMED, LIVES, ENDS = 0.5, 1.5, 2.5": "CLAIMED, LIVES, ENDS = 0, 1.5, 2.5",
    "GENERATIONS_MAX = 4": "GENERATIONS_MAX = 1000",
}
"""Every call begins a generation, so that the claims of each are in another one."""


class Hand:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


def records(count: int, *, topic: str = "orders", partition: int = 0, at: int = 0) -> list[Record]:
    return [Record(topic, partition, at + place, None, None) for place in range(count)]


def ids(count: int, *, at: int = 0) -> list[bytes]:
    return [b"event-%d" % place for place in range(at, at + count)]


@contextmanager
def redis_server(folder: Path, guard: Guard | None = None) -> Iterator[Redis]:
    """Run a Redis that one test, or one file, has for itself."""
    watchdog, ports = ChildWatchdog(), Ports()
    server = Redis(folder, ports, watchdog, guard)
    try:
        server.start()
        server.await_ready()
        yield server
    finally:
        if server.running:
            server.resume()
            server.kill()
        ports.close()
        watchdog.close()


def admin(server: Redis) -> redis.Redis:
    return redis.Redis(port=server.port, socket_timeout=10, protocol=2, driver_info=None)


def tell(server: Redis, *command: object) -> None:
    admin(server).execute_command(*map(str, command))  # type: ignore[no-untyped-call]


def field(server: Redis, key: str, name: str) -> bytes:
    value = admin(server).hget(key, name)
    assert isinstance(value, bytes)
    return value


def mutate(claims: RedisClaims, changes: dict[str, str]) -> RedisClaims:
    """Let the store run a changed script; every change must strike."""
    claims._store.script = claims._redis.register_script(changed(SCRIPT.read_text(), changes))
    return claims


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def live(server: Redis, app: str = "shop") -> dict[bytes, dict[bytes, bytes]]:
    with admin(server).pipeline() as asked:
        keys: Any = admin(server).keys(f"hapax:{{{app}}}:claims:*:*")
        for key in keys:
            asked.hgetall(key)
        return dict(zip(keys, asked.execute(), strict=True))


def generations(server: Redis, app: str = "shop") -> list[list[int]]:
    """Return number, beginning and time to live of each generation in ms, the newest first."""
    numbers = [*map(int, field(server, f"hapax:{{{app}}}:claims:meta", "generations").split())]
    return [numbers[at : at + 3] for at in range(0, len(numbers), 3)]


def make_older(server: Redis, ms: int, app: str = "shop") -> None:
    """Let all generations have begun so much earlier; negative: later."""
    text = " ".join(
        f"{number} {start_ms - ms} {ttl_ms}"
        for number, start_ms, ttl_ms in generations(server, app)
    )
    admin(server).hset(f"hapax:{{{app}}}:claims:meta", "generations", text)


def bare(url: str, app: str = "shop", **options: Any) -> RedisClaims:
    apart = {name: options.pop(name) for name in ("monotonic",) if name in options}
    return RedisClaims(url, StoreOptions(app, **{"ttl_ms": HOUR_MS, **options}), **apart)


def claimed_x(url: str, **options: Any) -> RedisClaims:
    """Return a store through which the first record has claimed the id x."""
    store = bare(url, **options)
    store.claim([b"x"], records(1), {})
    return store


class MemoryKind:
    """``memory://<name>``: one store for each name and app, as long as this object lives."""

    name = "Memory"
    example = "memory://name"
    tls_scheme = ""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.opened: dict[tuple[str, str], MemoryClaims] = {}

    def check(self, parts: SplitResult) -> None:
        if not parts.hostname:
            raise ValueError("write memory://name")

    def transport(self, url: str) -> Transport:
        return Transport()

    def rights(self, url: str, app: str) -> StoreRights:
        return StoreRights("Memory, nothing to grant", f"{url} {app}")

    def open(self, url: str, options: StoreOptions) -> MemoryClaims:
        return self.opened.setdefault(
            (url, options.app), MemoryClaims(clock=self._clock, ttl_ms=options.ttl_ms)
        ).seen_by(cluster_id=options.cluster_id)


@contextmanager
def registered(clock: Clock) -> Iterator[MemoryKind]:
    kind = MemoryKind(clock)
    with patch.dict(KINDS, memory=kind):
        yield kind
