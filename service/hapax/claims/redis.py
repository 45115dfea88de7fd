"""The claim store in Redis (docs/design.md, claims).

One request claims a batch: an HSETNX for each id, and a script at the end (redis_turn.lua). Most
ids are new, and then an answer is 4 bytes; for those that exist a second request asks who owns
them. HSETNX decides alone, so the script is not on the way of an id: a third of its cost.

Exactness. An id is reduced to 128 bits of BLAKE2b, salted with the app. Two of n live ids share
them with a probability below n² / 2¹²⁹: for a thousand million ids 1.5e-21. Nothing else decides.

Storage, all under the hash tag {app}, so that one slot of a cluster holds it:

    hapax:{app}:claims       the format: "2"
    hapax:{app}:claims:meta  epoch, layout of the buckets, topics by number, cluster
    hapax{app}<epoch><bits>  a bucket: rest of the digest → date, owner

- A date is the time of a claim in parts of the TTL, by Redis' clock as the last answer had it. The
  answer shows whether it was right; a claim with a date that was too early gets another one.
- Buckets are small hashes, which Redis keeps as one packed list. A cursor sweeps all of them once
  in a TTL, a few with each request: what is older than the TTL is deleted, so that an id is
  remembered for one to two TTLs, and the bucket lives for four more, so that nothing outlives an
  app that is gone. An id that is met when it is over gives way at once.
- All buckets exist before the first claim: HSETNX would make one that never ends. The answer says
  until when they do, and no claim is sent later than that.
- 16,384 buckets at first, 2 MB: dividing costs Redis as much as claims do, and most stores need
  none. With 24 ids a bucket each is divided in two, below 5 two become one, by the script, a few
  with each request. A request is packed for the layout that the last answer had. Where its script
  met another one, ids whose bucket that concerns are claimed again: a claim counts only where it
  was in the bucket that counted when the request ended.
- An owner is topic number, partition, offset, in 8 bytes or a few more. A topic's number is a hash
  of it, so that a failover cannot give it to another topic while claims are on their way.
- The epoch is the canary, made at the first call. When the store was emptied (FLUSHALL, empty
  restart, failover to an empty replica) the script has another one: the batch is claimed again in
  that, and ``on_emptied`` is called.
- The cluster is Kafka's id of the brokers that coordinates belong to: at another cluster they name
  other records. The first call that knows it writes it; a call of another one claims nothing.

Time is Redis' own. Redis 6.2 is the oldest that works.
"""

from __future__ import annotations

import re
import time
from hashlib import blake2b
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from hapax.claims.redis_buckets import Buckets, Canary, StoreClock, UnknownFormatError
from hapax.claims.redis_claim import Claim, IdBatch
from hapax.claims.redis_connection import Tls, connect, is_away, place, unavailable
from hapax.claims.redis_desk import BucketDesk
from hapax.claims.redis_health import Eviction, health_of, preflight
from hapax.claims.redis_layout import DIGEST_BYTES
from hapax.claims.redis_native import Digests
from hapax.core.claim_store import Owned, Preflight, StoreHealth
from hapax.core.errors import (
    ClaimsUnavailableError,
    ConfigurationError,
    OtherClusterError,
)
from hapax.core.record_path import Ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.claims.kind import StoreOptions
    from hapax.core.ports import Asked
    from hapax.core.records import Coordinates, Record


