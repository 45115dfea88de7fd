"""Step 3, claim: whose is each id? One call for a batch; more only when owners are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import BatchAbortedError, ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.claim_owners import ClaimOwners
    from hapax.core.identity import Identified
    from hapax.core.ports import Batch, Claims
    from hapax.core.records import Coordinates

TAKEOVERS_MAX = 5
"""Rounds in which claims are taken over. One is the rule; each further one means
that another member has claimed an id in between and its record is gone, too."""


class Claimed(msgspec.Struct, gc=False):
    """What step 3 found.

    twins       by index the owners of records that are duplicates
    checked     the claim store has answered
    unchecked   it did not answer, and the outage policy is ``pass``
    taken_over  claims whose owners were gone, now of records of this batch
    """

    twins: Mapping[int, Coordinates]
    checked: bool = False
    unchecked: bool = False
    taken_over: int = 0


class Claiming:
    """Claims the ids of batches. ``claims`` None: no id is claimed and no record a duplicate."""

    def __init__(self, claims: Claims | None, owners: ClaimOwners, *, pass_on_outage: bool) -> None:
        self._claims = claims
        self._owners = owners
        self._pass_on_outage = pass_on_outage

    def claim(self, batch: Batch, found: Identified) -> Claimed:
        """Claim what has an id; raises ClaimsUnavailableError and BatchAbortedError."""
        if self._claims is None:
            return Claimed({})
        self._owners.read(batch)
        wanted: Sequence[int] = range(len(found.claims))
        if b"" in found.claims:
            wanted = [index for index, claim in enumerate(found.claims) if claim]
        if not wanted:
            return Claimed({}, checked=True)
        try:
            return self._until_trusted(self._claims, batch, found, wanted)
        except ClaimsUnavailableError:
            if not self._pass_on_outage:
                raise
            return Claimed({}, unchecked=True)

    def settle(self, progress: Mapping[tuple[str, int], int]) -> None:
        """Take note that everything below these offsets has had its effect."""
        self._owners.settle(progress)

    def _until_trusted(
        self, claims: Claims, batch: Batch, found: Identified, wanted: Sequence[int]
    ) -> Claimed:
        """Claim; take over what belongs to records that are gone."""
        twins = _claim(claims, batch, found, wanted)
        taken_over = 0
        for _ in range(TAKEOVERS_MAX):
            gone = self._owners.gone(batch, found.claims, twins) if twins else {}
            if not gone:
                return Claimed(twins, checked=True, taken_over=taken_over)
            again = sorted(gone)
            others = _claim(claims, batch, found, again, gone)
            taken_over += len(again) - len(others)
            twins = {index: twins[index] for index in twins.keys() - gone.keys()} | others
        raise BatchAbortedError("claims of records that are gone change hands all the time")


def _claim(
    claims: Claims,
    batch: Batch,
    found: Identified,
    wanted: Sequence[int],
    gone: Mapping[int, Coordinates] | None = None,
) -> dict[int, Coordinates]:
    """Claim the ids at these indices; return the owners of duplicates by index into the batch."""
    if len(wanted) == len(batch.records) and not gone:
        return dict(claims.claim(found.claims, batch.records, found.replays))
    order = {index: place for place, index in enumerate(wanted)} if found.replays else {}
    others = claims.claim(
        [found.claims[index] for index in wanted],
        [batch.records[index] for index in wanted],
        {order[index]: owner for index, owner in found.replays.items() if index in order},
        [gone[index] for index in wanted] if gone else (),
    )
    return {wanted[place]: owner for place, owner in others.items()}
