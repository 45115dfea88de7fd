"""Anomalies of single effects: value, key, header, topic; effects of what is not there; and what
the live reader saw of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tests.fault import rules
from tests.fault.checking.checker_histories import LANES, due
from tests.fault.checking.history import DEAD_WAY
from tests.fault.watching.live import SEEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fault.checking.checker_histories import Effect, Given, World
    from tests.fault.checking.reading_columns import Table


def chosen(world: World, fits: Callable[[Given], bool], act: Callable[[Given], None]) -> bool:
    """Act on a random record that has effects and fits."""
    found = [one for one in world.owners() if fits(one)]
    if found:
        act(world.rng.choice(found))
    return bool(found)


def _changed(
    world: World,
    change: Callable[[Effect], Effect],
    fits: Callable[[Effect], bool] = lambda _effect: True,
) -> bool:
    found = [one for one in world.effects() if fits(one)]
    if found:
        effect = world.rng.choice(found)
        lane = world.lanes[effect.lane]
        lane[lane.index(effect)] = change(effect)
    return bool(found)


def from_elsewhere(world: World) -> bool:
    def alone(one: Effect) -> bool:
        return len(due(one.given)) == 1 and len(world.copies(one.given)) == 1

    named = world.rng.choice([b"x", b"other/0/1", b"in/0/x", b"in/7/1", b"in/0/-1"])
    return _changed(
        world, lambda one: replace(one, headers=one.headers | {"hapax-source": named}), alone
    )


def wrong_value(world: World) -> bool:
    return _changed(world, lambda one: replace(one, value=b"9" + one.value))


def wrong_check(world: World) -> bool:
    def flip(one: Effect) -> Effect:
        last = b"0" if one.value[-1:] != b"0" else b"1"
        return replace(one, value=one.value[:-1] + last)

    return _changed(world, flip, lambda one: one.slot > 0)


def unreadable_value(world: World) -> bool:
    return _changed(world, lambda one: replace(one, value=b"?"))


def wrong_key(world: World) -> bool:
    return _changed(world, lambda one: replace(one, key=one.key + b"1"))


def wrong_id(world: World) -> bool:
    return _changed(world, lambda one: replace(one, headers=one.headers | {"hapax-id": b"r-1-777"}))


def wrong_header(world: World) -> bool:
    return _changed(world, lambda one: replace(one, headers=one.headers | {"dup": b"7"}))


def header_missing(world: World) -> bool:
    def drop(one: Effect) -> Effect:
        kept = {name: text for name, text in one.headers.items() if name != "message-id"}
        return replace(one, headers=kept)

    return _changed(world, drop, lambda one: one.slot > 0)


def header_too_many(world: World) -> bool:
    return _changed(
        world,
        lambda one: replace(one, headers=one.headers | {"more": b"1"}),
        lambda one: one.slot > 0,
    )


def part_of_one(world: World) -> bool:
    return _changed(
        world,
        lambda one: replace(one, headers=one.headers | {"hapax-part": b"1/1"}),
        lambda one: one.slot > 0 and "hapax-part" not in one.headers,
    )


def wrong_attempts(world: World) -> bool:
    return _dead_letter(world, {"hapax-attempts": b"2"})


def wrong_error(world: World) -> bool:
    return _dead_letter(world, {"hapax-error": b"?"})


def no_app(world: World) -> bool:
    return _dead_letter(world, {"hapax-app": b""})


def _dead_letter(world: World, wrong: dict[str, bytes]) -> bool:
    return _changed(
        world,
        lambda one: replace(one, headers=one.headers | wrong),
        lambda one: one.way == DEAD_WAY,
    )


def wrong_parts(world: World) -> bool:
    return _changed(
        world,
        lambda one: replace(one, headers=one.headers | {"hapax-part": b"%d/9" % one.slot}),
        lambda one: one.slot > 0,
    )


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
