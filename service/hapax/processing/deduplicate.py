"""Step 3, claim: whose is each id, and whether a duplicate of it may be dropped.

A claim names the record that was seen first. To drop another record with the same id is safe only
when that owner

- lies below the committed offset of its partition: it had its effect with that offset, unless this
  very process passed over it; or
- lies at or above it and can still be read there, as the event that was claimed: the reader of its
  partition meets its own coordinates and processes it.

An owner that is neither owns nothing, and its claim is taken over by the record that meets it. That
happens when a record is claimed, not committed, and then compacted away or deleted; when its topic
leaves the input topics; when its coordinates belong to another record, because the topic was
recreated, its log truncated, or the brokers are those of another cluster.

Passed over (``Unread``). Below the committed offset "processed" and "removed before it was read"
look alike. What a dead process had claimed and not committed lies within two batches of the offset
that was committed when its partition was assigned again. So the offsets from that one on that hold
no record are kept in memory, for two batches and as much again. A successor starts without them.

Cost. Owners in the batch itself, and those below what this process has committed or once queried,
are known without a request. Others cost a request for the group's committed offsets. Only those at
or above them are read, in parts: the thread also serves the group.

Order. The committed offsets are queried again *after* a record was found missing: its reader may
have committed it before. That answer is stable (KIP-447); the first one does not wait, for another
member has an offset pending most of the time. What remains: a member that read the owner before it
was removed and sends its offsets after this query gives the event a second effect
(docs/guarantees.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hapax.core.errors import BatchAbortedError, ClaimsUnavailableError
from hapax.core.record_path import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hapax.core.ports import Asked, Claims, Clock, OwnerLookup
    from hapax.core.record_path import Batch, Identified
    from hapax.core.records import Coordinates, Progress, Record, TopicPartition
    from hapax.processing.identity import Identity

GAPS_MAX = 100_000
"""Of all partitions, some 10 MB: what comes beyond is trusted as if it had been read."""
FIRST_LOOK_S, LAST_LOOK_S = 0.5, 5.0
AT_ONCE = 2
"""Batches that a process may have claimed and not committed: the one in work, the one ahead."""
TAKEOVERS_MAX = 5
"""Rounds in which claims are taken over. One is the rule; each further one means
that another member has claimed an id in between and its record is gone, too."""


class Reading(msgspec.Struct):
    """A partition that is followed: the next offset, and where to stop."""

    next: int
    until: int


class Unread:
    """Follows partitions from their assignment on. ``width``: for how many offsets each."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._following: dict[TopicPartition, Reading] = {}
        self._starts: dict[TopicPartition, list[int]] = {}
        self._ends: dict[TopicPartition, list[int]] = {}
        self._count = 0

    def holds(self, where: TopicPartition, offset: int) -> bool:
        place = bisect_right(self._starts.get(where, ()), offset) - 1
        return place >= 0 and offset < self._ends[where][place]

    def read(self, batch: Batch) -> None:
        """Take note of what a batch holds; the same records may come again, after an abort."""
        for where, committed in batch.base.items():
            self._begin(where, committed)
        if not self._following:
            return
        for record in batch.records:
            where = (record.topic, record.partition)
            reading = self._following.get(where)
            if reading is not None and record.offset >= reading.next:
                self._pass(where, reading, record.offset)
                reading.next = record.offset + 1
        for where in self._following.keys() & batch.next.keys():
            reading, end = self._following[where], batch.next[where]
            self._pass(where, reading, end)
            reading.next = max(reading.next, end)
            if reading.next >= reading.until:
                del self._following[where]

    def _begin(self, where: TopicPartition, committed: int) -> None:
        """Follow a partition from its committed offset; what is known from there on is old."""
        self._following[where] = Reading(committed, committed + self._width)
        starts = self._starts.get(where, [])
        keep = bisect_left(starts, committed)
        self._count -= len(starts) - keep
        del starts[keep:], self._ends.setdefault(where, [])[keep:]

    def _pass(self, where: TopicPartition, reading: Reading, offset: int) -> None:
        if offset <= reading.next or self._count >= GAPS_MAX:
            return
        self._starts.setdefault(where, []).append(reading.next)
        self._ends.setdefault(where, []).append(offset)
        self._count += 1


