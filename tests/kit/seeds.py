"""Which seeds a run plays: new ones with each turn; for a mutant first the one that is noted.

The Makefile sets TURN to the number of commits, so that each commit plays schedules of its own.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def of_this_turn(few: int, many: int) -> range:
    """Return ``few`` seeds that no other turn has; with DEEP=1 ``many``."""
    count = many if os.environ.get("DEEP") == "1" else few
    return range(count * (turn := int(os.environ.get("TURN") or 0)), count * (turn + 1))


def first(known: int, others: Iterable[int], shows: Callable[[int], object]) -> int | None:
    """Return the first seed that shows a mutant: the one that is noted, else one of the others.

    The warning (``another seed``) asks to note the seed that was found by the search.
    """
    if shows(known):
        return known
    for seed in others:
        if shows(seed):
            warnings.warn(f"another seed shows it by now, {seed} instead of {known}", stacklevel=2)
            return seed
    return None