class RedisClaims:
    """Claims in one Redis, in the primary that sentinels name, or in one node of a cluster.

    salt  of the digests: 16 bytes
    """

    def __init__(
        self,
        url: str,
        options: StoreOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        app = options.app
        if not re.fullmatch(r"[A-Za-z0-9._-]+", app):
            raise ConfigurationError([f"The app {app!r} cannot name keys in Redis."])
        self._base = f"hapax:{{{app}}}:claims".encode()
        self._redis = connect(
            url,
            key=self._base,
            tls=Tls(*options.tls),
            current=options.current,
            connect_timeout_s=options.connect_timeout_s,
            answer_timeout_s=options.answer_timeout_s,
        )
        self.salt = blake2b(app.encode(), digest_size=16).digest()
        self._salted = blake2b(digest_size=DIGEST_BYTES, salt=self.salt)
        self._canary = Canary(options, StoreClock(monotonic, options.ttl_ms))
        self._eviction = Eviction(self._redis, options.on_look)
        self._buckets = Buckets(
            self._redis,
            self._base,
            options.ttl_ms,
            self._canary,
            keeps=self._eviction.vouch,
        )
        self._desk = BucketDesk(self._buckets)

    @property
    def fresh(self) -> bool:
        """Whether the first call of this client found no claims of this app.

        It is the app's first start, or the store was emptied while no worker ran. A group with
        committed offsets shows which.
        """
        return self._canary.fresh

    @property
    def cluster_id(self) -> str | None:
        """Kafka's id of the cluster that offsets belong to; None: not known, not compared."""
        return self._canary.cluster_id

    @cluster_id.setter
    def cluster_id(self, value: str | None) -> None:
        self._canary.cluster_id = value

    def claim(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Mapping[int, Coordinates]:
        """Claim all ids, see ``ports.Claims``: one round trip, or two where ids are known.

        A record that is twice in one batch, or two replays of one original, have the same
        owner: both belong to the caller, as they would be in two batches. Raises
        OtherClusterError when the claims are of another Kafka cluster; nothing is claimed then.
        """
        return self._asked(ids, records, replays, gone).answer()

    def ask(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
    ) -> Asked:
        return self._asked(ids, records, replays, ())

    def _asked(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates],
    ) -> Asked:
        if len(ids) != len(records):
            raise ValueError(f"{len(ids)} ids for {len(records)} records")
        if gone and len(gone) != len(ids):
            raise ValueError(f"{len(ids)} ids for {len(gone)} owners")
        owners: Sequence[Record | Coordinates] = records
        if replays:
            owners = [replays.get(index, record) for index, record in enumerate(records)]
        claim = Claim(self._buckets, IdBatch(self._split(ids), owners, gone))
        if ids:
            claim.send_if_prepared()
        return claim

    def _split(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        if isinstance(ids, Ids):
            return Digests(ids, self.salt)
        digests = self._digests(ids)
        return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]

    def ping(self) -> None:
        """Return when the store answers and keeps claims; else raise ClaimsUnavailableError.

        Where it deletes them, its answers count for nothing until a later call finds it keeps them.
        """
        try:
            self._eviction.look(place(self._redis))
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error

    def check(self) -> Preflight:
        """Find what is wrong with the server, by asking it and by trying out every permission.

        Raises ClaimsUnavailableError when it is only away: that is what the outage policy is for,
        and a worker that starts during an outage must not leave for it.
        """
        try:
            found = preflight(self._redis)
        except (RedisError, OSError) as error:
            if is_away(error):
                raise unavailable(self._redis, error) from error
            return Preflight([f"{unavailable(self._redis, error)}."], [])
        try:
            self._buckets.prepare((), probe=True)
        except OtherClusterError as error:
            found.problems.append(str(error))
        except UnknownFormatError as error:
            found.problems.append(f"{error}.")
        except ClaimsUnavailableError as error:
            if error.__cause__ is None or is_away(error.__cause__):
                raise
            found.problems.append(f"{error}.")
        return found

    def health(self) -> StoreHealth:
        return health_of(self._redis, self._base.decode())

    def close(self) -> None:
        """Drop the connection. A later call would open it again."""
        self._redis.close()

    def owner(self, claim: bytes) -> Owned | None:
        return self._desk.owner(self._digests([claim]))

    def forget(self, claim: bytes) -> bool:
        return self._desk.forget(self._digests([claim]))

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        """See ``ports.Claims``; a thousand of them in one round trip."""
        return self._desk.release([(self._digests([each]), owner) for each, owner in owned])

    def cluster(self) -> str | None:
        return self._desk.cluster()

    def adopt(self) -> str | None:
        return self._desk.adopt()

    def _digests(self, ids: Sequence[bytes]) -> bytes:
        # A copy of a salted hash costs half of what a new one does.
        copy = self._salted.copy
        digests = []
        for each in ids:
            digest = copy()
            digest.update(each)
            digests.append(digest.digest())
        return b"".join(digests)