class ClaimOwners:
    """Judges owners. One thread only.

    lookup    asks brokers; without one every owner is trusted
    identity  finds the id of a record that was read again
    batch_max  most records of one batch, of any process
    """

    def __init__(self, lookup: OwnerLookup | None, identity: Identity, *, batch_max: int) -> None:
        self._lookup = lookup
        self._unread = Unread(AT_ONCE * 2 * batch_max)
        self._identity = identity
        self._committed: Progress = {}  # at least so far; committed offsets do not move back
        self._read: dict[Coordinates, bytes | None] = {}  # of a batch that is taken again

    def settle(self, progress: Mapping[tuple[str, int], int]) -> None:
        """Take note that everything below these offsets has had its effect."""
        self._committed.update(progress)
        self._read = {}

    def read(self, batch: Batch) -> None:
        self._unread.read(batch)

    def gone(
        self, batch: Batch, claims: Sequence[bytes], duplicates: Mapping[int, Coordinates]
    ) -> dict[int, Coordinates]:
        """Return those of ``duplicates`` (by index: the owner) whose owners own nothing.

        ``claims``: of the batch, by index. Raises BatchAbortedError when brokers do not answer:
        nothing is decided, take the batch again.
        """
        doubtful = self._uncommitted(duplicates)
        if not doubtful or self._lookup is None:
            return {}
        doubtful = _without(doubtful, batch, claims)
        if doubtful:
            # Without an answer from the group's coordinator the record itself may decide.
            with suppress(BatchAbortedError):
                doubtful = self._look_up(doubtful, within_s=FIRST_LOOK_S, stable=False)
        if doubtful:
            seen = self._seen(set(doubtful.values()), self._lookup)
            doubtful = {i: at for i, at in doubtful.items() if seen[at] not in {None, claims[i]}}
        if not doubtful:
            self._read = {}
            return {}
        return self._look_up(doubtful, within_s=LAST_LOOK_S, stable=True)

    def _seen(
        self, wanted: set[Coordinates], lookup: OwnerLookup
    ) -> dict[Coordinates, bytes | None]:
        """Return the claims at these places: b"" where nothing is, None where it is unreadable.

        Raises BatchAbortedError after a part of them: the next turn continues after it.
        """
        known = self._read = {at: self._read[at] for at in wanted & self._read.keys()}
        while rest := wanted - known.keys():
            found = lookup.records(rest)
            for at in rest:
                if at.offset < found.next.get((at.topic, at.partition), at.offset + 1):
                    known[at] = b""
            claims = self._identity.identify(found.records).claims
            for index, claim in enumerate(claims):
                known[found.coordinates(index)] = None if index in found.unreadable else claim
            if found.next and lookup.in_turns:
                text = f"{len(known)} of {len(wanted)} owners of claims are read so far"
                raise BatchAbortedError(text)
        return known

    def _uncommitted(self, duplicates: Mapping[int, Coordinates]) -> dict[int, Coordinates]:
        known = self._committed
        return {
            index: owner
            for index, owner in duplicates.items()
            if owner.offset >= known.get((owner.topic, owner.partition), 0)
            or self._unread.holds((owner.topic, owner.partition), owner.offset)
        }

    def _look_up(
        self, doubtful: dict[int, Coordinates], *, within_s: float, stable: bool
    ) -> dict[int, Coordinates]:
        assert self._lookup is not None
        partitions = {(owner.topic, owner.partition) for owner in doubtful.values()}
        found = self._lookup.committed(sorted(partitions), within_s, stable=stable)
        self._committed |= {where: at for where, at in found.items() if at is not None}
        return self._uncommitted(doubtful)


def _without(
    doubtful: dict[int, Coordinates], batch: Batch, claims: Sequence[bytes]
) -> dict[int, Coordinates]:
    """Leave out owners in the batch, as claimed; where headers are unreadable, as they are."""
    offsets = frozenset(owner.offset for owner in doubtful.values())
    places = {
        (record.topic, record.partition, record.offset): index
        for index, record in enumerate(batch.records)
        if record.offset in offsets
    }
    left = {}
    for index, owner in doubtful.items():
        place = places.get(owner)
        if place is None or not (place in batch.unreadable or claims[place] == claims[index]):
            left[index] = owner
    return left


