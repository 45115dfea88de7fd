"""One seed, from its options to its verdict; and the shortest schedule that still shows a defect.

That is one without each fault, each record, each worker.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

import msgspec

from tests.simulation.chance import Strike
from tests.simulation.options import Options, draw
from tests.simulation.world import World

TRIES_MAX = 400


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
    return Outcome(world.run(), world.chance.struck, world.counts)


class Schedule(msgspec.Struct, frozen=True):
    """All that a run depends on."""

    seed: int
    options: Options
    strikes: dict[str, Strike]


def found_by(seed: int) -> Schedule:
    options = draw(Random(seed))
    return Schedule(seed, options, play(seed, options).struck)


def fails(schedule: Schedule) -> str | None:
    """Return the class of the first violation, None when there is none."""
    outcome = play(schedule.seed, schedule.options, played=schedule.strikes)
    return outcome.found[0][0] if outcome.found else None


def shrink(schedule: Schedule) -> Schedule:
    """Return the shortest schedule found that fails as this one does."""
    kind = fails(schedule)
    tries, better = 0, kind is not None
    while better and tries < TRIES_MAX:
        better = False
        for smaller in _smaller(schedule):
            tries += 1
            if fails(smaller) == kind:
                schedule, better = smaller, True
                break
            if tries >= TRIES_MAX:
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    options = schedule.options
    for key in schedule.strikes:
        rest = {each: strike for each, strike in schedule.strikes.items() if each != key}
        yield msgspec.structs.replace(schedule, strikes=rest)
    for changed in _plainer(options):
        yield msgspec.structs.replace(schedule, options=changed)


def _plainer(options: Options) -> Iterator[Options]:
    replace = msgspec.structs.replace
    items = options.items
    half = len(items) // 2
    if half > 1:
        yield replace(options, items=items[:half])
        yield replace(options, items=items[half:])
    for at in range(len(items)):
        yield replace(options, items=items[:at] + items[at + 1 :])
    for at, item in enumerate(items):
        for gone in range(len(item.values)):
            values = item.values[:gone] + item.values[gone + 1 :]
            yield replace(
                options, items=(*items[:at], replace(item, values=values), *items[at + 1 :])
            )
        if item.end != "plain" and item.values:
            plain = replace(item, end="plain", open_s=0.0)
            yield replace(options, items=(*items[:at], plain, *items[at + 1 :]))
    if options.workers > 1:
        yield replace(options, workers=options.workers - 1)
    if options.latency_s:
        yield replace(options, latency_s=0.0)
    if options.claims:
        yield replace(options, claims=False)
