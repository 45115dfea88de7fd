"""One seed, from its options to its verdict."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from tests.simulation.options import Options, draw
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from tests.simulation.chance import Strike


class Outcome(msgspec.Struct):
    """What came of a schedule. ``found``: violations as (class, text)."""

    found: list[tuple[str, str]]
    struck: dict[str, Strike]
    counts: Counter[str]


def play(
    seed: int,
    options: Options | None = None,
    *,
    played: Mapping[str, Strike] | None = None,
    trace: list[str] | None = None,
) -> Outcome:
    """Run the schedule of a seed; with ``played`` exactly these faults strike."""
    chosen = draw(Random(seed)) if options is None else options
    world = World(seed, chosen, played=played, trace=trace)
    found = world.run()
    return Outcome(found, world.chance.struck, world.counts)
