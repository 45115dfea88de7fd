"""The parts of a run: what each plays, in how much processor time, and how it is played again."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "build" / "gate"
PYTHON = sys.executable
SOURCES = (
    "service",
    "tests",
    "bench",
    "deploy",
    "examples",
    "requirements",
    "fast/hapax_fast",
    "hatch_build.py",
)
PYTEST = (PYTHON, "-m", "pytest", "-q", "--durations", "10")


class Part(NamedTuple):
    """One command.

    cpu_s    processor time of it and all it starts: 25 % more is a failure; None: any
    niceness above 0 for what waits for nothing, beside tests that wait for servers
    """

    name: str
    command: tuple[str, ...]
    cpu_s: float | None = None
    niceness: int = 0
    limit_s: float = 2700.0

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name.replace(' ', '-')}.log"


def gate() -> list[list[Part]]:
    """Return what ``make test`` plays, one group after the other.

    Tests on real servers are alone: beside the others Spark took more than a minute to start, and
    all together no less time. The budgets only fall.
    """
    rules = [
        Part("lint", (PYTHON, "-m", "ruff", "check", *SOURCES), 5),
        Part("format", (PYTHON, "-m", "ruff", "format", "--check", *SOURCES), 5),
        Part("types", (PYTHON, "-m", "mypy", *SOURCES), 60, niceness=5),
        Part("rules", (*tests("rules", lanes=2), "tests"), 300),
    ]
    promises = (*tests("promises", lanes=4), "tests/contract", "tests/integration")
    return [rules, [Part("promises", promises, 440)]]


def tests(layer: str, *, lanes: int) -> tuple[str, ...]:
    # Of a lane that has crashed, the last test waited for ever (pytest-xdist 3.8, loadscope).
    once = ("--max-worker-restart", "0", "--no-loadscope-reorder")
    return (*PYTEST, "-n", str(lanes), *once, "--layer", layer)


def commit() -> str:
    return git("rev-parse", "--short=8", "HEAD")


def git(*words: str) -> str:
    command = ("git", "-C", str(ROOT), *words)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
