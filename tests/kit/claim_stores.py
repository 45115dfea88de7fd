"""Claim stores for tests: a Redis of one's own, records, and a clock that is set by hand."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.claims.redis_buckets import TURN
from hapax.core.records import Record
from hapax.sandbox.processes import Ports
from hapax.sandbox.redis_server import Redis
from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR_MS = 3_600_000

SMALL_BUCKETS = {
    "IDS_PER_BUCKET_MIN = 24, 5": "IDS_PER_BUCKET_MIN = 2, 1",
    "= 14, 14, 24": "= 3, 3, 24",
    "IDS_PER_STEP = 512, 8, 16": "IDS_PER_STEP = 3, 1, 4",
}
"""So small that a few ids fill the buckets, and that few are moved at once: every batch meets some
that were moved and some that were not."""


class Hand:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


def records(count: int, *, topic: str = "orders", partition: int = 0, at: int = 0) -> list[Record]:
    """Return records of one partition, from offset ``at``."""
    return [Record(topic, partition, at + place, None, None) for place in range(count)]


def ids(count: int, *, at: int = 0) -> list[bytes]:
    """Return different ids."""
    return [b"event-%d" % place for place in range(at, at + count)]


@contextmanager
def redis_server(folder: Path) -> Iterator[Redis]:
    """Run a Redis that one test, or one file, has for itself."""
    watchdog, ports = ChildWatchdog(), Ports()
    server = Redis(folder, ports, watchdog)
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
    """Return a client for what the adapter never does."""
    return redis.Redis(port=server.port, socket_timeout=10, protocol=2, driver_info=None)


def tell(server: Redis, *command: object) -> None:
    """Send a command for which the client has no typed call."""
    admin(server).execute_command(*map(str, command))  # type: ignore[no-untyped-call]


def field(server: Redis, key: str, name: str) -> bytes:
    """Return the value of a field of a hash."""
    value = admin(server).hget(key, name)
    assert isinstance(value, bytes)
    return value


def mutate(claims: RedisClaims, changes: dict[str, str]) -> RedisClaims:
    """Let the store run a changed script; every change must strike."""
    claims._buckets.script = claims._redis.register_script(changed(TURN.read_text(), changes))
    return claims


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def live(server: Redis, app: str = "shop") -> dict[bytes, dict[bytes, bytes]]:
    """Return the buckets of an app and the claims in each, by field."""
    with admin(server).pipeline() as asked:
        keys: Any = admin(server).keys(f"hapax{{{app}}}*")
        for key in keys:
            asked.hgetall(key)
        return {
            key: {field: value for field, value in fields.items() if value}
            for key, fields in zip(keys, asked.execute(), strict=True)
        }


def lives_ms(server: Redis) -> list[int]:
    """Return how long each bucket of the app of ``live`` has to live."""
    with admin(server).pipeline() as asked:
        for key in live(server):
            asked.pttl(key)
        return asked.execute()


def make_older(server: Redis, ms: int, app: str = "shop") -> None:
    """Let all claims have been made so much earlier."""
    base = f"hapax:{{{app}}}:claims:meta"
    units = ms // int(field(server, base, "unit"))
    with admin(server).pipeline() as told:
        for key, claims in live(server, app).items():
            for name, value in claims.items():
                date = (int.from_bytes(value[:2], "big") - units) % 2**16
                told.hset(key, name, date.to_bytes(2, "big") + value[2:])
        told.execute()


def bare(url: str, app: str = "shop", **options: Any) -> RedisClaims:
    """Return the store as a worker would have it, with an hour to remember."""
    apart = {name: options.pop(name) for name in ("monotonic",) if name in options}
    return RedisClaims(url, StoreOptions(app, **{"ttl_ms": HOUR_MS, **options}), **apart)
