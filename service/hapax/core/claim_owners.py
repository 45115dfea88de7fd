"""Whether a duplicate may be dropped: its owner has had its effect, or can still have it.

A claim names the record that was seen first. To drop another record with the same id is safe only
when that owner

- lies below the committed offset of its partition: it had its effect with that offset, unless this
  very process passed over it (unread.py); or
- lies at or above it and can still be read there, as the event that was claimed: the reader of its
  partition meets its own coordinates and processes it.

An owner that is neither owns nothing, and its claim is taken over by the record that meets it. That
happens when a record is claimed, not committed, and then compacted away or deleted; when its topic
leaves the input topics; when its coordinates belong to another record, because the topic was
recreated, its log truncated, or the brokers are those of another cluster.

Cost. Owners in the batch itself, and those below what this process has committed or once looked
up, are known without a request. Others cost a request for the group's committed offsets. Only
those at or above them are read, one fetch for each partition.

Order. The committed offsets are looked up again *after* a record was found missing: its reader may
have committed it before it was removed. That answer is stable (KIP-447): it waits for transactions
that hold an offset. The first look does not wait: another member has an offset pending most of the
time (1.5 to 3.6 s for a batch, measured under load), and what it had committed before is enough.
What remains: a member that read the owner before it was removed and sends its offsets after this
look gives the event a second effect (docs/guarantees.md).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError
from hapax.core.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hapax.core.identity import Identity
    from hapax.core.ports import Batch, OwnerLookup
    from hapax.core.records import Coordinates, Progress

FIRST_LOOK_S, LAST_LOOK_S = 0.5, 5.0
AT_ONCE = 2
"""Batches that a process may have claimed and not committed: the one in work, the one ahead."""


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

    def settle(self, progress: Mapping[tuple[str, int], int]) -> None:
        """Take note that everything below these offsets has had its effect."""
        self._committed.update(progress)

    def read(self, batch: Batch) -> None:
        """Take note of what was read, and of what was passed over."""
        self._unread.read(batch)

    def gone(
        self, batch: Batch, claims: Sequence[bytes], twins: Mapping[int, Coordinates]
    ) -> dict[int, Coordinates]:
        """Return those of ``twins`` (by index: the owner) whose owners own nothing.

        ``claims``: of the batch, by index. Raises BatchAbortedError when brokers do not answer:
        nothing is decided, take the batch again.
        """
        doubtful = self._uncommitted(twins)
        if not doubtful or self._lookup is None:
            return {}
        doubtful = _without(doubtful, batch, claims, claims)
        if doubtful:
            # Without an answer from the group's coordinator the record itself may decide.
            with suppress(BatchAbortedError):
                doubtful = self._look_up(doubtful, within_s=FIRST_LOOK_S, stable=False)
        if doubtful:
            found = self._lookup.records(set(doubtful.values()))
            again = self._identity.identify(found.records).claims
            doubtful = _without(doubtful, found, again, claims)
        if not doubtful:
            return {}
        return self._look_up(doubtful, within_s=LAST_LOOK_S, stable=True)

    def _uncommitted(self, twins: Mapping[int, Coordinates]) -> dict[int, Coordinates]:
        known = self._committed
        return {
            index: owner
            for index, owner in twins.items()
            if owner.offset >= known.get((owner.topic, owner.partition), 0)
            or self._unread.holds((owner.topic, owner.partition), owner.offset)
        }

    def _look_up(
        self, doubtful: dict[int, Coordinates], *, within_s: float, stable: bool
    ) -> dict[int, Coordinates]:
        assert self._lookup is not None
        partitions = {(owner.topic, owner.partition) for owner in doubtful.values()}
        found = self._lookup.committed(sorted(partitions), within_s, stable=stable)
        for where, offset in found.items():
            if offset is not None:
                self._committed[where] = offset
        return self._uncommitted(doubtful)


def _without(
    doubtful: dict[int, Coordinates],
    found: Batch,
    claims_found: Sequence[bytes],
    claims: Sequence[bytes],
) -> dict[int, Coordinates]:
    """Leave out the owners that are among the records found, as the events that were claimed.

    A record that the client cannot decode whole shows no id: its coordinates must do.
    """
    offsets = {owner.offset for owner in doubtful.values()}
    places = _places(found, offsets)
    left = {}
    for index, owner in doubtful.items():
        place = places.get(owner)
        if place is None or not (place in found.unreadable or claims_found[place] == claims[index]):
            left[index] = owner
    return left


def _places(found: Batch, offsets: Iterable[int]) -> dict[tuple[str, int, int], int]:
    wanted = frozenset(offsets)
    return {
        (record.topic, record.partition, record.offset): index
        for index, record in enumerate(found.records)
        if record.offset in wanted
    }
