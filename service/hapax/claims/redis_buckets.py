"""The store as the last answer described it, and the script that ends every request.

Every answer also reports which store it is, whose claims it has, and its time: a jump of Redis'
clock ahead of the worker's ends claims early, and no answer says so.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import RedisError

from hapax.claims.redis_connection import unavailable
from hapax.claims.redis_layout import Layout, bucket_prefix, command, date
from hapax.core.errors import ClaimsUnavailableError, OtherClusterError, other_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redis import Redis

    from hapax.claims.kind import StoreOptions

NUMBER_BYTES: Final = 3
ENOUGH: Final = 1.1
"""Times to live that all buckets must still have for a claim; redis_turn.lua sees to a bit more."""
FORMAT: Final = b"2"


class Canary:
    """The epoch, the cluster and the clock, as the last answer had them.

    fresh       whether the first answer found no claims of this app
    next_epoch  what a store without an epoch is to begin
    """

    def __init__(self, options: StoreOptions, clock: StoreClock) -> None:
        self.app = options.app
        self.cluster_id = options.cluster_id
        self.fresh = False
        self.next_epoch = secrets.token_hex(4).encode()
        self.clock = clock
        self._epoch: bytes | None = None
        self._on_emptied = options.on_emptied
        self._on_clock_jump = options.on_clock_jump

    def check_cluster(self, known: bytes) -> None:
        """Raise OtherClusterError when the claims are of another Kafka cluster."""
        here = self.cluster_id or ""
        if here and known and known != here.encode():
            raise OtherClusterError(
                other_cluster(f"the claims of HAPAX_APP={self.app}", known.decode(), here)
            )

    def notice(self, epoch: bytes) -> None:
        before, self._epoch = self._epoch, epoch
        # This one also when an earlier call began it and its answer was lost.
        begun = epoch == self.next_epoch
        if begun:
            self.next_epoch = secrets.token_hex(4).encode()
        if before is None:
            self.fresh = begun
        elif before != epoch and self._on_emptied is not None:
            self._on_emptied()

    def notice_time(self, asked_s: float, redis_ms: int) -> None:
        """Take note of Redis' time; ``asked_s``: the worker's when the call began."""
        jump_s = self.clock.jump_s(asked_s, redis_ms)
        if jump_s and self._on_clock_jump is not None:
            self._on_clock_jump(jump_s)


class StoreClock:
    """Compares Redis' clock with the worker's: claims live by Redis' time alone.

    When it is set forward by more than what passed here, claims end early, all of them at two times
    their time to live. A tenth of it is worth a warning: an id is then remembered for so much less
    than promised.
    """

    def __init__(self, monotonic: Callable[[], float], ttl_ms: int) -> None:
        self._monotonic = monotonic
        self._limit_s = ttl_ms / 1000 / 10
        self._last: tuple[float, int] | None = None

    def now(self) -> float:
        return self._monotonic()

    def jump_s(self, asked_s: float, redis_ms: int) -> float:
        """Return by how many seconds Redis' clock jumped ahead since the call before; else 0."""
        last, self._last = self._last, (asked_s, redis_ms)
        if last is None:
            return 0.0
        # From before the last call to after this one: more than can have passed between the two.
        passed_s = self._monotonic() - last[0]
        jump_s = (redis_ms - last[1]) / 1000 - passed_s
        return jump_s if jump_s > self._limit_s else 0.0


TURN: Final = Path(__file__).with_name("redis_turn.lua")
REPLACE: Final = Path(__file__).with_name("redis_replace.lua")


class UnknownFormatError(ClaimsUnavailableError):
    """Another version of Hapax wrote the claims of this app in another format."""


class World(NamedTuple):
    """What the script returned.

    met         how the buckets were laid out when the commands before it ran; left: after it
    unit_ms     of dates
    alive_ms    until when every bucket exists
    now_ms      Redis' time; answered_s: the worker's when it came
    """

    epoch: bytes
    prefix: bytes
    met: Layout
    left: Layout
    unit_ms: int
    ttl_ms: int
    alive_ms: int
    now_ms: int
    answered_s: float