class Claimed(msgspec.Struct, gc=False):
    """What step 3 found.

    duplicates  by index the owners of records that are duplicates
    checked     the claim store has answered
    unchecked   it did not answer, and the outage policy is ``pass``
    taken_over  indices of records that have the claim of an owner that was gone
    ids         what is wrong with the ids; None: nothing
    """

    duplicates: Mapping[int, Coordinates]
    checked: bool = False
    unchecked: bool = False
    taken_over: Collection[int] = ()
    ids: IdFindings | None = None


class Asking(NamedTuple):
    """A claim that is on its way.

    wanted  the indices of the records that have an id
    asked   the store's own; it answers by place among the wanted
    batch   of those records
    given   by record of it the earlier one that has its claim
    """

    wanted: Sequence[int]
    asked: Asked
    batch: Batch
    given: dict[Coordinates, Coordinates]


class Claiming:
    """Claims the ids of batches. ``claims`` None: no id is claimed and no record a duplicate.

    Of two records of one id in a partition the first is the one that counts, also when the claim
    of the second reaches the store first: both may be on their way at once, on connections of their
    own. The process that has the partition decides so, also where another one has asked: that may
    freeze in between and move the claim later, and then finds it where it would put it.
    """

    def __init__(self, claims: Claims | None, owners: ClaimOwners, *, pass_on_outage: bool) -> None:
        self._claims = claims
        self._owners = owners
        self._pass_on_outage = pass_on_outage
        self._under_way: list[Asking] = []
        """What was asked for and is not judged, in the order of the batches."""

    def ask(self, batch: Batch, found: Identified) -> Asking | None:
        """Let the claim travel; None: nothing to claim. The answer shows an outage."""
        if self._claims is None:
            return None
        wanted = batch.wanted(found.claims)
        if not wanted:
            return None
        if len(wanted) == len(batch.records):
            asked = self._claims.ask(batch.request(found))
        else:
            asked = self._claims.ask(ClaimRequest(*_chosen(batch, found, wanted)))
        asking = Asking(wanted, asked, batch, {})
        self._under_way.append(asking)
        return asking

    def claim(self, batch: Batch, found: Identified, asking: Asking | None) -> Claimed:
        """Judge the answer; raises ClaimsUnavailableError and BatchAbortedError.

        All batches before this one must be settled: an owner among their records counts as
        committed only then.
        """
        if self._claims is None:
            return Claimed({})
        self._owners.read(batch)
        if asking is None:
            return Claimed({}, checked=True)
        try:
            return self._until_trusted(self._claims, batch, found, asking)
        except ClaimsUnavailableError:
            if not self._pass_on_outage:
                raise
            return Claimed({}, unchecked=True)

    def settle(self, progress: Mapping[tuple[str, int], int]) -> None:
        self._owners.settle(progress)

    def _until_trusted(
        self, claims: Claims, batch: Batch, found: Identified, asking: Asking
    ) -> Claimed:
        """Wait for the answer; take over what belongs to records that are gone, or come later."""
        ahead, given = self._taken(asking), asking.given
        duplicates = _placed(asking.wanted, asking.asked.answer())
        if given:
            places = ((index, batch.coordinates(index)) for index in asking.wanted)
            duplicates |= {index: given[at] for index, at in places if at in given}
        if duplicates:
            duplicates = self._taken_back(claims, batch, found, ahead, duplicates)
        taken_over: set[int] = set()
        for _ in range(TAKEOVERS_MAX):
            gone = self._owners.gone(batch, found.claims, duplicates) if duplicates else {}
            if not gone:
                return Claimed(duplicates, checked=True, taken_over=taken_over)
            again = sorted(gone)
            chosen = _chosen(batch, found, again)
            others = _placed(again, claims.claim(*chosen, [gone[index] for index in again]))
            taken_over |= gone.keys() - others.keys()
            duplicates = {at: duplicates[at] for at in duplicates.keys() - gone.keys()} | others
        raise BatchAbortedError("claims of records that are gone change hands all the time")

    def _taken(self, asking: Asking) -> list[Asking]:
        """Return what is under way after it; what is before is dropped."""
        at = next((at for at, one in enumerate(self._under_way) if one is asking), None)
        if at is not None:
            del self._under_way[: at + 1]
        return [] if at is None else list(self._under_way)

    def _taken_back(
        self,
        claims: Claims,
        batch: Batch,
        found: Identified,
        ahead: Sequence[Asking],
        duplicates: dict[int, Coordinates],
    ) -> dict[int, Coordinates]:
        """Take the claims of records after this batch in the partition; return the others.

        None of those owners has had an effect: a partition is read in order, by one process. Where
        they are in ``ahead``, what they were answered is corrected when their batch is judged.
        """
        later = {
            index: duplicates[index]
            for index in sorted(duplicates)
            if _after(batch, batch.coordinates(index), duplicates[index])
        }
        if not later:
            return duplicates
        again = list(later)
        chosen = _chosen(batch, found, again)
        others = _placed(again, claims.claim(*chosen, list(later.values())))
        for index in later.keys() - others.keys():
            for one in ahead:
                if _holds(one.batch, later[index]):
                    one.given[later[index]] = batch.coordinates(index)
        return {index: duplicates[index] for index in duplicates.keys() - later.keys()} | others


