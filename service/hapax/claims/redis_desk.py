"""What people ask of the buckets: who owns an id and for how long, to forget it, whose they are.

It begins no epoch and sweeps nothing. An answer that came while buckets
moved is asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import RedisError

from hapax.claims.redis_buckets import check_format
from hapax.claims.redis_connection import unavailable
from hapax.claims.redis_layout import (
    DATE_BYTES,
    HashField,
    Layout,
    age,
    bucket_prefix,
    date,
    owner_coordinates,
    place,
)
from hapax.core.claim_store import Owned
from hapax.core.errors import ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.claims.redis_buckets import Buckets
    from hapax.core.records import Coordinates

_AT_ONCE = 1_000
_TRIES = 10
_FIELDS = ["epoch", "from", "to", "cursor", "unit", "ttl"]


class Seen(NamedTuple):
    """What the store says of itself, read and not changed."""

    epoch: bytes
    prefix: bytes
    layout: Layout
    unit_ms: int
    ttl_ms: int

    def place(self, digest: bytes) -> HashField:
        return place(self.prefix, self.layout.bits(digest), digest)


class BucketDesk:
    """Looks single claims up. Raises ClaimsUnavailableError."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._redis = buckets.client

    def owner(self, digest: bytes) -> Owned | None:
        seen, [value] = self._steadily([digest], lambda pipe, key, field: pipe.hget(key, field))
        if seen is None or not value:
            return None
        seconds, micros = self._asked(self._redis.time)
        today = date(seconds * 1000 + micros // 1000, seen.unit_ms)
        # redis_turn.lua deletes what is older.
        units = -(-seen.ttl_ms // seen.unit_ms) + 2
        left = units - age(today, int.from_bytes(value[:DATE_BYTES], "big"))
        if left <= 0:
            return None
        return Owned(self._coordinates(value), left * seen.unit_ms)

    def forget(self, digest: bytes) -> bool:
        was = self.owner(digest) is not None
        _, [gone] = self._steadily([digest], lambda pipe, key, field: pipe.hdel(key, field))
        return was and bool(gone)

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        """Forget those of the claims, by digest, that belong to the given coordinates."""
        return sum(
            self._release(owned[at : at + _AT_ONCE]) for at in range(0, len(owned), _AT_ONCE)
        )

    def _release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        seen, values = self._steadily(
            [digest for digest, _ in owned], lambda pipe, key, field: pipe.hget(key, field)
        )
        if seen is None:
            return 0
        found = [
            (seen.place(digest), value)
            for (digest, owner), value in zip(owned, values, strict=True)
            if value and self._coordinates(value) == owner
        ]
        args: list[Any] = [seen.layout.token(seen.epoch), 0]
        for (key, field), value in found:
            args += [key, field, value, b""]
        others = self._asked(
            lambda: self._buckets.replacing(
                keys=[self._buckets.base, self._buckets.meta], args=args
            )
        )
        return self._release(owned) if others is None else others.count(b"")

    def cluster(self) -> str | None:
        self._check_format()
        found = self._asked(lambda: self._redis.hget(self._buckets.meta, "cluster"))
        return found.decode() if isinstance(found, bytes) else None

    def adopt(self) -> str | None:
        before = self.cluster()
        here = self._buckets.canary.cluster_id or ""
        self._asked(lambda: self._redis.hset(self._buckets.meta, "cluster", here))
        return before

    def _coordinates(self, value: bytes) -> Coordinates:
        owner = value[DATE_BYTES:]
        found = owner_coordinates(owner, self._buckets.topic)
        if found.topic:
            return found
        number = int.from_bytes(owner[:3], "big")
        return found._replace(topic=f"topic {number}")

    def _steadily(
        self, digests: Sequence[bytes], ask: Callable[[Any, bytes, bytes], object]
    ) -> tuple[Seen | None, list[Any]]:
        """Ask where the ids are, until buckets did not move meanwhile; None: no claims exist."""
        self._check_format()
        seen = self._seen()
        for _ in range(_TRIES):
            if seen is None:
                return None, [None] * len(digests)
            pipe = self._redis.pipeline(transaction=False)
            for digest in digests:
                ask(pipe, *seen.place(digest))
            found = self._asked(pipe.execute)
            before, seen = seen, self._seen()
            if seen is not None and seen.epoch == before.epoch:
                old, new = before.layout, seen.layout
                if all(old.bits(digest) == new.bits(digest) for digest in digests):
                    return seen, found
        raise ClaimsUnavailableError("the buckets of claims move all the time")

    def _seen(self) -> Seen | None:
        found = self._asked(lambda: self._redis.hmget(self._buckets.meta, _FIELDS))
        epoch, *rest = found
        if not isinstance(epoch, bytes):
            return None
        old, new, cursor, unit_ms, ttl_ms = (int(each or 0) for each in rest)
        prefix = bucket_prefix(self._buckets.base, epoch)
        return Seen(epoch, prefix, Layout(old, new, cursor), unit_ms, ttl_ms)

    def _check_format(self) -> None:
        kept = self._asked(lambda: self._redis.get(self._buckets.base))
        if kept is not None:
            check_format(kept)

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error
