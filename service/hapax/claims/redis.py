"""The claim store in Redis (docs/design.md, claims).

One request claims a batch, by one script (redis_claim.lua): it finds which ids are claimed, and by
whom, and claims the others, in one step.

An id is reduced to 116 bits of BLAKE2b: two of n live ids share them with a probability below
n² / 2¹¹⁷ (6e-18 of 10⁹). The salt has the random epoch: no sender can choose digests.

Storage, all under the hash tag {app}, so that one slot of a cluster holds it:

    hapax:{app}:claims                                the format: "3"
    hapax:{app}:claims:meta                           epoch, generations, topics by number, cluster
    hapax:{app}:claims:<epoch>:<generation>:<shard>   digest → owner

- A generation takes the ids that are claimed in half of a time to live, by Redis' clock, and ends
  one and a half after its beginning: an id is remembered for one to one and a half times the time
  to live. Three are alive, of 16 hashes each, which the server grows by itself, step by step. One
  that is over is unlinked as a whole. Nothing is swept, divided or dated.
- An id is in one generation at most: a claim asks all of them, and writes into the newest.
- A longer time to live holds at once for all ids that are kept, a shorter one from the next
  generation on.
- A clock that is set back begins its future generations again; one that is set forward ends claims
  early, which each answer shows: it has the time.
- Keys end by themselves after two and a half times the time to live.
- The epoch is made at the first call. A store that was emptied has another one: the batch is
  claimed again in that, and ``on_emptied`` is called.
- The cluster is Kafka's id, written by the first call that knows it; a call of another one claims
  nothing, for coordinates name other records there.

Of a digest, 14 bytes name the id and 4 bits its shard; an owner has 14 as well: 3 of a topic's
number, 3 of the partition, 8 of the offset. A topic's number is a hash of its name: a failover that
loses the latest writes cannot give it to another topic.
Redis 6.2 is the oldest that works.
"""

from __future__ import annotations

import re
import secrets
import time
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import NoScriptError, RedisError

from hapax.claims.redis_connection import connect, is_away, place, unavailable
from hapax.claims.redis_health import Eviction, health_of, preflight
from hapax.core.errors import (
    ClaimsUnavailableError,
    ConfigurationError,
    OtherClusterError,
    other_cluster,
)
from hapax.core.ports import Claims, Owned, Preflight, StoreHealth
from hapax.core.record_path import DIGEST_BYTES, NUMBER_BYTES, PARTITION_BYTES, SIZE, ClaimRequest
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redis import Redis
    from redis.connection import Connection

    from hapax.claims.kind import StoreOptions

SCRIPT: Final = Path(__file__).with_name("redis_claim.lua")
FORMAT: Final = b"3"
_OTHER: Final = Struct(f">I{NUMBER_BYTES}s{PARTITION_BYTES}sQ")
"""An index, and the owner of its id."""
IDS_AT_ONCE: Final = 10_000
"""In one call of the script, some 20 ms of the server: it serves others in between."""
_TRIES = 20


class UnknownFormatError(ClaimsUnavailableError):
    """Another version of Hapax wrote the claims of this app in another format."""


class StoreClock:
    """Compares Redis' clock with the worker's: claims live by Redis' time alone.

    When it is set forward by more than what passed here, claims end early. A tenth of the time to
    live is worth a warning: an id is then remembered for so much less than promised.
    """

    def __init__(self, monotonic: Callable[[], float], ttl_ms: int) -> None:
        self.now = monotonic
        self._limit_s = ttl_ms / 1000 / 10
        self._last: tuple[float, int] | None = None

    def jump_s(self, asked_s: float, redis_ms: int) -> float:
        """Return by how many seconds Redis' clock jumped ahead since the call before; else 0.

        ``asked_s``: the worker's clock when the call began.
        """
        last, self._last = self._last, (asked_s, redis_ms)
        if last is None:
            return 0.0
        # From before the last call to after this one: more than can have passed between the two.
        passed_s = self.now() - last[0]
        jump_s = (redis_ms - last[1]) / 1000 - passed_s
        return jump_s if jump_s > self._limit_s else 0.0


