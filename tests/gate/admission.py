"""Tests on real servers that each commit plays, and how often each was tried beside a busy core.

``admitted.tsv`` has a line for each: runs, failures, the commit of the last runs, the test. It is
named without parameters where all of them play. A test is admitted for good after RUNS_MIN runs
without a failure (``make soak``); the gate says how many are still on trial.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

RUNS_MIN = 100
FILE = Path(__file__).with_name("admitted.tsv")


class Admitted(NamedTuple):
    """A line: ``failures`` are those since the test or what it tests was last changed."""

    runs: int
    failures: int
    commit: str
    test: str


@cache
def admitted() -> dict[str, Admitted]:
    rows = (line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()[1:])
    lines = [
        Admitted(int(runs), int(failures), commit, test) for runs, failures, commit, test in rows
    ]
    return {line.test: line for line in lines}


def is_admitted(nodeid: str) -> bool:
    return nodeid in admitted() or nodeid.partition("[")[0] in admitted()


def on_trial() -> list[Admitted]:
    """Return those with too few runs so far."""
    return [line for line in admitted().values() if line.runs < RUNS_MIN]


def write(lines: dict[str, Admitted]) -> None:
    head = "\t".join(Admitted._fields)
    rows = ("\t".join(map(str, line)) for line in sorted(lines.values(), key=lambda one: one.test))
    FILE.write_text("\n".join((head, *rows)) + "\n", encoding="utf-8")
    admitted.cache_clear()