class Buckets:
    """One app's buckets. Raises ClaimsUnavailableError and OtherClusterError.

    world       as of the last answer; None: nothing is known yet
    numbers     of the topics that were asked for, as they are in owners
    unreported  ids that were new, for the script to count
    own         whether most ids of the last batch were claimed already, by their own records
    """

    def __init__(
        self,
        client: Redis,
        base: bytes,
        ttl_ms: int,
        canary: Canary,
        *,
        keeps: Callable[[], None],
    ) -> None:
        """Send nothing yet. ``keeps`` raises where answers do not count: claims are deleted."""
        self.keeps = keeps
        self.client = client
        self.canary = canary
        self.ttl_ms = ttl_ms
        self.base, self.meta = base, base + b":meta"
        self.world: World | None = None
        self.numbers: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}
        self.unreported = 0
        self.own = False
        self.script = client.register_script(TURN.read_bytes())
        self.replacing = client.register_script(REPLACE.read_bytes())

    def redis_ms(self) -> float:
        """Return Redis' time: that of the last answer, and what went by here since."""
        assert self.world is not None
        return self.world.now_ms + (self.canary.clock.now() - self.world.answered_s) * 1000

    def prepared(self, topics: Iterable[str]) -> World | None:
        """Return the world when a request may be sent on what is known; else None."""
        world = self.world
        if world is None or any(topic not in self.numbers for topic in topics):
            return None
        enough_ms = ENOUGH * max(world.ttl_ms, self.ttl_ms)
        return world if world.alive_ms - self.redis_ms() >= enough_ms else None

    def prepare(self, topics: Sequence[str], *, probe: bool = False) -> World:
        """Call the script until every bucket exists for long enough."""
        while True:
            asked_s = self.canary.clock.now()
            reported = self.unreported
            try:
                reply = self.script(
                    keys=[self.base, self.meta], args=self._args(topics, probe=probe)
                )
            except (RedisError, OSError) as error:
                raise unavailable(self.client, error) from error
            self.take(reply, topics, reported, asked_s)
            world = self.prepared(topics)
            if world is not None:
                return world

    def turn(self, topics: Sequence[str]) -> bytes:
        args = self._args(topics, probe=False)
        return command("EVALSHA", self.script.sha, 2, self.base, self.meta, *args)

    def take(self, reply: Any, topics: Sequence[str], reported: int, asked_s: float) -> World:
        """Return the world; ``reported``: how many new ids it got; ``asked_s``: the time before."""
        check_format(reply[0])
        self.canary.check_cluster(reply[2])
        _, epoch, _, met, left, facts, numbers = reply
        if self.world is None or self.world.epoch != epoch:
            self.numbers.clear()
        for topic, number in zip(topics, numbers, strict=True):
            self.numbers[topic] = number.to_bytes(NUMBER_BYTES, "big")
            self.names[self.numbers[topic]] = topic
        self.unreported -= reported
        unit_ms, ttl_ms, alive_ms, now_ms = map(int, facts.split())
        self.world = World(
            epoch,
            bucket_prefix(self.base, epoch),
            Layout(*map(int, met.split())),
            Layout(*map(int, left.split())),
            unit_ms,
            ttl_ms,
            alive_ms,
            now_ms,
            self.canary.clock.now(),
        )
        self.canary.notice(epoch)
        self.canary.notice_time(asked_s, now_ms)
        return self.world

    def date(self) -> int:
        assert self.world is not None
        return date(self.redis_ms(), self.world.unit_ms)

    def replace(
        self, world: World, items: Sequence[tuple[bytes, bytes, bytes, bytes]]
    ) -> list[bytes] | None:
        """Replace claims by comparison; see redis_replace.lua.

        ``items``: key, field, value that may be replaced, new one. Returns what it has
        instead, empty where it was replaced; None: the store is laid out in another way by now.
        """
        ends_ms = int(self.redis_ms()) + 2 * world.ttl_ms
        flat = [part for item in items for part in item]
        try:
            found = self.replacing(
                keys=[self.base, self.meta], args=[world.left.token(world.epoch), ends_ms, *flat]
            )
        except (RedisError, OSError) as error:
            raise unavailable(self.client, error) from error
        return None if found is None else list(found)

    def topic(self, number: bytes) -> str:
        """Return the topic that owners of this number are of; empty: nothing knows it any more."""
        if number not in self.names:
            name = f"number:{int.from_bytes(number, 'big')}"
            try:
                found = self.client.hget(self.meta, name)
            except (RedisError, OSError) as error:
                raise unavailable(self.client, error) from error
            if not isinstance(found, bytes):
                return ""
            self.names[number] = found.decode().partition("/")[0]
        return self.names[number]

    def _args(self, topics: Sequence[str], *, probe: bool) -> list[bytes | str | int]:
        args: list[bytes | str | int] = [self.ttl_ms, self.canary.next_epoch]
        args += [self.canary.cluster_id or "", self.unreported, int(probe)]
        for topic in topics:
            args += [first_number(topic), topic]
        return args


def check_format(kept: bytes) -> None:
    """Raise UnknownFormatError unless it is the format of this version."""
    if kept != FORMAT:
        raise UnknownFormatError(
            f"Redis keeps the claims of this app in format {kept.decode(errors='replace')!r}, which"
            " this version of Hapax does not know: run the version that wrote them, or use another"
            " database"
        )


def first_number(stored: str) -> int:
    """Return the number that a topic has unless another one has it already.

    It depends on the topic alone: a failover that loses the latest writes must not give the
    number of one topic to another while claims of the first are on their way.
    """
    return int.from_bytes(blake2b(stored.encode(), digest_size=NUMBER_BYTES).digest(), "big")
