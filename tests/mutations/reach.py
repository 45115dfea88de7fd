"""Which tests reach a mutation: recorded once by a plugin of pytest, on ``coverage``.

``coverage`` is not of the locked environment, for nothing else needs it: ``pip install coverage``.
Processes that a test starts count as well, as long as they end by themselves, as the service does
by ``os._exit``; what was killed leaves nothing behind. A recording adds to that of other tests, as
long as the service is the same.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutations.candidates import ROOT
from tests.mutations.chosen import PACKAGES, modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutations.candidates import Mutation

FOLDER = ROOT / "build/mutations"
LAYER, TEST = "MUTATIONS_LAYER", "MUTATIONS_TEST"
"""Which tests are recorded, and the one at work, for the processes that it starts."""
NOTHING_IS_KILLED_BY = ("test_spark_mutants.py::test_a_broken", "test_native_", "unit/native")
"""Tests of broken copies, and long comparisons of the native path with this one."""
ENDED_BY_KILL = {"service/hapax/engines/isolated_calls.py": "tests/unit/test_isolated_calls.py"}
"""Of modules whose processes end by a kill, which leaves no reach behind."""


def recorded(layer: str) -> Path:
    """Return the file with the reach of unit and contract tests, or of those on real servers."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in modules()))
    return FOLDER / f"reach-{layer}-{digest.hexdigest()[:12]}"


class Reach:
    """Records while pytest runs."""

    def __init__(self, layer: str) -> None:
        coverage: Any = importlib.import_module("coverage")
        FOLDER.mkdir(parents=True, exist_ok=True)
        include = ",".join(f"{ROOT}/service/hapax/{name}/*" for name in PACKAGES)
        settings = FOLDER / "coverage.ini"
        settings.write_text(
            f"[run]\nparallel = true\nsigterm = true\npatch = _exit\n"
            f"data_file = {recorded(layer)}\ncontext = ${{{TEST}-}}\ninclude = {include}\n"
            "disable_warnings = no-data-collected\n"
        )
        started = FOLDER / "started"
        started.mkdir(exist_ok=True)
        (started / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        path = [str(started), str(Path(coverage.__file__).parents[1])]
        os.environ["PYTHONPATH"] = os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])
        self._coverage: Any = coverage.Coverage(config_file=str(settings))
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Let what runs from here on count for this test."""
        os.environ[TEST] = item.nodeid.partition("[")[0]
        self._coverage.switch_context(os.environ[TEST])
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        whole = importlib.import_module("coverage").Coverage(
            config_file=os.environ["COVERAGE_PROCESS_START"], data_suffix=False
        )
        whole.load()  # what was recorded before
        whole.combine()
        whole.save()


def tests_of(mutation: Mutation, layer: str) -> list[str]:
    """Return the functions of tests that reach a mutation, by file, those with the fewest first.

    A line that is run at import alone is reached by every test that reaches its module.
    """
    if mutation.file in ENDED_BY_KILL:
        return [ENDED_BY_KILL[mutation.file]]
    data = importlib.import_module("coverage").CoverageData(str(recorded(layer)))
    data.read()
    lines = data.contexts_by_lineno(str(ROOT / mutation.file))
    span = range(mutation.line, mutation.line + mutation.before.count("\n") + 1)
    if _runs_at_import(mutation):  # once, under whichever test was the first to load it
        span = lines
    found = {test for line in span for test in lines.get(line, ())} - {""}
    files = Counter(test.partition("::")[0] for test in found)
    return sorted(found, key=lambda test: (files[test.partition("::")[0]], test))


def _runs_at_import(mutation: Mutation) -> bool:
    tree = ast.parse((ROOT / mutation.file).read_bytes())
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return not any(
        one.body[0].lineno <= mutation.line <= (one.end_lineno or 0) for one in functions
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin before a module of the service is loaded by a test."""
    config.pluginmanager.register(Reach(os.environ[LAYER]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what kills nothing and takes long."""
    items[:] = [
        item for item in items if not any(one in item.nodeid for one in NOTHING_IS_KILLED_BY)
    ]
