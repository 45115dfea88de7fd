"""Anomalies to plant in a history, one for each class of the audit.

Each returns how many it has planted, 0 when the history has no room for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hapax.operations.audit.rows import DEAD_SLOT
from tests.kit.histories import PLACES, Effect, content_of, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.histories import Given, History


def missing(history: History) -> int:
    one = _chosen(history, lambda given: len(history.copies(given)) == 1)
    if one is None:
        return 0
    history.remove(one)
    return 1


def dedup_loss(history: History) -> int:
    one = _chosen(
        history,
        lambda given: (
            len(copies := history.copies(given)) > 1
            and all(copy.offset < history.committed[copy.place] for copy in copies)
        ),
    )
    if one is None:
        return 0
    history.remove(one)
    return 1


def doubled(history: History) -> int:
    one = _chosen(history)
    if one is None:
        return 0
    effects = contents(one)
    for effect in effects:
        history.lanes[effect.lane].append(effect)
    return len(effects)


def doubled_as_dead_letter(history: History) -> int:
    one = _chosen(history, lambda given: given.outputs > 0)
    if one is None:
        return 0
    history.insert(Effect(one.place, one.offset, DEAD_SLOT, 1, content_of(one, DEAD_SLOT)))
    return 1


def repeated(history: History) -> int:
    written = {(one.place, one.offset) for one in history.written()}
    twins = [
        one for one in history.done() if one.outputs and (one.place, one.offset) not in written
    ]
    owned = [
        one
        for one in twins
        if any((copy.place, copy.offset) in written for copy in history.copies(one))
    ]
    if not owned:
        return 0
    for effect in contents(history.rng.choice(owned)):
        history.insert(effect)
    return 1


def out_of_order(history: History) -> int:
    for lane in history.lanes:
        for place in range(PLACES):
            places = [at for at, one in enumerate(lane) if one.place == place]
            if len(places) > 1:
                first = history.rng.randrange(len(places) - 1)
                here, there = places[first], places[first + 1]
                lane[here], lane[there] = lane[there], lane[here]
                return 1
    return 0


def torn(history: History) -> int:
    one = _chosen(history, lambda given: given.outputs > 1)
    if one is None:
        return 0
    effects = contents(one)
    gone = history.rng.choice(effects)
    history.lanes[gone.lane].remove(gone)
    return 1


def wrong_value(history: History) -> int:
    one = _chosen(history)
    if one is None:
        return 0
    effect = history.rng.choice(contents(one))
    lane = history.lanes[effect.lane]
    lane[lane.index(effect)] = replace(effect, content=effect.content ^ 1)
    return 1


def wrong_number(history: History) -> int:
    one = _chosen(history, lambda given: given.outputs > 0)
    if one is None:
        return 0
    history.remove(one)
    for effect in contents(replace(one, outputs=one.outputs + 1)):
        history.insert(effect)
    return 1


def orphaned(history: History) -> int:
    known = {(one.place, one.offset) for one in history.inputs}
    free = [
        (place, offset)
        for place in range(PLACES)
        for offset in range(history.committed[place])
        if (place, offset) not in known
    ]
    place, offset = history.rng.choice(free)
    history.insert(Effect(place, offset, 1, 1, 0))
    return 1


def from_aborted(history: History) -> int:
    hidden = [
        one
        for one in history.inputs
        if not one.visible and one.outputs and one.offset < history.committed[one.place]
    ]
    if not hidden:
        return 0
    effects = contents(history.rng.choice(hidden))
    for effect in effects:
        history.insert(effect)
    return len(effects)


def ahead(history: History) -> int:
    open_ = [
        one
        for one in history.inputs
        if one.visible
        and one.outputs
        and one.offset >= history.committed[one.place]
        and len(history.copies(one)) == 1
    ]
    if not open_:
        return 0
    effects = contents(history.rng.choice(open_))
    for effect in effects:
        history.insert(effect)
    return len(effects)


def _chosen(history: History, fits: Callable[[Given], bool] = lambda _given: True) -> Given | None:
    found = [one for one in history.written() if fits(one)]
    return history.rng.choice(found) if found else None
