"""What a benchmark has found: written by ``--json``, read by the report.

``Runs`` holds by contender one entry for each round, None where the run was void.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from hapax.sandbox.machine import say

Run = dict[str, float]
Runs = dict[str, list[Run | None]]


class Made(msgspec.Struct, kw_only=True):
    """When and how a part was measured.

    machine  what the figures depend on, with versions
    load     of the machine, at the start and at the end
    missing  by contender, why it was not measured
    voids    runs that do not count, with the reason
    """

    date: str = ""
    command: str = ""
    seconds: float = 0.0
    machine: dict[str, str] = msgspec.field(default_factory=dict)
    load: list[float] = msgspec.field(default_factory=list)
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    voids: list[str] = msgspec.field(default_factory=list)

    def void(self, where: str, error: Exception) -> None:
        why = str(error).splitlines()[-1] if str(error) else type(error).__name__
        say(f"VOID: {where}: {error}")
        self.voids.append(f"{where}: {why}")

    def miss(self, name: str, why: str) -> None:
        """Name a contender that cannot be measured here."""
        say(f"Not measured: {name}: {why}")
        self.missing[name] = why.splitlines()[-1] if why else "it failed"


class Results(msgspec.Struct, kw_only=True):
    """One benchmark, or the newest parts of several.

    parts    by name (see course.PARTS), as that part made it
    made     by name, how that part was measured
    """

    parts: dict[str, Any] = msgspec.field(default_factory=dict)
    made: dict[str, Made] = msgspec.field(default_factory=dict)

    @property
    def missing(self) -> dict[str, str]:
        """By contender, why it was not measured."""
        return {name: why for each in self.made.values() for name, why in each.missing.items()}

    @property
    def voids(self) -> list[str]:
        return [line for each in self.made.values() for line in each.voids]

    def joined(self, newer: Results) -> Results:
        """Return it with the parts of a newer benchmark in place of its own."""
        return Results(parts=self.parts | newer.parts, made=self.made | newer.made)


def write(results: Results | dict[str, Any], path: Path) -> None:
    """Write JSON that a difference can be read of: figures with as many digits as they mean."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = msgspec.json.encode(_rounded(msgspec.to_builtins(results)))
    path.write_bytes(msgspec.json.format(raw, indent=1) + b"\n")


def read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def values(runs: Runs, name: str, key: str) -> list[float]:
    """Return one figure of all runs of a contender that count."""
    return [run[key] for run in runs.get(name, []) if run is not None]


def ratios(runs: Runs, name: str, other: str, key: str) -> list[float]:
    """Return a figure against that of another contender, within each round that has both."""
    pairs = zip(runs.get(name, []), runs.get(other, []), strict=False)
    return [one[key] / two[key] for one, two in pairs if one is not None and two is not None]


def median_ratio(runs: Runs, name: str, other: str, key: str) -> float | None:
    found = ratios(runs, name, other, key)
    return statistics.median(found) if found else None


def today() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _rounded(found: Any) -> Any:
    if isinstance(found, float):
        return float(f"{found:.5g}")
    if isinstance(found, dict):
        return {name: _rounded(each) for name, each in found.items()}
    if isinstance(found, list):
        return [_rounded(each) for each in found]
    return found
