"""What is done for a batch before its turn: step 2 and the first half of 3 (exactly_once.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.identity import Identified
    from hapax.core.ports import Asked


class Asking(NamedTuple):
    """A claim that is on its way.

    wanted  the indices of the records that have an id
    asked   the store's own; it answers by place among the wanted
    """

    wanted: Sequence[int]
    asked: Asked


class Begun(msgspec.Struct, gc=False):
    """A batch whose claim is on its way.

    found     the ids
    asking    the claim; None: no record has an id, or nothing is claimed at all
    phases_s  seconds of this thread that it took, by step; the way to the store is not among them
    """

    found: Identified
    asking: Asking | None
    phases_s: dict[str, float]

    def drop(self) -> None:
        """Give the answer up; what was claimed names the coordinates of these very records."""
        if self.asking is not None:
            self.asking.asked.drop()
