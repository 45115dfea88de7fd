"""Collects what is found: numbers by class, and a few examples that a person can read."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tests.fault.checking.history import History
from tests.fault.results import VIOLATIONS

EXAMPLES_MAX = 5


class Findings:
    """What was found so far. ``counts`` holds every class."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(VIOLATIONS, 0)
        self.examples: dict[str, list[str]] = {}

    def add(self, name: str, found: NDArray[np.integer], describe: Callable[[int], str]) -> None:
        """Count ``found`` under a class; ``describe`` says what one of them is."""
        if not len(found):
            return
        self.counts[name] += len(found)
        examples = self.examples.setdefault(name, [])
        room = EXAMPLES_MAX - len(examples)
        examples += [describe(int(one)) for one in found[:room]]


class Words:
    """Says records and effects as a person wants to read them."""

    def __init__(self, history: History) -> None:
        self._history = history

    def record(self, at: int) -> str:
        one = self._history.inputs[at]
        twin = " (second copy)" if one["copy"] else ""
        return f"{self._history.source}/{one['lane']}/{one['offset']}: event {one['number']}{twin}"

    def effect(self, at: int) -> str:
        """Return coordinates of an effect, what it is, and who wrote it."""
        one = self._history.effects[at]
        lane = self._history.lanes[one["lane"]]
        who = self._history.whos[one["who"]]
        what = "dead letter" if lane.way < 0 else f"output {one['slot']}/{one['parts']}"
        return (
            f"{lane.topic}/{lane.partition}/{one['at']}: {what} of"
            f" {self._history.source}/{one['place']}/{one['source']}, event {one['event']}"
            + (f", written by {who}" if who else "")
        )

    def record_with(self, at: int, effects: NDArray[np.integer]) -> str:
        lanes = self._history.lanes
        rows = self._history.effects[effects[:12]]
        where = [f"{lanes[e['lane']].topic}/{lanes[e['lane']].partition}/{e['at']}" for e in rows]
        whos = sorted({self._history.whos[e["who"]] for e in rows} - {""})
        written = f", written by {', '.join(whos)}" if whos else ""
        return f"{self.record(at)}, {len(effects)} effects at {', '.join(where)}{written}"