def _after(batch: Batch, at: Coordinates, owner: Coordinates) -> bool:
    """Whether an owner comes after a record in its partition, and is not in the same batch."""
    same = (owner.topic, owner.partition) == (at.topic, at.partition)
    return same and owner.offset > at.offset and not _holds(batch, owner)


def _holds(batch: Batch, at: Coordinates) -> bool:
    where = (at.topic, at.partition)
    return where in batch.first and batch.first[where] <= at.offset < batch.next[where]


def _chosen(
    batch: Batch, found: Identified, wanted: Sequence[int]
) -> tuple[list[bytes], list[Record], dict[int, Coordinates]]:
    order = {index: place for place, index in enumerate(wanted)} if found.replays else {}
    return (
        [found.claims[index] for index in wanted],
        [batch.records[index] for index in wanted],
        {order[index]: owner for index, owner in found.replays.items() if index in order},
    )


def _placed(wanted: Sequence[int], owners: Mapping[int, Coordinates]) -> dict[int, Coordinates]:
    return {wanted[place]: owner for place, owner in owners.items()}


# -- Whether ids name events, judged by the first records and by later duplicates -----------------


FIRST: Final = 1000
"""Records of a process that are looked at in any case."""
FEWEST: Final = 10
"""Of them, before most of them can be without an id."""
AGAIN_S: Final = 60.0
"""Between two later batches with duplicates that are looked at."""


class IdFindings(msgspec.Struct, frozen=True, gc=False):
    """What was found in a batch.

    missing  how many of the first records have no id, once it is most of them; else 0
    looked   how many the first records are so far
    shared   two records with one id and different keys; None: there are none
    """

    missing: int = 0
    looked: int = 0
    shared: tuple[Coordinates, Coordinates] | None = None


class IdWatch:
    """Checks the ids of one process. One thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked = self._missing = 0
        self._told = False
        self._seen: dict[bytes, tuple[bytes | None, Coordinates]] = {}
        self._again_s = 0.0

    def look(self, batch: Batch, claims: Sequence[bytes], claimed: Claimed) -> IdFindings | None:
        """Return what there is to say of a batch; ``claims``: its ids, b"" where there is none."""
        if not claimed.checked:
            return None
        room = min(FIRST - self._looked, len(claims))
        if room > 0:
            self._looked += room
            self._missing += sum(not claims[index] for index in range(room))
            shared = self._shared(batch, claims, self._seen, room)
            told, most = self._told, self._missing * 2 > self._looked >= FEWEST
            self._told = told or most
            if most and not told:
                return IdFindings(self._missing, self._looked, shared)
            return None if shared is None else IdFindings(shared=shared)
        now_s = self._clock.monotonic()
        if not claimed.duplicates or now_s < self._again_s:
            return None
        self._again_s = now_s + AGAIN_S
        shared = self._shared(batch, claims, dict(self._seen), len(claims))
        return None if shared is None else IdFindings(shared=shared)

    def _shared(
        self,
        batch: Batch,
        claims: Sequence[bytes],
        seen: dict[bytes, tuple[bytes | None, Coordinates]],
        count: int,
    ) -> tuple[Coordinates, Coordinates] | None:
        found = None
        for index in range(count):
            if claim := claims[index]:
                record = batch.records[index]
                key, first = seen.setdefault(claim, (record.key, record.coordinates))
                if key != record.key:
                    found = found or (first, record.coordinates)
        return found
