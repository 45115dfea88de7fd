"""Whether ids name events, judged by the first records of a process and by later duplicates.

Two mistakes look like a quiet pipeline: ids that are not where HAPAX_DEDUP__ID looks, so that
duplicates pass, and ids that several events share, so that all but the first are dropped. An event
that is sent twice has the same key both times; one id on two keys is that of no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.deduplicate import Claimed
    from hapax.core.ports import Batch, Clock
    from hapax.core.records import Coordinates

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
        if not claimed.twins or now_s < self._again_s:
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
