"""The claim store in Redis (docs/design.md, claims).

One request claims a batch, by one script (redis_claim.lua): it finds which ids are claimed, and by
whom, and claims the others, in one step.

Exactness. An id is reduced to 116 bits of BLAKE2b. Two of n live ids share them with a probability
below n² / 2¹¹⁷: for a thousand million ids 6e-18. Nothing else decides. The salt is the app and
the epoch, which is random: no sender can choose ids whose digests are alike in any part.

Storage, all under the hash tag {app}, so that one slot of a cluster holds it:

    hapax:{app}:claims                                the format: "3"
    hapax:{app}:claims:meta                           epoch, generations, topics by number, cluster
    hapax:{app}:claims:<epoch>:<generation>:<shard>   digest → owner

- A generation takes the ids that are claimed in half of a time to live, by Redis' clock, and ends
  one and a half after its beginning: an id is remembered for one to one and a half times the time
  to live. Three are alive, of 16 hashes each, which the server grows by itself, step by step. One
  that is over is unlinked as a whole. Nothing is swept, divided or dated.
- An id is in one generation at most: a claim asks all of them, and writes into the newest.
- A longer time to live holds at once for all ids that are still there, a shorter one from the next
  generation on, which begins as soon as its ids may not be in the one before.
- A clock that is set back begins its future generations again, so that they end, too; one that is
  set forward ends claims early, which is seen because each answer has the time.
- Keys end by themselves two and a half times the time to live after their generation began, so that
  nothing outlives an app that is gone but its format and its epoch.
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
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from hapax.claims.redis_connection import connect, is_away, place, unavailable
from hapax.claims.redis_health import Eviction, health_of, preflight
from hapax.claims.redis_script import (
    Request,
    Store,
    StoreClock,
    UnknownFormatError,
    base_key,
    check_format,
)
from hapax.core.claim_store import Owned, Preflight, StoreHealth
from hapax.core.errors import ClaimsUnavailableError, ConfigurationError, OtherClusterError
from hapax.core.ports import Claims

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.claims.kind import StoreOptions
    from hapax.core.records import Coordinates, Record


class RedisClaims(Claims):
    """Claims in one Redis, in the primary that sentinels name, or in one node of a cluster."""

    def __init__(
        self, url: str, options: StoreOptions, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", options.app):
            raise ConfigurationError(f"The app {options.app!r} cannot name keys in Redis.")
        self._redis = connect(
            url,
            key=base_key(options.app),
            tls=options.tls,
            current=options.current,
            connect_timeout_s=options.connect_timeout_s,
            answer_timeout_s=options.answer_timeout_s,
        )
        self._eviction = Eviction(self._redis, options)
        self._store = Store(
            self._redis, options, StoreClock(monotonic, options.ttl_ms), keeps=self._eviction.vouch
        )

    @property
    def fresh(self) -> bool:
        return self._store.fresh

    @property
    def cluster_id(self) -> str | None:
        return self._store.cluster_id

    @cluster_id.setter
    def cluster_id(self, value: str | None) -> None:
        self._store.cluster_id = value

    def ask(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Request:
        if len(ids) != len(records):
            raise ValueError(f"{len(ids)} ids for {len(records)} records")
        if gone and len(gone) != len(ids):
            raise ValueError(f"{len(ids)} ids for {len(gone)} owners")
        owners: Sequence[Record | Coordinates] = records
        if replays:
            owners = [replays.get(index, record) for index, record in enumerate(records)]
        request = Request(self._store, "claim", ids, owners, gone)
        request.send_ahead()
        return request

    def ping(self) -> None:
        """Return when the store takes claims and keeps them; else raise ClaimsUnavailableError.

        Where it deletes them, its answers count for nothing until a later call finds it keeps them.
        All commands are tried out: one that answers may still refuse writes, or this user.
        """
        self._store.asked(lambda: self._eviction.look(place(self._redis)))
        Request(self._store, "try").found()

    def check(self) -> Preflight:
        """See ``ClaimStore``; a worker that starts during an outage must not leave for it."""
        try:
            found = preflight(self._redis)
        except (RedisError, OSError) as error:
            if is_away(error):
                raise unavailable(self._redis, error) from error
            return Preflight([f"{unavailable(self._redis, error)}."], [])
        try:
            Request(self._store, "try").found()
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
        return health_of(self._redis, self._store.base.decode())

    def close(self) -> None:
        self._redis.close()

    def owner(self, claim: bytes) -> Owned | None:
        """See ``ClaimStore``: begins no epoch, so that a store that was emptied is seen as one."""
        found = Request(self._store, "find", [claim]).found()
        return Owned(found.others[0], found.extra) if found.others else None

    def forget(self, claim: bytes) -> bool:
        return bool(Request(self._store, "forget", [claim]).found().extra)

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        claims, owners = [claim for claim, _ in owned], [owner for _, owner in owned]
        return Request(self._store, "forget", claims, owners).found().extra if owned else 0

    def cluster(self) -> str | None:
        store = self._store
        kept = store.asked(lambda: self._redis.get(store.base))
        if kept is not None:
            check_format(kept)
        found = store.asked(lambda: self._redis.hget(store.meta, "cluster"))
        return found.decode() if isinstance(found, bytes) else None

    def adopt(self) -> str | None:
        before, here = self.cluster(), self._store.cluster_id or ""
        self._store.asked(lambda: self._redis.hset(self._store.meta, "cluster", here))
        return before
