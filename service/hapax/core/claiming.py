"""Step 3, claim: whose is each id? One call for a batch; more only when owners are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.begun import Asking
from hapax.core.errors import BatchAbortedError, ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hapax.core.claim_owners import ClaimOwners
    from hapax.core.id_findings import IdFindings
    from hapax.core.identity import Identified
    from hapax.core.ports import Batch, Claims
    from hapax.core.records import Coordinates, Record

TAKEOVERS_MAX = 5
"""Rounds in which claims are taken over. One is the rule; each further one means
that another member has claimed an id in between and its record is gone, too."""


class Claimed(msgspec.Struct, gc=False):
    """What step 3 found.

    twins       by index the owners of records that are duplicates
    checked     the claim store has answered
    unchecked   it did not answer, and the outage policy is ``pass``
    taken_over  indices of records that have the claim of an owner that was gone
    ids         what is wrong with the ids (id_findings.py); None: nothing
    """

    twins: Mapping[int, Coordinates]
    checked: bool = False
    unchecked: bool = False
    taken_over: Collection[int] = ()
    ids: IdFindings | None = None


class _UnderWay(NamedTuple):
    """Claims that were asked for. ``given``: by record of it the earlier one that has its claim."""

    asking: Asking
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
        self._under_way: list[_UnderWay] = []
        """What was asked for and is not judged, in the order of the batches."""

    def ask(self, batch: Batch, found: Identified) -> Asking | None:
        """Let the claim of what has an id travel; None: there is nothing to claim.

        That the store is away is learned from the answer.
        """
        if self._claims is None:
            return None
        wanted: Sequence[int] = range(len(found.claims))
        if not found.complete:
            wanted = [index for index, claim in enumerate(found.claims) if claim]
        if not wanted:
            return None
        records = batch.records
        if len(wanted) == len(records):
            asking = Asking(wanted, self._claims.ask(found.claims, records, found.replays))
        else:
            asking = Asking(wanted, self._claims.ask(*_chosen(batch, found, wanted)))
        self._under_way.append(_UnderWay(asking, batch, {}))
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
        """Take note that everything below these offsets has had its effect."""
        self._owners.settle(progress)

    def _until_trusted(
        self, claims: Claims, batch: Batch, found: Identified, asking: Asking
    ) -> Claimed:
        """Wait for the answer; take over what belongs to records that are gone, or come later."""
        given, ahead = self._taken(asking)
        twins = _placed(asking.wanted, asking.asked.answer())
        if given:
            places = ((index, batch.coordinates(index)) for index in asking.wanted)
            twins |= {index: given[at] for index, at in places if at in given}
        if twins:
            twins = self._taken_back(claims, batch, found, ahead, twins)
        taken_over: set[int] = set()
        for _ in range(TAKEOVERS_MAX):
            gone = self._owners.gone(batch, found.claims, twins) if twins else {}
            if not gone:
                return Claimed(twins, checked=True, taken_over=taken_over)
            again = sorted(gone)
            chosen = _chosen(batch, found, again)
            others = _placed(again, claims.claim(*chosen, [gone[index] for index in again]))
            taken_over |= gone.keys() - others.keys()
            twins = {index: twins[index] for index in twins.keys() - gone.keys()} | others
        raise BatchAbortedError("claims of records that are gone change hands all the time")

    def _taken(self, asking: Asking) -> tuple[Mapping[Coordinates, Coordinates], list[_UnderWay]]:
        """Take it out; return what of it was given back, and what is under way after it.

        What is before it was dropped, and is asked for again.
        """
        at = next((at for at, one in enumerate(self._under_way) if one.asking is asking), None)
        if at is None:
            return {}, []
        given = self._under_way[at].given
        del self._under_way[: at + 1]
        return given, list(self._under_way)

    def _taken_back(
        self,
        claims: Claims,
        batch: Batch,
        found: Identified,
        ahead: Sequence[_UnderWay],
        twins: dict[int, Coordinates],
    ) -> dict[int, Coordinates]:
        """Take the claims of records after this batch in the partition; return the other twins.

        None of those owners has had an effect: a partition is read in order, by one process. Where
        they are in ``ahead``, what they were answered is corrected when their batch is judged.
        """
        later = {
            index: twins[index]
            for index in sorted(twins)
            if _after(batch, batch.coordinates(index), twins[index])
        }
        if not later:
            return twins
        again = list(later)
        chosen = _chosen(batch, found, again)
        others = _placed(again, claims.claim(*chosen, list(later.values())))
        for index in later.keys() - others.keys():
            for one in ahead:
                if _holds(one.batch, later[index]):
                    one.given[later[index]] = batch.coordinates(index)
        return {index: twins[index] for index in twins.keys() - later.keys()} | others


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
    """Return ids, records and replays at these indices; the replays by place among them."""
    order = {index: place for place, index in enumerate(wanted)} if found.replays else {}
    return (
        [found.claims[index] for index in wanted],
        [batch.records[index] for index in wanted],
        {order[index]: owner for index, owner in found.replays.items() if index in order},
    )


def _placed(wanted: Sequence[int], owners: Mapping[int, Coordinates]) -> dict[int, Coordinates]:
    """Return owners by index into the batch: an answer goes by the ids that were asked for."""
    return {wanted[place]: owner for place, owner in owners.items()}
