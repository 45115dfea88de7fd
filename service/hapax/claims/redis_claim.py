"""One batch of claims on its way through the buckets.

A round is one request: HSETNX for ids that may be new, HGET for ids that are claimed already, and
the script that reports whether these commands met the store as it was taken to be. Where they did
not, the ids concerned go into the next round; a claim that went to a place that does not count any
more is of no harm, because nothing reads it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import NoScriptError

from hapax.claims.redis_exchange import Exchange, Replies, without
from hapax.claims.redis_layout import (
    DATE_BYTES,
    age,
    date,
    get,
    owner_coordinates,
    owner_texts,
    place,
    setnx,
    topics_of,
)
from hapax.claims.redis_native import Digests, Owners, is_uniform, moved, native_setnx
from hapax.core.errors import ClaimsUnavailableError, OtherClusterError
from hapax.core.record_path import RecordPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redis.connection import Connection

    from hapax.claims.redis_buckets import Buckets, World
    from hapax.core.records import Coordinates, Record

ROUNDS_MAX: Final = 20
"""Two are the rule where ids are known; more mean that others change the same claims meanwhile."""
REPLACED_AT_ONCE: Final = 2_000
_NEW, _KNOWN = b"10"


class IdBatch(NamedTuple):
    """Ids as digests, their owners, and for each nothing or an owner that owns nothing any more."""

    digests: Sequence[bytes]
    owners: Sequence[Record | Coordinates]
    gone: Sequence[Coordinates] = ()


class Round(NamedTuple):
    """What was sent: indices to claim and to look up, on what assumption, with which date."""

    sets: Sequence[int]
    gets: Sequence[int]
    world: World
    date: bytes
    reported: int
    asked_s: float


class Claim:
    """One call of ``claim``; ``ports.Asked``. Nothing is sent before ``send``."""

    def __init__(self, buckets: Buckets, batch: IdBatch) -> None:
        self._buckets = buckets
        self._batch = batch
        self._topics = topics_of((*batch.owners, *batch.gone) if batch.gone else batch.owners)
        self._exchange: Exchange | None = None
        self._round: Round
        self._foreign: dict[int, bytes] = {}
        self._undated: set[int] = set()
        self._vain: list[tuple[int, bytes, bytes, bytes]] = []
        self._owners: Sequence[bytes] = []
        self._gone: list[bytes] = []
        self._restart()

    def send_if_prepared(self) -> None:
        """Send the first round unless something has to be asked before; that is left to answer."""
        world = self._buckets.prepared(self._topics)
        if world is not None:
            self._send(world)

    def answer(self) -> Mapping[int, Coordinates]:
        """Return the owners of ids that others own; see ``ports.Claims.claim``."""
        for _ in range(ROUNDS_MAX):
            if not self._sets and not self._gets:
                self._clean()
                self._buckets.keeps()
                return {
                    index: owner_coordinates(owner, self._buckets.topic)
                    for index, owner in sorted(self._foreign.items())
                }
            if self._exchange is None:
                topics = self._topics
                self._send(self._buckets.prepared(topics) or self._buckets.prepare(topics))
            self._receive()
        raise ClaimsUnavailableError("the same claims change all the time")

    def drop(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.drop()

    def _restart(self) -> None:
        self._sets: Sequence[int] = range(len(self._batch.digests))
        self._gets: Sequence[int] = []
        if self._buckets.own:
            self._sets, self._gets = self._gets, self._sets
        self._foreign.clear()
        self._owners = []

    def _send(self, world: World) -> None:
        buckets = self._buckets
        if not self._owners:
            self._owners = _owner_texts(self._batch.owners, buckets.numbers)
            self._gone = owner_texts(self._batch.gone, buckets.numbers)
        today = buckets.date().to_bytes(DATE_BYTES, "big")
        self._round = Round(
            self._sets, self._gets, world, today, buckets.unreported, buckets.canary.clock.now()
        )
        digests, owners, everything = self._batch.digests, self._owners, len(self._owners)
        if len(self._sets) < everything:
            owners = [owners[index] for index in self._sets]
            digests = [digests[index] for index in self._sets]
        request: bytes | None = None
        if isinstance(digests, Digests) and isinstance(owners, Owners):
            request = native_setnx(world.prefix, world.left, digests, owners, today)
        if request is None:
            values = [today + owner for owner in owners]
            request = setnx(world.prefix, world.left, digests, values)
        if self._gets:
            asked = [self._batch.digests[index] for index in self._gets]
            request += get(world.prefix, world.left, asked)
        self._exchange = Exchange(buckets.client, request, buckets.turn(self._topics))

    def _receive(self) -> None:
        sent, exchange, self._exchange = self._round, self._exchange, None
        assert exchange is not None

        def read(connection: Connection) -> tuple[bytearray, list[Any], Any]:
            replies = Replies(connection)
            made = bytearray(replies.numbers(len(sent.sets)))
            found = replies.values(len(sent.gets))
            try:
                return made, found, replies.value()
            except NoScriptError:
                return made, found, None

        made, found, reply = exchange.read(read)
        numbers = dict(self._buckets.numbers)
        try:
            world = self._taken(reply)
        except OtherClusterError:
            self._undo(made)
            raise
        if world.epoch != sent.world.epoch:
            self._in_vain(index for index, one in zip(sent.sets, made, strict=True) if one == _NEW)
            self._restart()
        elif any(self._buckets.numbers[topic] != numbers[topic] for topic in self._topics):
            self._undo(made)
            self._restart()
        else:
            self._judge(world, made, found)

    def _taken(self, reply: Any) -> World:
        """Return what the script found; it is called apart where Redis forgot it."""
        buckets, sent = self._buckets, self._round
        if reply is None:
            met = buckets.prepare(self._topics)
        else:
            met = buckets.take(reply, self._topics, sent.reported, sent.asked_s)
        if buckets.prepared(self._topics) is None:
            buckets.prepare(self._topics)
        return met

    def _judge(self, world: World, made: bytearray, found: list[Any]) -> None:
        sets, gets = self._round.sets, self._round.gets
        known: list[int] = []
        unknown: list[int] = []
        if gone := self._moved(world):
            # What moved meanwhile was asked for in a place that does not count any more.
            sets, answers = without(sets, made, gone)
            self._in_vain(index for index, one in answers if one == _NEW)
            gets, lost = without(gets, found, gone)
            unknown = [index for index, _ in (*answers, *lost)]
        new: Sequence[int] = sets
        if b"0" in made:
            new = [index for index, one in zip(sets, made, strict=True) if one == _NEW]
            known = [index for index, one in zip(sets, made, strict=True) if one == _KNOWN]
        self._buckets.unreported += len(new)
        self._expect(len(new) + found.count(None), len(known) + len(found) - found.count(None))
        changes = self._late(world, new)
        for index, value in zip(gets, found, strict=True):
            if value is None:
                unknown.append(index)
            elif self._replaceable(world, index, value):
                changes.append((index, value))
            elif not self._is_mine(index, value):
                self._foreign[index] = value[DATE_BYTES:]
        self._sets, self._gets = sorted(unknown), known
        for at in range(0, len(changes), REPLACED_AT_ONCE):
            self._change(changes[at : at + REPLACED_AT_ONCE])

    def _expect(self, new: int, known: int) -> None:
        """Ask for owners first as long as most ids are known, as after a restart."""
        if len(self._round.sets) + len(self._round.gets) == len(self._batch.digests):
            self._buckets.own = known > new

    def _moved(self, world: World) -> set[int]:
        sent, digests = self._round, self._batch.digests
        left, met = sent.world.left, world.met
        if left.agrees(met):
            return set()
        found = moved(digests, left, met) if isinstance(digests, Digests) else None
        if found is None:
            asked = (*sent.sets, *sent.gets)
            found = [i for i in asked if left.bits(digests[i]) != met.bits(digests[i])]
        return set(found)

    def _is_mine(self, index: int, value: bytes) -> bool:
        return value[DATE_BYTES:] == self._owners[index]

    def _late(self, world: World, new: Sequence[int]) -> list[tuple[int, bytes]]:
        """Return those of the new claims that were made later than their date says."""
        today, then = date(world.now_ms, world.unit_ms), self._round.date
        if age(today, int.from_bytes(then, "big")) <= 1:
            return []
        self._undated.update(new)
        return [(index, then + self._owners[index]) for index in new]

    def _replaceable(self, world: World, index: int, value: bytes) -> bool:
        """Whether a claim gives way: it is over, its owner is gone, or its date is too early."""
        owner = value[DATE_BYTES:]
        then = int.from_bytes(value[:DATE_BYTES], "big")
        units = age(date(world.now_ms, world.unit_ms), then)
        if units > -(-world.ttl_ms // world.unit_ms) + 1:
            return True
        if self._is_mine(index, value):
            return index in self._undated and units > 1
        return bool(self._gone) and owner == self._gone[index]

    def _change(self, changes: Sequence[tuple[int, bytes]]) -> None:
        """Replace claims, unless they are others by now; then query them again."""
        buckets = self._buckets
        world = buckets.world
        assert world is not None
        today = date(world.now_ms, world.unit_ms).to_bytes(DATE_BYTES, "big")
        others = buckets.replace(
            world, [(*self._place(world, i), old, today + self._owners[i]) for i, old in changes]
        )
        again = [index for index, _ in changes]
        if others is not None:
            again = [index for index, other in zip(again, others, strict=True) if other]
        self._gets = sorted([*self._gets, *again])

    def _in_vain(self, indices: Iterable[int]) -> None:
        sent, world = self._round, self._round.world
        self._vain += [
            (index, *self._place(world, index), sent.date + self._owners[index])
            for index in indices
        ]

    def _clean(self) -> None:
        """Delete by a script that compares the layout: these places still do not count then."""
        while self._vain:
            some = self._vain[:REPLACED_AT_ONCE]
            world = self._buckets.world
            assert world is not None
            items = [
                (key, field, value, b"")
                for index, key, field, value in some
                if (key, field) != self._place(world, index)
            ]
            if self._buckets.replace(world, items) is None:
                self._buckets.prepare(self._topics)
            else:
                del self._vain[:REPLACED_AT_ONCE]

    def _undo(self, made: bytearray) -> None:
        """Take back the claims of the last round: they were made for a wrong owner."""
        sent, world = self._round, self._round.world
        items = [
            (*self._place(world, index), sent.date + self._owners[index], b"")
            for index, one in zip(sent.sets, made, strict=True)
            if one == _NEW
        ]
        for at in range(0, len(items), REPLACED_AT_ONCE):
            self._buckets.replace(world, items[at : at + REPLACED_AT_ONCE])

    def _place(self, world: World, index: int) -> tuple[bytes, bytes]:
        digest = self._batch.digests[index]
        return place(world.prefix, world.left.bits(digest), digest)


def _owner_texts(
    owners: Sequence[Record | Coordinates], numbers: Mapping[str, bytes]
) -> Sequence[bytes]:
    if isinstance(owners, RecordPath) and is_uniform(owners):
        return Owners(owners, numbers)
    return owner_texts(owners, numbers)
