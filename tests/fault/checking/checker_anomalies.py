"""Anomalies to plant in a world, each under the class by which it must be found.

Each returns how many records or effects it made wrong, as the audit counts them; 0 when the world
had no room for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fault import rules
from tests.fault.checking import checker_anomalies_wrong as wrong
from tests.fault.checking.checker_anomalies_wrong import chosen
from tests.fault.checking.checker_histories import LANES, PARTITIONS, due
from tests.fault.checking.history import DEAD_WAY
from tests.fault.feeding.ledger import Fate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fault.checking.checker_histories import Effect, Given, World

    Plant = Callable[[World], int]


def single(world: World) -> Callable[[Given], bool]:
    return lambda given: len(world.copies(given)) == 1


def lost_write(world: World) -> bool:
    written = {(one.number, one.copy) for one in world.inputs}
    never = [at for at in range(len(world.fates)) if (at, 0) not in written]
    if never:
        world.fates[world.rng.choice(never)][0] = Fate.OK
    return bool(never)


def lost(world: World) -> bool:
    return chosen(world, single(world), world.remove)


def dedup_loss(world: World) -> bool:
    def all_done(given: Given) -> bool:
        copies = world.copies(given)
        return len(copies) > 1 and all(map(world.below, copies))

    return chosen(world, all_done, world.remove)


def duplicate(world: World) -> int:
    again: list[Effect] = []
    chosen(world, lambda _given: True, lambda given: again.extend(due(given)))
    for effect in again:
        world.lanes[effect.lane].append(effect)
    return len(again)


def duplicate_in_part(world: World) -> bool:
    def again(given: Given) -> None:
        effect = world.rng.choice(due(given))
        world.lanes[effect.lane].append(effect)

    return chosen(world, lambda _given: True, again)


def dead_letter_and_outputs(world: World) -> bool:
    def bury(given: Given) -> None:
        first = due(given)[0]
        world.insert(replace(first, slot=0, way=DEAD_WAY, value=given.value))

    return chosen(world, lambda given: not rules.is_poison(given.number), bury)


def repeated(world: World) -> bool:
    owners = {one.where for one in world.owners()}
    idle = [one for one in world.done() if due(one) and one.where not in owners]
    if idle:
        for effect in due(world.rng.choice(idle)):
            world.insert(effect)
    return bool(idle)


def aborted_read(world: World) -> int:
    return _processed(world, [one for one in world.aborted if world.below(one)])


def early(world: World) -> int:
    """Process a record that is yet to come; in a world that is not whole."""
    single_ = single(world)
    return _processed(world, [one for one in world.inputs if not world.below(one) and single_(one)])


def _processed(world: World, found: list[Given]) -> int:
    """Insert the effects of one of these records; return how many."""
    wanted = [one for one in found if due(one)]
    effects = due(world.rng.choice(wanted)) if wanted else []
    for effect in effects:
        world.insert(effect)
    return len(effects)


def aborted_visible(world: World) -> bool:
    one = world.rng.choice(world.inputs)
    world.fates[one.number][one.copy] = Fate.ABORTED
    return True


def order(world: World) -> bool:
    for lane in world.lanes.values():
        for place in range(PARTITIONS):
            turns = [at for at, one in enumerate(lane) if one.given.place == place]
            if len(turns) > 1:
                first = world.rng.randrange(len(turns) - 1)
                here, there = turns[first], turns[first + 1]
                lane[here], lane[there] = lane[there], lane[here]
                return True
    return False


def torn_txn(world: World) -> bool:
    def tear(given: Given) -> None:
        effect = world.rng.choice(due(given))
        world.lanes[effect.lane].remove(effect)

    return chosen(world, lambda given: len(due(given)) > 1, tear)


def ahead(world: World) -> bool:
    def commit_less(given: Given) -> None:
        world.committed[given.place] = given.offset

    return chosen(world, lambda _given: True, commit_less)


def beyond_the_log(world: World) -> bool:
    place = world.rng.randrange(PARTITIONS)
    world.committed[place] = world.ends[place].high + 1
    return True


def phantom(world: World) -> bool:
    taken = {one.where for one in (*world.inputs, *world.aborted)}
    one = world.rng.choice(world.inputs)
    stray = replace(one, offset=world.ends[one.place].stable + 5)
    assert stray.where not in taken
    for effect in due(stray):
        world.insert(effect)
    return bool(due(stray))


def orphaned(world: World) -> int:
    """Process a record of an offset below the committed one that holds none."""
    taken = {one.where for one in (*world.inputs, *world.aborted)}
    one = world.rng.choice(world.owners())
    free = [
        stray
        for offset in range(world.committed[one.place] or 0)
        if (stray := replace(one, offset=offset)).where not in taken
    ]
    return _processed(world, free)


def unseen(world: World) -> bool:
    place = world.rng.randrange(PARTITIONS)
    mine = [one for one in world.inputs if one.place == place]
    last = max(mine, key=lambda one: one.offset, default=None)
    if last is None:
        return False
    world.committed[place] = last.offset
    world.remove(last)
    return True


def nothing_committed(world: World) -> bool:
    place = world.rng.randrange(PARTITIONS)
    mine = [one for one in world.inputs if one.place == place]
    world.committed[place] = None
    for one in mine:
        world.remove(one)
    return any(due(one) for one in mine)


def realtime_lag(world: World) -> bool:
    place = world.rng.randrange(PARTITIONS)
    world.committed[place] = world.ends[place].stable - 1
    return True


def stuck(world: World) -> bool:
    world.stuck.append(world.rng.choice(LANES))
    return True


def leak(world: World) -> bool:
    world.open.append("app-w-1: ongoing")
    return True


PLANTS: list[tuple[Plant, set[str]]] = [
    (lost_write, {"lost-write"}),
    (lost, {"lost"}),
    (dedup_loss, {"dedup-loss"}),
    (duplicate, {"duplicate"}),
    (duplicate_in_part, {"duplicate"}),
    (dead_letter_and_outputs, {"duplicate", "transform"}),
    (repeated, {"repeated"}),
    (aborted_read, {"G1a"}),
    (aborted_visible, {"G1a"}),
    (wrong.precommitted_read, {"precommitted-read"}),
    (wrong.inconsistent_offsets, {"inconsistent-offsets"}),
    (wrong.poll_skip, {"poll-skip"}),
    (wrong.nonmonotonic_poll, {"nonmonotonic-poll"}),
    (order, {"order"}),
    (torn_txn, {"torn-txn"}),
    (ahead, {"offset-effect", "unseen"}),
    (beyond_the_log, {"offset-effect"}),
    (phantom, {"phantom"}),
    (orphaned, {"phantom"}),
    (wrong.from_elsewhere, {"phantom", "lost"}),
    (wrong.wrong_value, {"transform"}),
    (wrong.wrong_check, {"transform"}),
    (wrong.unreadable_value, {"transform"}),
    (wrong.wrong_key, {"transform"}),
    (wrong.wrong_id, {"transform"}),
    (wrong.wrong_header, {"transform"}),
    (wrong.wrong_parts, {"transform"}),
    (wrong.wrong_number, {"transform"}),
    (wrong.header_missing, {"transform"}),
    (wrong.header_too_many, {"transform"}),
    (wrong.part_of_one, {"transform"}),
    (wrong.wrong_attempts, {"transform"}),
    (wrong.wrong_error, {"transform"}),
    (wrong.no_app, {"transform"}),
    (wrong.wrong_topic, {"transform"}),
    (wrong.poison_processed, {"transform"}),
    (unseen, {"unseen"}),
    (nothing_committed, {"unseen"}),
    (realtime_lag, {"realtime-lag"}),
    (stuck, {"stuck-LSO"}),
    (leak, {"leak"}),
]
"""What to plant, and the classes that must be found: these and no other."""
