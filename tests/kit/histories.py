"""Random histories of a pipeline as an audit sees them, in which the promise was kept.

A history has two input partitions, two output partitions and one of dead letters, and its own
ids. Many histories make one pair of tables, so one Spark job judges them all. What can be wrong
with one is in anomalies.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from hapax.operations.audit.result import InputBounds, OutputBounds
from hapax.operations.audit.rows import DEAD_SLOT, POISON, InputRow, content_hash, id_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = tuple[Any, ...]

PLACES, LANES, DEAD_LANE = 2, 3, 2


@dataclass(frozen=True)
class Given:
    """One input record. ``outputs``: how many are due, or POISON."""

    place: int
    offset: int
    outputs: int
    event: str | None
    visible: bool = True


@dataclass(frozen=True)
class Effect:
    """One output or dead letter, at its turn in its lane."""

    place: int
    offset: int
    slot: int
    parts: int
    content: int

    @property
    def lane(self) -> int:
        return DEAD_LANE if self.slot == DEAD_SLOT else self.place


@dataclass
class History:
    """What is in the topics. ``committed`` by place; lanes hold effects in order."""

    rng: random.Random
    claimed: bool
    inputs: list[Given] = field(default_factory=list)
    lanes: list[list[Effect]] = field(default_factory=lambda: [[] for _ in range(LANES)])
    committed: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def written(self) -> Iterator[Given]:
        """Yield the records that have effects, as the lanes say."""
        found = {(one.place, one.offset) for lane in self.lanes for one in lane}
        yield from (one for one in self.done() if (one.place, one.offset) in found)

    def done(self) -> list[Given]:
        return [
            one for one in self.inputs if one.visible and one.offset < self.committed[one.place]
        ]

    def copies(self, given: Given) -> list[Given]:
        """Return the visible records of the same event, itself among them."""
        if given.event is None or not self.claimed:
            return [given]
        return [one for one in self.inputs if one.visible and one.event == given.event]

    def insert(self, effect: Effect) -> None:
        """Put an effect where the order of its input partition wants it."""
        lane = self.lanes[effect.lane]
        rank = (effect.offset, effect.slot)
        ahead = [
            at
            for at, one in enumerate(lane)
            if one.place == effect.place and (one.offset, one.slot) > rank
        ]
        lane.insert(ahead[0] if ahead else len(lane), effect)

    def remove(self, given: Given) -> None:
        for lane in self.lanes:
            lane[:] = [
                one for one in lane if (one.place, one.offset) != (given.place, given.offset)
            ]


def contents(given: Given) -> list[Effect]:
    """Return all effects that the record asks for."""
    if given.outputs == POISON:
        return [Effect(given.place, given.offset, DEAD_SLOT, 1, content_of(given, DEAD_SLOT))]
    return [
        Effect(given.place, given.offset, slot, given.outputs, content_of(given, slot))
        for slot in range(1, given.outputs + 1)
    ]


def right(seed: int, *, claimed: bool = True) -> History:
    """Return a history in which the promise was kept."""
    rng = random.Random(seed)
    history = History(rng, claimed)
    events = 0
    for place in range(PLACES):
        offset = rng.choice([0, 0, 17])
        for _ in range(rng.randint(8, 40)):
            offset += rng.choice([1, 1, 1, 2, 5])  # markers, compacted records
            kind = rng.random()
            event: str | None = f"{seed}-{events}"
            events += 1
            if kind < 0.25 and history.inputs:
                event = rng.choice(history.inputs).event
            elif kind < 0.35:
                event = None
            due = rng.choice([POISON, 0, 1, 1, 2, 3])
            same = [one.outputs for one in history.inputs if event and one.event == event]
            due = same[0] if same else due
            visible = rng.random() > 0.1
            history.inputs.append(Given(place, offset, due, event, visible))
        history.ends.append(offset + rng.randint(1, 3))
        history.committed.append(rng.choice([offset + 1, history.ends[-1], offset - 3]))
    _process(history)
    return history


def _process(history: History) -> None:
    """Take the partitions in random turns; the first of an event that is taken owns it."""
    rng, owned = history.rng, set[str]()
    queues = [[one for one in history.done() if one.place == place] for place in range(PLACES)]
    while any(queues):
        queue = rng.choice([queue for queue in queues if queue])
        given = queue.pop(0)
        if history.claimed and given.event is not None:
            if given.event in owned:
                continue
            owned.add(given.event)
        for effect in contents(given):
            history.lanes[effect.lane].append(effect)


def content_of(given: Given, slot: int) -> int:
    return content_hash(slot, "", b"", f"{given.event or (given.place, given.offset)}".encode())


def rows(
    histories: list[History], *, known: bool = True
) -> tuple[list[Row], list[Row], list[InputBounds], list[OutputBounds]]:
    """Return input rows, effect rows, and both lists of bounds."""
    inputs: list[Row] = []
    effects: list[Row] = []
    input_bounds: list[InputBounds] = []
    output_bounds: list[OutputBounds] = []
    for number, history in enumerate(histories):
        base = number * PLACES
        inputs += [
            (base + one.place, *_input_row(one, base, known=known), None) for one in history.inputs
        ]
        input_bounds += [_input_bounds(history, place) for place in range(PLACES)]
        for at, lane in enumerate(history.lanes):
            offset = 0
            turns = [history.rng.choice([1, 1, 1, 2]) for _ in lane]  # markers
            offsets = [0, *accumulate(turns)]
            offset = offsets.pop()
            effects += [
                (number * LANES + at, *_effect_row(effect, base, offset_))
                for effect, offset_ in zip(lane, offsets, strict=True)
            ]
            output_bounds.append(
                OutputBounds(
                    topic="out",
                    partition=number * LANES + at,
                    low=0,
                    settled=offset + 1,
                    end=offset + 1,
                    high=offset + 1,
                )
            )
    return inputs, effects, input_bounds, output_bounds


def _input_row(one: Given, base: int, *, known: bool) -> InputRow:
    place = base + one.place
    if not one.visible:
        return InputRow(one.offset, one.visible, place, one.offset, None, None, None, None)
    content = 0
    for effect in contents(one):
        content ^= effect.content
    event_id = None if one.event is None else id_hash(f"{base} {one.event}".encode()) + b"\0"
    outputs = one.outputs if known else None
    return InputRow(one.offset, one.visible, place, one.offset, event_id, outputs, content, None)


def _effect_row(one: Effect, base: int, at: int) -> Row:
    return (
        at,
        base + one.place,
        one.offset,
        one.slot,
        one.parts,
        one.content,
        False,
        None,
        None,
        None,
        None,
    )


def _input_bounds(history: History, place: int) -> InputBounds:
    end = history.ends[place]
    return InputBounds(
        topic="in",
        partition=place,
        low=0,
        start=0,
        until=min(history.committed[place], end),
        committed=history.committed[place],
        end=end,
    )
