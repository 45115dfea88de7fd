"""Anomalies to plant in a world, each under the class by which it must be found.

Each returns how many records or effects it made wrong, as the audit counts them; 0 when the world
had no room for it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.fault import rules
from tests.fault.checking.checker_histories import LANES, PARTITIONS, Effect, Given, World, due
from tests.fault.checking.history import DEAD_WAY
from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.ledger import Fate
from tests.fault.watching.live import SEEN

Plant = Callable[[World], int]
Change = Callable[[Effect], Effect]
Fits = Callable[[Effect], bool]


# -- Anomalies of single effects: value, key, header, topic; effects of what is not there; and what
# the live reader saw of them.


def chosen(world: World, fits: Callable[[Given], bool], act: Callable[[Given], None]) -> bool:
    """Act on a random record that has effects and fits."""
    found = [one for one in world.owners() if fits(one)]
    if found:
        act(world.rng.choice(found))
    return bool(found)


def _any(_effect: Effect) -> bool:
    return True


def _output(effect: Effect) -> bool:
    return effect.slot > 0


def _bare(effect: Effect) -> bool:
    return effect.slot > 0 and "hapax-part" not in effect.headers


def _dead(effect: Effect) -> bool:
    return effect.way == DEAD_WAY


def _changed(world: World, change: Change, fits: Fits = _any) -> bool:
    found = [one for one in world.effects() if fits(one)]
    if found:
        effect = world.rng.choice(found)
        lane = world.lanes[effect.lane]
        lane[lane.index(effect)] = change(effect)
    return bool(found)


def _stamp(headers: dict[str, bytes]) -> Change:
    return lambda one: replace(one, headers=one.headers | headers)


CHANGES: dict[str, tuple[Change, Fits]] = {
    "wrong_value": (lambda one: replace(one, value=b"9" + one.value), _any),
    "unreadable_value": (lambda one: replace(one, value=b"?"), _any),
    "wrong_key": (lambda one: replace(one, key=one.key + b"1"), _any),
    "wrong_id": (_stamp({"hapax-id": b"r-1-777"}), _any),
    "wrong_header": (_stamp({"dup": b"7"}), _any),
    "wrong_parts": (lambda one: _stamp({"hapax-part": b"%d/9" % one.slot})(one), _output),
    "header_too_many": (_stamp({"more": b"1"}), _output),
    "part_of_one": (_stamp({"hapax-part": b"1/1"}), _bare),
    "wrong_attempts": (_stamp({"hapax-attempts": b"2"}), _dead),
    "wrong_error": (_stamp({"hapax-error": b"?"}), _dead),
    "no_app": (_stamp({"hapax-app": b""}), _dead),
}


def changes(name: str) -> Plant:
    """Return the anomaly that is one of CHANGES in one effect."""

    def plant(world: World) -> bool:
        return _changed(world, *CHANGES[name])

    plant.__name__ = name
    return plant


wrong_value = changes("wrong_value")


def from_elsewhere(world: World) -> bool:
    def alone(one: Effect) -> bool:
        return len(due(one.given)) == 1 and len(world.copies(one.given)) == 1

    named = world.rng.choice([b"x", b"other/0/1", b"in/0/x", b"in/7/1", b"in/0/-1"])
    return _changed(world, _stamp({"hapax-source": named}), alone)


def wrong_check(world: World) -> bool:
    def flip(one: Effect) -> Effect:
        return replace(one, value=one.value[:-1] + (b"0" if one.value[-1:] != b"0" else b"1"))

    return _changed(world, flip, lambda one: one.slot > 0)


def header_missing(world: World) -> bool:
    def drop(one: Effect) -> Effect:
        kept = {name: text for name, text in one.headers.items() if name != "message-id"}
        return replace(one, headers=kept)

    return _changed(world, drop, lambda one: one.slot > 0)


def wrong_number(world: World) -> bool:
    def one_more(given: Given) -> None:
        effects = due(given)
        world.remove(given)
        count = len(effects) + 1
        for effect in (*effects, replace(effects[-1], slot=count)):
            part = {"hapax-part": b"%d/%d" % (effect.slot, count)}
            world.insert(replace(effect, headers=effect.headers | part))

    return chosen(world, lambda given: not rules.is_poison(given.number), one_more)


def wrong_topic(world: World) -> bool:
    def move(one: Effect) -> Effect:
        return replace(one, way=1 - one.way)

    found = [one for one in world.effects() if one.slot > 0]
    effect = world.rng.choice(found)
    world.lanes[effect.lane].remove(effect)
    world.insert(move(effect))
    return True


def poison_processed(world: World) -> bool:
    def process(given: Given) -> None:
        dead = due(given)[0]
        world.remove(given)
        number = replace(given, content=given.content._replace(number=given.number + 1000 - 6))
        for pattern in due(number):
            value = rules.output(given.value, given.content, pattern.slot - 1)
            headers = pattern.headers | dead.headers
            world.insert(replace(pattern, given=given, value=value, headers=headers))

    return chosen(world, lambda given: rules.is_poison(given.number), process)


# -- what the live reader saw -------------------------------------------------------------


def precommitted_read(world: World) -> bool:
    def see(seen: Table) -> Table:
        lane = int(seen["lane"][-1])
        more = np.array([(int(seen["offset"].max()) + 9, 1, lane)], SEEN)
        return np.concatenate([seen, more])

    world.edits.append(see)
    return bool(world.effects())


def inconsistent_offsets(world: World) -> bool:
    at = world.rng.randrange(len(world.effects()))

    def change(seen: Table) -> Table:
        seen["hash"][at] ^= 1
        return seen

    world.edits.append(change)
    return True


def poll_skip(world: World) -> bool:
    lanes = [at for at, lane in enumerate(LANES) if len(world.lanes[lane]) > 1]

    def skip(seen: Table) -> Table:
        return np.delete(seen, int(np.flatnonzero(seen["lane"] == lanes[0])[0]))

    world.edits.append(skip)
    return bool(lanes)


def nonmonotonic_poll(world: World) -> bool:
    at = world.rng.randrange(len(world.effects()))
    world.edits.append(lambda seen: np.concatenate([seen, seen[at : at + 1]]))
    return True


# -- Planted -------------------------------------------------------------------------------


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
    (precommitted_read, {"precommitted-read"}),
    (inconsistent_offsets, {"inconsistent-offsets"}),
    (poll_skip, {"poll-skip"}),
    (nonmonotonic_poll, {"nonmonotonic-poll"}),
    (order, {"order"}),
    (torn_txn, {"torn-txn"}),
    (ahead, {"offset-effect", "unseen"}),
    (beyond_the_log, {"offset-effect"}),
    (phantom, {"phantom"}),
    (orphaned, {"phantom"}),
    (from_elsewhere, {"phantom", "lost"}),
    (wrong_value, {"transform"}),
    *((changes(name), {"transform"}) for name in CHANGES if name != "wrong_value"),
    (wrong_check, {"transform"}),
    (wrong_number, {"transform"}),
    (header_missing, {"transform"}),
    (wrong_topic, {"transform"}),
    (poison_processed, {"transform"}),
    (unseen, {"unseen"}),
    (nothing_committed, {"unseen"}),
    (realtime_lag, {"realtime-lag"}),
    (stuck, {"stuck-LSO"}),
    (leak, {"leak"}),
]
"""What to plant, and the classes that must be found: these and no other."""
