"""Which test reaches which line, and how long it takes: a plugin of pytest, on ``coverage``.

``coverage`` is not of the locked environment, for nothing else needs it: ``pip install coverage``.
Processes that a test starts count as well, as long as they end by themselves, as the service does
by ``os._exit``; what was killed leaves nothing behind. A line that is run at import alone is
reached by every test that reaches its module. A recording adds to that of other tests, as long as
the service is the same.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutations.candidates import ROOT
from tests.mutations.chosen import PACKAGES, modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = ROOT / "build/mutations"
TEST = "MUTATIONS_TEST"
"""The test at work, for the processes that it starts."""
HERE = "here"
NOTHING_IS_KILLED_BY = ("test_spark_mutants.py::test_a_broken", "test_native_", "unit/native")
"""Tests of broken copies, and long comparisons of the native path with this one."""


def reached_file(kind: str) -> Path:
    """Return where the reach of unit and contract tests, or of others, is kept."""
    return FOLDER / f"reach-{kind}.json"


def without_values(node_id: str) -> str:
    return node_id.partition("[")[0]


class Reach:
    """Records while pytest runs; ``kind`` names the file."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._begun = 0.0
        self._seconds: dict[str, float] = defaultdict(float)
        coverage: Any = importlib.import_module("coverage")
        FOLDER.mkdir(parents=True, exist_ok=True)
        for old in FOLDER.glob(f".coverage-{kind}.*"):
            old.unlink()
        self._data = FOLDER / f".coverage-{kind}"
        include = ",".join(f"{ROOT}/service/hapax/{name}/*" for name in PACKAGES)
        settings = FOLDER / f"coverage-{kind}.ini"
        settings.write_text(
            f"[run]\nparallel = true\nsigterm = true\npatch = _exit\ndata_file = {self._data}\n"
            f"context = ${{{TEST}}}\ninclude = {include}\ndisable_warnings = no-data-collected\n"
        )
        self._started = FOLDER / "started"
        self._started.mkdir(exist_ok=True)
        (self._started / "sitecustomize.py").write_text(
            "import coverage\ncoverage.process_startup()\n"
        )
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        path = [str(self._started), str(Path(coverage.__file__).parents[1])]
        os.environ["PYTHONPATH"] = os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])
        self._coverage: Any = coverage.Coverage(config_file=str(settings), context=HERE)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Let what runs from here on count for this test."""
        name = without_values(item.nodeid)
        os.environ[TEST] = name
        self._coverage.switch_context(name)
        begun = time.process_time()
        wall = time.monotonic()
        try:
            return (yield)
        finally:
            # The CPU is what a busy machine does not change; a test that waits costs its wait.
            waited = min(time.monotonic() - wall, 30.0)
            self._seconds[name] += max(time.process_time() - begun, waited / 10)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        coverage = importlib.import_module("coverage")
        whole = coverage.Coverage(config_file=os.environ["COVERAGE_PROCESS_START"])
        whole.combine()
        data = whole.get_data()
        found = Recorded.kept(self._kind)
        found.begin(self._seconds)
        for file in data.measured_files():
            name = Path(file).relative_to(ROOT).as_posix()
            for line, contexts in data.contexts_by_lineno(file).items():
                # "here|test" is of this process, "test" of one that it started.
                tests = {one.removeprefix(f"{HERE}|") for one in contexts} & self._seconds.keys()
                found.processes |= self._seconds.keys() & contexts
                found.lines.setdefault(name, {}).setdefault(line, set()).update(tests)
        found.keep(self._kind)


class Recorded:
    """Which tests reach a line, by file and line, and how many seconds each takes.

    ``processes`` are those that reach lines from processes that they start.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processes: set[str] = set()
        self.lines: dict[str, dict[int, set[str]]] = {}

    @classmethod
    def kept(cls, kind: str) -> Recorded:
        """Return what earlier recordings found in the service as it is; nothing in another one."""
        found, file = cls(), reached_file(kind)
        kept = json.loads(file.read_text()) if file.exists() else {}
        if kept.get("service") != service():
            return found
        tests = kept["tests"]
        found.seconds = dict(zip(tests, kept["seconds"], strict=True))
        found.processes = set(kept["processes"])
        found.lines = {
            name: {int(line): {tests[one] for one in numbers} for line, numbers in lines.items()}
            for name, lines in kept["lines"].items()
        }
        return found

    def begin(self, seconds: Mapping[str, float]) -> None:
        again = seconds.keys() & self.seconds.keys()
        self.processes -= again
        for lines in self.lines.values():
            for found in lines.values():
                found.difference_update(again)
        self.seconds |= {name: round(time_s, 3) for name, time_s in seconds.items()}

    def keep(self, kind: str) -> None:
        tests = sorted(self.seconds)
        number = {name: index for index, name in enumerate(tests)}
        lines = {
            name: {line: sorted(number[one] for one in found) for line, found in lines.items()}
            for name, lines in self.lines.items()
        }
        kept = {
            "service": service(),
            "tests": tests,
            "seconds": [self.seconds[name] for name in tests],
            "processes": sorted(self.processes),
            "lines": lines,
        }
        reached_file(kind).write_text(json.dumps(kept))


def service() -> str:
    digest = hashlib.sha256()
    for file in modules():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def pytest_configure(config: pytest.Config) -> None:
    """Begin before a module of the service is loaded by a test."""
    config.pluginmanager.register(Reach(os.environ["MUTATIONS_REACH"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what kills nothing and takes long."""
    items[:] = [
        item for item in items if not any(one in item.nodeid for one in NOTHING_IS_KILLED_BY)
    ]
