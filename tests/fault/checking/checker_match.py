"""Which record each effect comes from, and what each record asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.fault import rules
from tests.fault.checking.history import found_in, place_keys
from tests.fault.checking.reading_columns import DEAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.fault.checking.history import History
    from tests.fault.checking.reading_columns import Table

WAYS = [rules.ways(number) for number in range(rules.PERIOD)]
OUTPUTS_MAX = max(map(len, WAYS))
STRANGE = OUTPUTS_MAX + 1
"""Slot of an effect that is no output of anything."""
SLOTS = STRANGE + 1


@dataclass(frozen=True)
class Matched:
    """By record, then by effect.

    outputs   how many outputs are due, were it not poison
    poison    whether a dead letter is due instead
    real      whether it is an event at all: its number is not negative
    done      whether it is below the committed offset
    made      shape (records, SLOTS): how many effects by slot
    record    by effect: place of its record in the inputs, -1 where there is none
    aborted   by effect: whether it names a record of an aborted transaction
    """

    outputs: NDArray[np.int8]
    poison: NDArray[np.bool_]
    real: NDArray[np.bool_]
    done: NDArray[np.bool_]
    made: NDArray[np.int32]
    record: NDArray[np.int64]
    aborted: NDArray[np.bool_]

    @property
    def due(self) -> NDArray[np.bool_]:
        """Return by record whether it asks for any effect."""
        return (self.outputs > 0) | self.poison

    @property
    def effective(self) -> NDArray[np.bool_]:
        """Return by record whether it has any effect."""
        return np.asarray(self.made.any(axis=1))


def match(history: History) -> Matched:
    """Return who belongs to whom."""
    inputs, effects = history.inputs, history.effects
    number = inputs["number"]
    sources = place_keys(effects["place"], effects["source"])
    record = found_in(place_keys(inputs["lane"], inputs["offset"]), sources)
    aborted = found_in(place_keys(history.aborted["lane"], history.aborted["offset"]), sources)
    known = record >= 0
    flat = record[known] * SLOTS + _slots(history, effects)[known]
    made = np.bincount(flat, minlength=len(inputs) * SLOTS).astype(np.int32)
    return Matched(
        outputs=np.array([len(ways) for ways in WAYS], np.int8)[number % rules.PERIOD],
        poison=rules.is_poison(number),
        real=number >= 0,
        done=inputs["offset"] < history.next_offsets[inputs["lane"]],
        made=made.reshape(-1, SLOTS),
        record=record,
        aborted=aborted >= 0,
    )


def _slots(history: History, effects: Table) -> NDArray[np.int64]:
    """Return the slot of each effect: by its topic and its header."""
    dead = np.array([lane.way < 0 for lane in history.lanes], bool)[effects["lane"]]
    slot = effects["slot"].astype(np.int64)
    slot = np.where((slot >= 1) & (slot <= OUTPUTS_MAX), slot, STRANGE)
    return np.where(dead, DEAD, slot)