class Store:
    """One app's claims as the last answer described them; what every call of the script needs.

    epoch    as of the last answer; None: nothing is known yet
    numbers  of the topics that were asked for, as they are in owners
    fresh    whether the first answer found no claims of this app
    keeps    raises where answers do not count: claims are deleted
    """

    def __init__(
        self, client: Redis, options: StoreOptions, clock: StoreClock, *, keeps: Callable[[], None]
    ) -> None:
        self.client, self.clock, self.keeps = client, clock, keeps
        self.base = base_key(options.app)
        self.meta = self.base + b":meta"
        self.script = client.register_script(SCRIPT.read_bytes())
        self.epoch: bytes | None = None
        self.salt = b""
        self.fresh = False
        self.cluster_id = options.cluster_id
        self.numbers: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._next_epoch = secrets.token_hex(8).encode()
        self._options = options

    def asked(self, call: Callable[[], Any]) -> Any:
        """Raise ClaimsUnavailableError for whatever fails."""
        try:
            return call()
        except (RedisError, OSError) as error:
            raise unavailable(self.client, error) from error

    def command(self, what: str) -> tuple[bytes | str | int, ...]:
        """Return a call of the script up to the digests."""
        call = ("EVALSHA", self.script.sha, 2, self.base, self.meta, what, self._options.ttl_ms)
        return (*call, self.epoch or b"", self._next_epoch, self.cluster_id or "")

    def numbered(self, topics: Iterable[str]) -> list[int | str]:
        """Return for each topic the number that stands for it, and its name."""
        parts: list[int | str] = []
        for topic in topics:
            number = self.numbers.setdefault(topic, first_number(topic))
            parts += [int.from_bytes(number, "big"), topic]
        return parts

    def take(self, reply: Any, topics: Sequence[str], asked_s: float) -> tuple[bytes, int] | None:
        """Return what was found, and a number; None: it was for another epoch, or wrong numbers.

        Raises UnknownFormatError and OtherClusterError: nothing was claimed.
        """
        check_format(reply[0])
        _, epoch, known, *rest = reply
        if not rest:
            claims = f"the claims of HAPAX_APP={self._options.app}"
            raise OtherClusterError(other_cluster(claims, known.decode(), self.cluster_id or ""))
        if not epoch:
            return b"", 0
        now_ms, numbers, *found = rest
        if epoch != self.epoch:
            self._begin(epoch)
        for topic, number in zip(topics, numbers, strict=True):
            self.numbers[topic] = number.to_bytes(NUMBER_BYTES, "big")
            self._names[self.numbers[topic]] = topic
        jump_s = self.clock.jump_s(asked_s, int(now_ms))
        if jump_s and self._options.on_clock_jump is not None:
            self._options.on_clock_jump(jump_s)
        return (found[0], int(found[1])) if found else None

    def _begin(self, epoch: bytes) -> None:
        before, self.epoch = self.epoch, epoch
        self.salt = salt_of(self._options.app, epoch)
        self.numbers.clear()
        self._names.clear()
        # Also when an earlier call began it and its answer was lost.
        is_begun = epoch == self._next_epoch
        if is_begun:
            self._next_epoch = secrets.token_hex(8).encode()
        if before is None:
            self.fresh = is_begun
        elif self._options.on_emptied is not None:
            self._options.on_emptied()

    def topic(self, number: bytes) -> str:
        """Return the topic that a number stands for, as owners have it."""
        if number not in self._names:
            name = f"number:{int.from_bytes(number, 'big')}"
            found = self.asked(lambda: self.client.hget(self.meta, name))
            self._names[number] = found.decode() if found else f"topic {name}"
        return self._names[number]


def base_key(app: str) -> bytes:
    return f"hapax:{{{app}}}:claims".encode()


def salt_of(app: str, epoch: bytes) -> bytes:
    return blake2b(app.encode() + b"\0" + epoch, digest_size=16).digest()


def check_format(kept: bytes) -> None:
    """Raise UnknownFormatError unless it is the format of this version."""
    if kept != FORMAT:
        raise UnknownFormatError(
            f"Redis keeps the claims of this app in format {kept.decode(errors='replace')!r}, which"
            " this version of Hapax does not know: run the version that wrote them, or use another"
            " database"
        )


