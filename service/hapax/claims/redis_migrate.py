"""From the format of claims before to this one (``hapax claims migrate``). Called by redis.py.

First the store is closed: from then on a request in either format is an error, so that no claim
can be made behind the copy. Then all live claims are copied, and the store opens in the new
format. A next call continues what was broken off: a copy that exists already is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError

from hapax.claims.redis_buckets import MOVING
from hapax.claims.redis_claim import Claim, IdBatch
from hapax.claims.redis_connection import said, unavailable
from hapax.claims.redis_packing import unpack_owner
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

    from hapax.claims.redis_buckets import Buckets

_AT_ONCE: Final = 500
_CLOSE: Final = """
-- KEYS[1]  the format: a hash is the old one, and is kept under KEYS[2]. Returns whether it was.
local mark = redis.pcall('GET', KEYS[1])
if type(mark) ~= 'table' then return mark end
if not string.find(mark.err, 'WRONGTYPE', 1, true) then return mark end
redis.call('HSET', KEYS[2], unpack(redis.call('HGETALL', KEYS[1])))
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], 'moving')
return 'moving'
"""


def in_old_format(client: Redis, base: bytes) -> bool:
    """Return whether the store holds the old format; raises ClaimsUnavailableError."""
    try:
        mark = client.get(base)
    except (RedisError, OSError) as error:
        if "WRONGTYPE" in said(error):
            return True
        raise unavailable(client, error) from error
    if mark == b"moving":
        raise ClaimsUnavailableError(f"Redis cannot be asked: {MOVING}")
    return False


class Migration:
    """Moves the claims of one app. Raises ClaimsUnavailableError."""

    def __init__(self, buckets: Buckets) -> None:
        """Send nothing yet. ``buckets``: of this migration alone."""
        self._buckets = buckets
        self._redis = buckets.client
        self._kept = buckets.base + b":old"

    def run(self, tell: Callable[[int], None]) -> int | None:
        """Move all claims, telling how many were copied; None: there is nothing to move."""
        try:
            close = self._redis.register_script(_CLOSE)
            if close(keys=[self._buckets.base, self._kept], args=[]) != b"moving":
                return None
            return self._copy(tell)
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error

    def _copy(self, tell: Callable[[int], None]) -> int:
        fields: Any = self._redis.hgetall(self._kept)
        kept: dict[bytes, bytes] = fields
        canary, epoch = self._buckets.canary, kept.get(b"epoch", b"")
        if epoch:
            canary.next_epoch = epoch
        canary.cluster_id = kept.get(b"cluster", b"").decode() or None
        self._buckets.moving = True
        self._buckets.prepare(())
        copied, keys = 0, []
        for key, head in self._old_buckets(epoch, kept.get(b"segments", b"")):
            keys.append((key, head))
            if len(keys) == _AT_ONCE:
                copied += self._copy_buckets(keys, kept)
                keys.clear()
                tell(copied)
        copied += self._copy_buckets(keys, kept)
        self._redis.set(self._buckets.base, "2")
        self._drop(epoch, kept.get(b"segments", b""))
        self._redis.delete(self._kept)
        tell(copied)
        return copied

    def _old_buckets(self, epoch: bytes, segments: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield each bucket, oldest segment first, and the whole bytes of ids in its name."""
        for text in filter(None, segments.decode().split(",")):
            number, bits, _ = text.split()
            whole, rest = divmod(int(bits), 8)
            width = whole + (rest > 0)
            for index in range(2 ** int(bits)):
                name = (index << (width * 8 - int(bits))).to_bytes(width, "big")
                key = b"%b:%b:%b:%b" % (self._buckets.base, epoch, number.encode(), name)
                yield key, name[:whole]

    def _copy_buckets(self, keys: list[tuple[bytes, bytes]], kept: dict[bytes, bytes]) -> int:
        pipe = self._redis.pipeline(transaction=False)
        for key, _ in keys:
            pipe.hgetall(key)
        digests: list[bytes] = []
        owners: list[Coordinates] = []
        found: list[Any] = pipe.execute() if keys else []
        for (_, head), fields in zip(keys, found, strict=True):
            for field, packed in fields.items():
                if field and packed:
                    number, partition, offset = unpack_owner(packed)
                    # With the topic's id, as it is stored: its new number comes of both.
                    topic = kept.get(b"number:%d" % number, b"").decode()
                    digests.append(head + field)
                    owners.append(Coordinates(topic, partition, offset))
        if digests:
            Claim(self._buckets, IdBatch(digests, owners)).answer()
        return len(digests)

    def _drop(self, epoch: bytes, segments: bytes) -> None:
        """Delete the old buckets; those that are left by a crash end with their segment."""
        keys: list[bytes] = []
        for key, _ in self._old_buckets(epoch, segments):
            keys.append(key)
            if len(keys) == _AT_ONCE:
                self._redis.delete(*keys)
                keys.clear()
        if keys:
            self._redis.delete(*keys)
