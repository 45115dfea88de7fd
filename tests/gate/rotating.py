"""What CI plays beside ``make test``: parts that are fixed, and parts that rotate in a time box.

The boxes share what is left of the time, whatever the machine has made of it so far; no run is cut
off without a verdict, a slow one plays less and says what it owes.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.gate import parts
from tests.gate.parts import PYTHON, Part
from tests.kit.turn import turn

SCHEDULES = 20_000
_SPARK_NAMES = ("faults on a Spark cluster", "faults on both engines")
PROOF = "build/proof"
ON_TRIAL = ("deep", "long", "faults of rows", *_SPARK_NAMES)
"""Parts whose failures CI prints and does not count yet: their tests were moved here from a run
that played all of them, and no series of green runs has shown so far that they pass as they are
played now. A part leaves the list when CI has played all of its shares without a failure."""
_SLACK_S = 240.0
"""What has begun within its box may end behind it."""
_BOX_MIN_MINUTES = 1.0


class Box(NamedTuple):
    """Parts that run side by side in so many minutes. ``weight``: of the time that is left."""

    weight: float
    fill: Callable[[float], list[Part]]


def groups(minutes: float) -> Iterator[list[Part]]:
    """Yield the parts that run together, one group after the other."""
    ends = time.monotonic() + 60 * minutes
    yield from _fixed()
    boxes = _boxes()
    for number, box in enumerate(boxes):
        share = box.weight / sum(each.weight for each in boxes[number:])
        left = (ends - time.monotonic()) / 60 * share
        yield box.fill(max(left, _BOX_MIN_MINUTES))


def _fixed() -> list[list[Part]]:
    """Return what every commit plays. The guard measures, so it is alone."""
    seed = str(turn() * SCHEDULES)
    simulate = ("-m", "tests.simulation", "--seed", seed, "--count", str(SCHEDULES), "--jobs", "2")
    return [
        [Part("simulate", (PYTHON, *simulate))],
        [Part("guard", (PYTHON, "-m", "bench", "guard"))],
        [
            Part("sanitize", (".ci/sanitize",)),
            Part("release", ("make", "--no-print-directory", "release")),
        ],
    ]


def _boxes() -> list[Box]:
    return [
        Box(4, lambda minutes: [_tests("deep", minutes, share=3, lanes=4, at_least=20)]),
        Box(3, lambda minutes: [_tests("long", minutes, share=5, lanes=2, at_least=5)]),
        Box(
            3,
            lambda minutes: [
                _faults(minutes),
                _trials("controls", minutes, share=4),
                _trials("mutants", minutes, share=8),
            ],
        ),
        Box(2, lambda _: [_SPARK[turn() % len(_SPARK)]]),
    ]


def _tests(layer: str, minutes: float, *, share: int, lanes: int, at_least: int) -> Part:
    command = (
        *parts.tests(layer, lanes=lanes),
        *("--share", str(share), "--minutes", f"{minutes:.1f}", "--at-least", str(at_least)),
        *_owed(layer),
        "tests",
    )
    return Part(layer, command, limit_s=60 * minutes + _SLACK_S)


def _faults(minutes: float) -> Part:
    return Part(
        "faults of rows",
        (
            *(*_RUN, "ci", *_ROWS, "--minutes", f"{minutes:.1f}", "--at-least", "5"),
            *_owed("faults"),
            *("--folder", PROOF),
        ),
        limit_s=60 * minutes + _SLACK_S,
    )


def _trials(kind: str, minutes: float, *, share: int) -> Part:
    return Part(
        kind,
        (
            *(PYTHON, "-m", f"tests.fault.{kind}", "--all", "--share", str(share)),
            *("--folder", PROOF),
            *("--minutes", f"{minutes:.1f}", "--at-least", "1"),
            *_owed(kind),
        ),
        niceness=5,
        limit_s=60 * minutes + _SLACK_S,
    )


_RUN = (PYTHON, "-m", "tests.fault", "run")
_ROWS = ("--each-row", "--share", "2", "--shared", "--rate", "1000")
_SPARK = [
    Part(_SPARK_NAMES[0], (*_RUN, "cluster", *_ROWS, "--minutes", "3", "--folder", PROOF)),
    Part(
        _SPARK_NAMES[1],
        (*_RUN, "chaos", *("--engine", "mixed", "--seconds", "45", "--shared", "--folder", PROOF)),
    ),
]
"""One a commit."""


def _owed(kind: str) -> tuple[str, ...]:
    """Keep what is owed over clones: in the cache of this user."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    file = str(Path(root) / "hapax" / "owed" / f"{kind}.txt")
    return ("--first", file, "--owed", file)