class Exchange:
    """A request on its way, on a connection that it has for itself: other calls take others.

    So an answer that comes late, or that is not wanted any more, is not read as that of another
    call. What fails while it is sent is raised where its answer is read.
    """

    def __init__(self, client: Redis, commands: Sequence[tuple[object, ...]]) -> None:
        """Send the commands; it blocks only while the server takes in less than is sent."""
        self._client = client
        self._connection: Connection | None = None
        self._failed: Exception | None = None
        try:
            self._connection = client.connection_pool.get_connection()
            packed = self._connection.pack_commands(commands)  # type: ignore[no-untyped-call]
            self._connection.send_packed_command(packed)  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as error:
            self._failed = error
            self.drop()

    def read(self, count: int) -> list[Any]:
        """Return so many replies; raises NoScriptError and ClaimsUnavailableError.

        A connection that is not read to its end is dropped.
        """
        connection = self._connection
        if self._failed is not None or connection is None:
            error = self._failed or RuntimeError("an answer is read once")
            raise unavailable(self._client, error) from error
        try:
            replies = [connection.read_response() for _ in range(count)]
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            raise unavailable(self._client, error) from error
        else:
            self._connection = None
            self._client.connection_pool.release(connection)
            return replies
        finally:
            self.drop()

    def drop(self) -> None:
        """Give the answer up; after it was read, nothing is left to do."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]
            self._client.connection_pool.release(connection)

    def __del__(self) -> None:
        """Give a forgotten connection back."""
        self.drop()


class Found(NamedTuple):
    """What the script returned of all ids.

    others  by index the owners of ids that belong to another record
    extra   ms that an id is remembered ("find"); how many were forgotten ("forget")
    """

    others: dict[int, Coordinates]
    extra: int


class Request:
    """One call for any number of ids; ``ports.Asked``.

    wanted  without records where it is only asked who owns the ids
    """

    def __init__(self, store: Store, what: str, wanted: ClaimRequest) -> None:
        self._store = store
        self._what = what
        self._wanted = wanted
        self._topics = wanted.topics()
        self._exchange: Exchange | None = None
        self._orders: list[Sequence[int]] = []
        self._asked_s = 0.0

    def send_ahead(self) -> None:
        """Send it, unless the epoch is not known yet, for which the digests are made."""
        if self._wanted.ids and self._store.epoch is not None:
            self._send()

    def answer(self) -> Mapping[int, Coordinates]:
        """Return the owners of ids that others own; see ``ports.Asked.answer``."""
        if not self._wanted.ids:
            return {}
        found = self.found()
        self._store.keeps()
        return found.others

    def found(self) -> Found:
        """Raise ClaimsUnavailableError, and OtherClusterError: nothing was claimed then."""
        for _ in range(_TRIES):
            if self._exchange is None:
                self._send()
            if (found := self._received()) is not None:
                return found
        raise ClaimsUnavailableError("the epoch of the claims changes all the time")

    def drop(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.drop()

    def _send(self) -> None:
        store = self._store
        self._asked_s = store.clock.now()
        topics = store.numbered(self._topics)
        digests = owners = gone = b""
        if store.epoch is not None:
            digests = self._wanted.digests(store.salt)
            owners = self._wanted.packed_owners(store.numbers)
            gone = self._wanted.packed_gone(store.numbers)
        head = store.command(self._what)
        self._orders, commands = [], []
        for first in self._pieces():
            ids = slice(first * DIGEST_BYTES, (first + IDS_AT_ONCE) * DIGEST_BYTES)
            of = slice(first * SIZE, (first + IDS_AT_ONCE) * SIZE)
            order, counts, *packed = self._wanted.by_shard(digests[ids], owners[of], gone[of])
            self._orders.append(order)
            commands.append((*head, " ".join(map(str, counts)), *packed, *topics))
        self._exchange = Exchange(store.client, commands)

    def _pieces(self) -> range:
        return range(0, max(1, len(self._wanted.ids)), IDS_AT_ONCE)

    def _received(self) -> Found | None:
        """Return what was found; None: ask again, for another epoch or other numbers."""
        exchange, self._exchange = self._exchange, None
        assert exchange is not None
        pieces = self._pieces()
        try:
            replies = exchange.read(len(pieces))
        except NoScriptError:
            store = self._store
            store.asked(lambda: store.client.script_load(store.script.script))
            return None
        others: dict[int, Coordinates] = {}
        extra, is_whole = 0, True
        for first, order, reply in zip(pieces, self._orders, replies, strict=True):
            found = self._store.take(reply, self._topics, self._asked_s)
            if found is None:
                is_whole = False
                continue
            packed, number = found
            others |= {
                first + order[place]: Coordinates(
                    self._store.topic(topic), int.from_bytes(partition, "big"), offset
                )
                for place, topic, partition, offset in _OTHER.iter_unpack(packed)
            }
            extra += int(number)
        return Found(others, extra) if is_whole else None


def first_number(topic: str) -> bytes:
    """Return the number that a topic has unless another one has it already."""
    return blake2b(topic.encode(), digest_size=NUMBER_BYTES).digest()


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

    def ask(self, wanted: ClaimRequest) -> Request:
        wanted.require_pairs()
        request = Request(self._store, "claim", wanted)
        request.send_ahead()
        return request

    def ping(self) -> None:
        """Return when the store takes claims and keeps them; else raise ClaimsUnavailableError.

        Where it deletes them, its answers count for nothing until a later call finds it keeps them.
        All commands are tried out: one that answers may still refuse writes, or this user.
        """
        self._store.asked(lambda: self._eviction.look(place(self._redis)))
        Request(self._store, "try", ClaimRequest()).found()

    def check(self) -> Preflight:
        """See ``ClaimStore``; a worker that starts during an outage must not leave for it."""
        try:
            found = preflight(self._redis)
        except (RedisError, OSError) as error:
            if is_away(error):
                raise unavailable(self._redis, error) from error
            return Preflight([f"{unavailable(self._redis, error)}."], [])
        try:
            Request(self._store, "try", ClaimRequest()).found()
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
        found = Request(self._store, "find", ClaimRequest([claim])).found()
        return Owned(found.others[0], found.extra) if found.others else None

    def forget(self, claim: bytes) -> bool:
        return bool(Request(self._store, "forget", ClaimRequest([claim])).found().extra)

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        claims, owners = [claim for claim, _ in owned], [owner for _, owner in owned]
        wanted = ClaimRequest(claims, owners)
        return Request(self._store, "forget", wanted).found().extra if owned else 0

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
