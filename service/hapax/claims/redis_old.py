"""The format of claims before this one: segments of time, and a script for each batch.

Called by claims/redis.py for apps whose store still holds it (``hapax claims migrate`` moves the
claims). Nothing new begins in it. All under the hash tag {app}:

    hapax:{app}:claims                     epoch, live segments, topics by number, cluster
    hapax:{app}:claims:<epoch>:<n>:<bits>  a bucket of segment n: rest of the digest → owner

- An owner is topic number, partition, offset. Topic numbers live and die with the epoch.
- Buckets expire as a whole, at a time set when a bucket is made. A segment is a time slice: it
  takes ids for one TTL and lives for two, and two segments are looked up.
- A segment begins with 2¹⁴ buckets. When they fill up, the next one has four times as many.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoScriptError, RedisError

from hapax.claims.redis_connection import unavailable
from hapax.claims.redis_exchange import Exchange
from hapax.claims.redis_old_desk import ClaimAdmin
from hapax.claims.redis_packing import (
    TOPICS_AT,
    command,
    pack_owners,
    stored_topic,
    unpack_foreign,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redis import Redis
    from redis.connection import Connection

    from hapax.claims.redis_canary import Canary
    from hapax.claims.redis_claim import IdBatch
    from hapax.core.ports import Asked
    from hapax.core.records import Coordinates

Reply = tuple[float, Any]
"""Our time before a call of the script, and what it returned."""
SCRIPT: Final = Path(__file__).with_name("redis_old.lua")


class OldClaims(ClaimAdmin):
    """Claims in segments. Raises ClaimsUnavailableError and OtherClusterError."""

    def __init__(
        self,
        client: Redis,
        base: bytes,
        ttl_ms: int,
        canary: Canary,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Send nothing yet."""
        self._redis = client
        self._meta = base
        self._ttl_ms = ttl_ms
        self._canary = canary
        self._topic_ids = topic_ids
        self._script = client.register_script(SCRIPT.read_bytes())

    def claim(self, batch: IdBatch) -> Mapping[int, Coordinates]:
        """Claim a batch."""
        return self._settled(self._call(*self._args(batch)))

    def ask(self, batch: IdBatch) -> Asked:
        """Send the request of ``claim``."""
        args = self._args(batch)
        packed = command("EVALSHA", self._script.sha, 1, self._meta, *args)
        asked_s = self._canary.clock.now()

        def settled(reply: Any) -> Mapping[int, Coordinates]:
            if reply is None:
                return self._settled(self._call(*args))
            return self._settled((asked_s, reply))

        return _Asked(Exchange(self._redis, packed), settled)

    def _args(self, batch: IdBatch) -> list[bytes | str | int]:
        offsets, runs, topics = pack_owners(batch.owners)
        gone_offsets, gone_runs, more = pack_owners(batch.gone, first_topic=TOPICS_AT + len(topics))
        names = [stored_topic(topic, self._topic_ids.get(topic)) for topic in (*topics, *more)]
        digests, here = b"".join(batch.digests), self._canary.cluster_id or ""
        head = (self._ttl_ms, self._canary.next_epoch, digests, offsets, runs, here)
        return [*head, gone_offsets, gone_runs, *names]

    def _call(self, *args: bytes | str | int) -> Reply:
        asked_s = self._canary.clock.now()
        try:
            return asked_s, self._script(keys=[self._meta], args=args)
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error

    def _settled(self, reply: Reply) -> dict[int, Coordinates]:
        asked_s, (epoch, foreign, names, cluster, now_ms) = reply
        self._canary.check_cluster(cluster)
        self._canary.notice(epoch)
        self._canary.notice_time(asked_s, int(now_ms))
        return dict(unpack_foreign(foreign, names)) if foreign else {}


class _Asked:
    """A claim on its way; see ``ports.Asked``. ``settled`` turns what was read into its answer."""

    def __init__(
        self, exchange: Exchange, settled: Callable[[Any], Mapping[int, Coordinates]]
    ) -> None:
        self._exchange = exchange
        self._settled = settled

    def answer(self) -> Mapping[int, Coordinates]:
        return self._settled(self._exchange.read(_script_answer))

    def drop(self) -> None:
        self._exchange.drop()


def _script_answer(connection: Connection) -> Any:
    """Return what the script answered; None: Redis does not know it any more."""
    try:
        return connection.read_response()
    except NoScriptError:
        return None
