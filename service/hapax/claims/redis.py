"""The claim store in Redis (docs/design.md, claims; the script is redis.lua).

One script call claims a batch. Ids travel as one blob of digests, owners as one blob of offsets
and the runs of partitions they belong to: a Redis argument for each id would cost the client
several times as much.

Exactness. An id is reduced to 128 bits of BLAKE2b, salted with the app. Two of n live ids share
them with a probability below n² / 2¹²⁹: for a thousand million ids 1.5e-21. Nothing else decides.

Storage, all under the hash tag {app}, so that one slot of a cluster holds it:

    hapax:{app}:claims                     epoch, live segments, topics by number, cluster
    hapax:{app}:claims:<epoch>:<n>:<bits>  a bucket of segment n: rest of the digest → owner

- An owner is topic number, partition, offset in 7 bytes or a few more. Topic numbers live and die
  with the epoch; were they to outlive it, an owner could be read as another topic's, and a record
  would look foreign to itself. For the same reason the client keeps none: every call resolves them.
- Buckets are small hashes, which Redis keeps as one packed list (31 bytes an id against 160 as keys
  of their own). They expire as a whole, at a time set when a bucket is made.
- A segment is a time slice: it takes ids for one TTL and lives for two, so that an id is remembered
  for at least one TTL, and two segments are looked up. (Half the slice would save a sixth of the
  memory and cost a third look-up, about 2 us of server time an id.)
- A segment begins with 2¹⁴ buckets. When they fill up, the next one has four times as many, so
  that neither a small nor a large app has to set a number.
- The epoch is the canary, made at the first call. When the store was emptied (FLUSHALL, empty
  restart, failover to an empty replica) the next answer has another one, and ``on_emptied`` is
  called.

- The cluster is Kafka's id of the brokers that coordinates belong to: at another cluster they name
  other records. The first call that knows it writes it; a call of another one claims nothing.

Time is Redis' own. Redis 6.2 is the oldest that works.
"""

from __future__ import annotations

