"""Random histories of the fault suite as an audit sees them: rows of inputs and effects, bounds.

Many histories make one pair of tables, so one Spark job judges them all. What can be wrong with
one is planted by tests/fault/checking/checker_anomalies.py.
"""

from typing import Any

from hapax.operations.audit.result import InputBounds, OutputBounds
from hapax.operations.audit.rows import (
    POISON,
    VISIBLE,
    InputRow,
    aborted_row,
    content_hash,
    id_hash,
    number_of,
)
from tests.fault import rules
from tests.fault.checking import checker_anomalies as anomalies
from tests.fault.checking.checker_anomalies import Plant
from tests.fault.checking.checker_histories import (
    LANES,
    PARTITIONS,
    Effect,
    Given,
    World,
    due,
    right,
)

Row = tuple[Any, ...]

NAMELESS = 10, 3
"""Of so many events one has no id; those that were written twice have."""

PLANTED: dict[str, list[Plant]] = {
    "missing": [anomalies.lost],
    "dedup_loss": [anomalies.dedup_loss],
    "doubled": [anomalies.duplicate, anomalies.dead_letter_and_outputs],
    "repeated": [anomalies.repeated],
    "out_of_order": [anomalies.order],
    "torn": [anomalies.torn_txn],
    "wrong": [anomalies.wrong_value, anomalies.wrong_number],
    "orphaned": [anomalies.orphaned],
    "from_aborted": [anomalies.aborted_read],
    "ahead": [anomalies.early],
}
"""By class of the audit: what is planted for it."""


def planted(plant: Plant, count: int) -> list[tuple[World, int]]:
    """Return histories with room for the anomaly, and how often it is in each."""
    found: list[tuple[World, int]] = []
    for seed in range(1000, 2000):
        history = right(seed, whole=False)
        if number := plant(history):
            found.append((history, number))
        if len(found) == count:
            return found
    raise AssertionError("no room for this anomaly")


def rows(
    worlds: list[World], *, known: bool = True
) -> tuple[list[Row], list[Row], list[InputBounds], list[OutputBounds]]:
    """Return input rows, effect rows, and both lists of bounds."""
    inputs: list[Row] = []
    effects: list[Row] = []
    input_bounds: list[InputBounds] = []
    output_bounds: list[OutputBounds] = []
    for number, world in enumerate(worlds):
        first = number * PARTITIONS
        inputs += _inputs(world, first, known=known)
        input_bounds += [_input_bounds(world, place) for place in range(PARTITIONS)]
        for at, lane in enumerate(LANES, start=number * len(LANES)):
            offset = -1
            for effect in world.lanes[lane]:
                offset += world.rng.choice([1, 1, 1, 2])  # markers
                place = first + effect.given.place
                effects.append((at, offset, place, *_effect(effect), False, *([None] * 4)))
            end = offset + 2
            output_bounds.append(
                OutputBounds(topic="out", partition=at, low=0, settled=end, end=end, high=end)
            )
    return inputs, effects, input_bounds, output_bounds


def _inputs(world: World, first: int, *, known: bool) -> list[Row]:
    found = [
        (first + one.place, _input_row(world, one, first, known=known)) for one in world.inputs
    ]
    found += [
        (first + one.place, aborted_row(first + one.place, one.offset)) for one in world.aborted
    ]
    found.sort(key=lambda pair: (pair[0], pair[1].offset))
    return [(place, *row, None) for place, row in found]


def _input_row(world: World, one: Given, first: int, *, known: bool) -> InputRow:
    content = 0
    for effect in due(one):
        content += _content(effect)
    every, which = NAMELESS
    named = one.number % every != which or len(world.copies(one)) > 1
    event_id = id_hash(f"{first} {one.number}".encode()) + b"\0" if named else None
    outputs = POISON if rules.is_poison(one.number) else len(due(one))
    owner = number_of(first + one.place, one.offset)
    return InputRow(one.offset, VISIBLE, owner, event_id, outputs if known else None, content, None)


def _effect(one: Effect) -> tuple[int, int, int, int]:
    """Return offset of its record, slot, number of parts, content."""
    _part, _of, parts = one.headers.get("hapax-part", b"1/1").partition(b"/")
    return one.given.offset, one.slot, int(parts) if one.slot else 1, _content(one)


def _content(one: Effect) -> int:
    return content_hash(one.slot, str(one.way), one.key, one.value)


def _input_bounds(world: World, place: int) -> InputBounds:
    end, committed = world.ends[place].stable, world.committed[place] or 0
    return InputBounds(
        topic="in",
        partition=place,
        low=0,
        start=0,
        until=min(committed, end),
        committed=committed,
        end=end,
    )
