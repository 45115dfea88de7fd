"""The cheapest layer in which a thing is played that shows that tests can fail.

A layer of pytest (tests/gate/layers.py) as it collects, or a part of ``make deep`` that plays
trials and campaigns (tests/gate/rotating.py).
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tests.fault import plans
from tests.fault.plan import Fault
from tests.fault.striking import strikes
from tests.gate.layers import layer_of

ROOT = Path(__file__).parents[2]
RULES = "rules"
CONTROLS, MUTANTS, ROWS = "controls", "mutants", "faults of rows"
CLUSTER, ENGINES = "faults on a Spark cluster", "faults on both engines"
BY_COST = (RULES, "promises", "deep", ROWS, "long", CONTROLS, MUTANTS, CLUSTER, ENGINES)
"""All of ``make test`` and ``make deep``."""
_HOLD_PLANTS = (
    *("tests/fault", "tests/simulation", "tests/unit/test_spark_mutants.py"),
    *("tests/unit/test_mutants.py", "tests/unit/test_audit_local.py"),
)
_FILE = "LAYERS_OF_TESTS"


class Tests:
    """Layers of tests as they are collected, by test and by row of the fault matrix."""

    def __init__(self, found: dict[str, list[str]]) -> None:
        self._layers = {name: layer for name, (layer, *_rows) in found.items()}
        self._by_row: dict[str, set[str]] = {}
        for layer, *rows in found.values():
            for row in rows:
                self._by_row.setdefault(row, set()).add(layer)

    def of(self, test: str, *parameters: str) -> str:
        """Return the layer of a test, by its file and function."""
        return self._layers[f"{test}[{'-'.join(parameters)}]"]

    def of_row(self, row: str) -> str:
        """Return the cheapest layer of what strikes with a row."""
        found = self._by_row.get(row, set()) | {
            part for part, rows in struck().items() if row in rows
        }
        return min(found, key=BY_COST.index)


def struck() -> dict[str, set[str]]:
    """Return the rows that campaigns of ``make deep`` strike with, by part."""
    ci = [fault for step in plans.ci().steps(Random(1)) for fault in step]
    both = (*strikes.SPARK, *plans.MEMBERS, *strikes.B_KILLS)
    return {ROWS: _rows(ci), CLUSTER: _rows(strikes.CLUSTER), ENGINES: _rows(both) | {"X1", "SP25"}}


def _rows(faults: Iterable[Fault]) -> set[str]:
    return {row for fault in faults for row in fault.rows}


@functools.cache
def collected() -> Tests:
    """Collect the tests that play what is planted, or strike with a row."""
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    of_rows = [file for file in every if "mark.row(" in file.read_text()]
    files = [*_HOLD_PLANTS, *(file.relative_to(ROOT).as_posix() for file in of_rows)]
    with tempfile.NamedTemporaryFile() as kept:
        command = (
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", __name__),
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # it brings the service with it
            *("-p", "no:cacheprovider", "-p", "no:xdist", *dict.fromkeys(files)),
        )
        environment = {**os.environ, _FILE: kept.name}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        return Tests(json.loads(Path(kept.name).read_text()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the layer and the rows of each test that is not for ``make full`` alone."""
    found = {
        item.nodeid: [layer, *rows]
        for item in session.items
        if (layer := _cheapest(item)) in BY_COST
        and not any(mark.args[:1] == (True,) for mark in item.iter_markers("skipif"))
        for rows in [[row for mark in item.iter_markers("row") for row in mark.args]]
    }
    Path(os.environ[_FILE]).write_text(json.dumps(found))


def _cheapest(item: pytest.Item) -> str:
    order = (*BY_COST, "alone")
    return min((layer_of(item, turn) for turn in (0, 1)), key=order.index)
