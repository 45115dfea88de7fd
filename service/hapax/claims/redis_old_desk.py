"""What people ask of claims in the old format: who owns an id and for how long, and to forget it.

Called by OldClaims, whose storage it reads; see there. Claims of a running pipeline may change
between two of these calls; each call by itself is exact.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from hapax.claims.redis_connection import unavailable
from hapax.claims.redis_layout import HashField
from hapax.claims.redis_packing import topic_of, unpack_owner
from hapax.core.claim_store import Owned
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from redis import Redis

    from hapax.claims.redis_canary import Canary

_AT_ONCE = 1_000


class ClaimAdmin:
    """Looks single claims up. Raises ClaimsUnavailableError."""

    _redis: Redis
    _meta: bytes
    _canary: Canary

    def cluster(self) -> str | None:
        """Return the id of the Kafka cluster that the claims belong to; None: none was written."""
        try:
            found = self._redis.hget(self._meta, "cluster")
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error
        return found.decode() if isinstance(found, bytes) else None

    def adopt(self) -> str | None:
        """Let the claims belong to our cluster from now on; return the one before."""
        before = self.cluster()
        try:
            self._redis.hset(self._meta, "cluster", self._canary.cluster_id or "")
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error
        return before

    def owner(self, digest: bytes) -> Owned | None:
        """Return who owns it; None when no record does."""
        try:
            found = self._find(digest)
            if found is None:
                return None
            place, packed = found
            number, partition, offset = unpack_owner(packed)
            name = self._redis.hget(self._meta, f"number:{number}")
            life_ms = self._redis.pttl(place.key)
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error
        topic = topic_of(name) if isinstance(name, bytes) else f"topic {number}"
        return Owned(Coordinates(topic, partition, offset), max(0, int(life_ms)))

    def forget(self, digest: bytes) -> bool:
        """Forget the claim: the next record with this id is a first sighting. Whether it was."""
        try:
            found = self._find(digest)
            if found is None:
                return False
            place, _ = found
            return bool(self._redis.hdel(place.key, place.field))
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        """Forget those of the claims that belong to the coordinates beside them; return how many.

        Three round trips for all of them, a thousand at a time.
        """
        try:
            return sum(
                self._release(owned[at : at + _AT_ONCE]) for at in range(0, len(owned), _AT_ONCE)
            )
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error

    def _release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        epoch, segments = self._redis.hmget(self._meta, "epoch", "segments")
        if not isinstance(epoch, bytes) or not isinstance(segments, bytes):
            return 0
        now_ms, prefix = int(time.time() * 1000), self._meta + b":" + epoch
        asked = [
            (place, owner)
            for digest, owner in owned
            for place in places(prefix, segments, digest, now_ms)
        ]
        answers = self._redis.pipeline(transaction=False)
        for place, _ in asked:
            answers.hget(place.key, place.field)
        found = [
            (place, owner, unpack_owner(packed))
            for (place, owner), packed in zip(asked, answers.execute(), strict=True)
            if isinstance(packed, bytes) and packed
        ]
        topics = self._topics({number for _, _, (number, _, _) in found})
        gone = self._redis.pipeline(transaction=False)
        for place, owner, (number, partition, offset) in found:
            if Coordinates(topics[number], partition, offset) == owner:
                gone.hdel(place.key, place.field)
        return sum(gone.execute())

    def _topics(self, numbers: Collection[int]) -> dict[int, str]:
        if not numbers:
            return {}
        names = self._redis.hmget(self._meta, [f"number:{number}" for number in numbers])
        return {
            number: topic_of(name) if isinstance(name, bytes) else ""
            for number, name in zip(numbers, names, strict=True)
        }

    def _find(self, digest: bytes) -> tuple[HashField, bytes] | None:
        epoch, segments = self._redis.hmget(self._meta, "epoch", "segments")
        if not isinstance(epoch, bytes) or not isinstance(segments, bytes):
            return None
        now_ms = int(time.time() * 1000)
        for place in places(self._meta + b":" + epoch, segments, digest, now_ms):
            packed = self._redis.hget(place.key, place.field)
            if isinstance(packed, bytes) and packed:
                return place, packed
        return None


def places(prefix: bytes, segments: bytes, digest: bytes, now_ms: int) -> Iterator[HashField]:
    """Yield where a digest can stand, one place for each segment; see redis_old.lua.

    Segments that are over by our clock are skipped only when they are so by an hour: time is
    Redis' own, and a bucket that is gone answers nothing.
    """
    for text in segments.decode().split(","):
        number, bits, drop_ms = text.split()
        if int(drop_ms) + 3_600_000 < now_ms:
            continue
        whole, rest = divmod(int(bits), 8)
        masked = bytes([digest[whole] & (0xFF << (8 - rest)) & 0xFF]) if rest else b""
        key = b":".join((prefix, number.encode(), digest[:whole] + masked))
        yield HashField(key, digest[whole:])
