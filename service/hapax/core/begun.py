"""What is done for a batch before its turn: step 2 and the first half of 3 (exactly_once.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.claiming import Claimed
    from hapax.core.identity import Identified
    from hapax.core.ports import Asked
    from hapax.core.transform import Result


class Asking(NamedTuple):
    """A claim that is on its way.

    wanted  the indices of the records that have an id
    asked   the store's own; it answers by place among the wanted
    """

    wanted: Sequence[int]
    asked: Asked


class Begun(msgspec.Struct, gc=False):
    """What was done for a batch before its turn: its claim is on its way, or more.

    found     the ids
    asking    the claim; None: no record has an id, or nothing is claimed at all
    phases_s  seconds of this thread that it took, by step; the way to the store is not among them
    claimed   what step 3 has found; None: its answer is still to be judged
    fates     by index the results of records that business code does not see, once claimed
    results   of step 4, for every record; None: it is still to come
    """

    found: Identified
    asking: Asking | None
    phases_s: dict[str, float]
    claimed: Claimed | None = None
    fates: dict[int, Result | None] = msgspec.field(default_factory=dict)
    results: list[Result | None] | None = None

    def add(self, event_id: bytes, result: Result | None) -> None:
        """Append one record whose steps 2 to 4 are done."""
        assert self.results is not None
        self.found.ids.append(event_id)  # type: ignore[attr-defined] # a list, made for this
        self.results.append(result)

    def drop(self) -> None:
        """Give the answer up; what was claimed names the coordinates of these very records."""
        if self.asking is not None:
            self.asking.asked.drop()
