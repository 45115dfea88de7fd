"""Which tests are played on a mutation: those that reach its line, cheapest file first."""

import ast
import json
from typing import NamedTuple

from tests.mutations.candidates import ROOT, Mutation
from tests.mutations.reach import reached_file

ENDED_BY_KILL = {"service/hapax/engines/isolated_calls.py": "tests/unit/test_isolated_calls.py"}
"""Of modules whose processes end by a kill, which leaves no reach behind."""


class Chosen(NamedTuple):
    """Functions of tests, in the order of play.

    cost_s     what they took when the reach was recorded
    processes  whether some of them reach the line from a process that they start
    """

    tests: list[str]
    cost_s: float
    processes: bool


class Reached:
    """The reach of one layer."""

    def __init__(self, kind: str) -> None:
        recorded = json.loads(reached_file(kind).read_text())
        self._tests: list[str] = recorded["tests"]
        self._seconds: list[float] = recorded["seconds"]
        self._lines: dict[str, dict[str, list[int]]] = recorded["lines"]
        self._processes = set(recorded["processes"])

    def of(self, mutation: Mutation) -> Chosen:
        if mutation.file in ENDED_BY_KILL:
            return Chosen([ENDED_BY_KILL[mutation.file]], 15.0, processes=True)
        lines = self._lines.get(mutation.file, {})
        span = range(mutation.line, mutation.line + mutation.before.count("\n") + 1)
        found = {test for line in span for test in lines.get(str(line), ())}
        if _runs_at_import(mutation):  # once, under whichever test was the first to load it
            found = {test for every in lines.values() for test in every}
        cost: dict[str, float] = {}
        for test in found:
            file = self._tests[test].partition("::")[0]
            cost[file] = cost.get(file, 0.0) + self._seconds[test]
        order = sorted(
            found, key=lambda test: (cost[self._tests[test].partition("::")[0]], self._tests[test])
        )
        names = [self._tests[test] for test in order]
        return Chosen(names, sum(cost.values()), bool(self._processes & set(names)))


def _runs_at_import(mutation: Mutation) -> bool:
    tree = ast.parse((ROOT / mutation.file).read_bytes())
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return not any(
        one.body[0].lineno <= mutation.line <= (one.end_lineno or 0) for one in functions
    )