import re
import secrets
import time
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from hapax.claims.redis_admin import ClaimAdmin
from hapax.claims.redis_connection import Tls, connect, is_away, unavailable
from hapax.claims.redis_info import health_of, preflight
from hapax.claims.redis_packing import TOPICS_AT, pack_owners, stored_topic, unpack_foreign
from hapax.core.claim_store import Preflight, StoreHealth
from hapax.core.errors import (
    ClaimsUnavailableError,
    ConfigurationError,
    OtherClusterError,
    other_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.claims.kind import StoreOptions
    from hapax.core.records import Coordinates, Record

SCRIPT = Path(__file__).with_suffix(".lua")


class RedisClaims(ClaimAdmin):
    """Claims in one Redis, or in one node of a cluster.

    topic_ids   Kafka's id of each topic: a topic that was deleted and recreated is another
    """

    def __init__(
        self,
        url: str,
        options: StoreOptions,
        *,
        topic_ids: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to nothing yet."""
        app, ttl_ms = options.app, options.ttl_ms
        if not re.fullmatch(r"[A-Za-z0-9._-]+", app):
            raise ConfigurationError([f"The app {app!r} cannot name keys in Redis."])
        self._redis = connect(
            url,
            tls=Tls(*options.tls),
            connect_timeout_s=options.connect_timeout_s,
            answer_timeout_s=options.answer_timeout_s,
        )
        self._script = self._redis.register_script(SCRIPT.read_bytes())
        self._meta = f"hapax:{{{app}}}:claims".encode()
        self._salted = blake2b(digest_size=16, salt=blake2b(app.encode(), digest_size=16).digest())
        self._ttl_ms = ttl_ms
        self._topic_ids = topic_ids or {}
        self._on_emptied = options.on_emptied
        self._on_clock_jump = options.on_clock_jump
        self._clock = _Clock(monotonic, ttl_ms)
        self._app = app
        self.cluster_id = options.cluster_id
        self._epoch: bytes | None = None
        self._next_epoch = secrets.token_hex(4).encode()
        self.fresh = False
        """True when our first call found no claims of this app: it is its first start, or the
        store was emptied while no worker ran. A group with committed offsets shows which."""

    def claim(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Mapping[int, Coordinates]:
        """Claim all ids in one round trip; see ``ports.Claims``.

        A record that stands twice in one batch, or two replays of one original, have the same
        owner: both are ours, as they would be in two batches. Raises OtherClusterError when the
        claims belong to another Kafka cluster; nothing is claimed then.
        """
        if len(ids) != len(records):
            raise ValueError(f"{len(ids)} ids for {len(records)} records")
        if gone and len(gone) != len(ids):
            raise ValueError(f"{len(ids)} ids for {len(gone)} owners")
        if not ids:
            return {}
        owners: Sequence[Record | Coordinates] = records
        if replays:
            owners = [replays.get(index, record) for index, record in enumerate(records)]
        offsets, runs, topics = pack_owners(owners)
        gone_offsets, gone_runs, more = pack_owners(gone, first_topic=TOPICS_AT + len(topics))
        names = [stored_topic(topic, self._topic_ids.get(topic)) for topic in (*topics, *more)]
        return self._call(self._digests(ids), offsets, runs, gone_offsets, gone_runs, *names)

    def ping(self) -> None:
        """Return when the store answers; raise ClaimsUnavailableError when it does not."""
        try:
            self._redis.ping()
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
            self._call()
        except OtherClusterError as error:
            found.problems.append(str(error))
        except ClaimsUnavailableError as error:
            if error.__cause__ is not None and is_away(error.__cause__):
                raise
            found.problems.append(f"{error}.")
        return found

    def health(self) -> StoreHealth:
        """Return what the server says of itself, in seconds; see ``core.claim_store``."""
        return health_of(self._redis, self._app)

    def close(self) -> None:
        """Drop the connection. A later call would open it again."""
        self._redis.close()

    def _digests(self, ids: Sequence[bytes]) -> bytes:
        # A copy of a salted hash costs half of what a new one does.
        copy = self._salted.copy
        digests = []
        for each in ids:
            digest = copy()
            digest.update(each)
            digests.append(digest.digest())
        return b"".join(digests)

    def _call(
        self,
        ids: bytes = b"",
        offsets: bytes = b"",
        runs: bytes = b"",
        gone_offsets: bytes = b"",
        gone_runs: bytes = b"",
        *topics: str,
    ) -> dict[int, Coordinates]:
        here = self.cluster_id or ""
        args = (self._ttl_ms, self._next_epoch, ids, offsets, runs, here, gone_offsets, gone_runs)
        self._clock.begin()
        try:
            reply = self._script(keys=[self._meta], args=[*args, *topics])
        except (RedisError, OSError) as error:
            raise unavailable(self._redis, error) from error
        epoch, foreign, names, cluster, now_ms = reply
        if here and cluster and cluster != here.encode():
            raise OtherClusterError(
                other_cluster(f"the claims of HAPAX_APP={self._app}", cluster.decode(), here)
            )
        self._notice(epoch)
        jump_s = self._clock.end(int(now_ms))
        if jump_s and self._on_clock_jump is not None:
            self._on_clock_jump(jump_s)
        return dict(unpack_foreign(foreign, names)) if foreign else {}

    def _notice(self, epoch: bytes) -> None:
        before, self._epoch = self._epoch, epoch
        # Ours also when an earlier call began it and its answer was lost.
        begun = epoch == self._next_epoch
        if begun:
            self._next_epoch = secrets.token_hex(4).encode()
        if before is None:
            self.fresh = begun
        elif before != epoch and self._on_emptied is not None:
            self._on_emptied()


class _Clock:
    """Compares Redis' clock with ours: claims live by Redis' time alone.

    When it is set forward by more than what passed here, claims end early, all of them at two
    times their time to live, and no answer says so. A tenth of it is worth a word: an id is then
    remembered for so much less than promised.
    """

    def __init__(self, monotonic: Callable[[], float], ttl_ms: int) -> None:
        self._monotonic = monotonic
        self._limit_s = ttl_ms / 1000 / 10
        self._asked_s = 0.0
        self._last: tuple[float, int] | None = None

    def begin(self) -> None:
        """Take note that a call begins."""
        self._asked_s = self._monotonic()

    def end(self, redis_ms: int) -> float:
        """Return the seconds that Redis' clock jumped ahead since the last call; else 0."""
        last, self._last = self._last, (self._asked_s, redis_ms)
        if last is None:
            return 0.0
        # From before the last call to after this one: more than can have passed between the two.
        passed_s = self._monotonic() - last[0]
        jump_s = (redis_ms - last[1]) / 1000 - passed_s
        return jump_s if jump_s > self._limit_s else 0.0
