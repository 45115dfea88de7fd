"""Pictures of what was found: SVG, the same bytes for the same figures and library."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench import results
from bench.report.goals import CPU

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Results, Runs

_FRACTION = re.compile(r"(\d\.\d)\d+")
_OURS, _THEIRS, _BROKER, _REDIS = "#1f6fb4", "#8a8a8a", "#d9d9d9", "#d9730d"


def draw(found: Results, folder: Path) -> list[str]:
    """Write the pictures for which there are figures; return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    names = []
    if "throughput" in found.parts:
        _save(_cpu(found.parts["throughput"]["runs"]), folder / "cpu.svg")
        names.append("cpu.svg")
    if "latency" in found.parts:
        _save(_latency(found.parts["latency"]["rates"]), folder / "latency.svg")
        names.append("latency.svg")
    return names


def _cpu(runs: Runs) -> Figure:
    """Bars of CPU a record: the application, and what it costs broker and Redis."""
    names = [name for name in runs if results.values(runs, name, CPU)]
    names.sort(key=lambda name: -_median(runs, name, CPU))
    figure = Figure(figsize=(10, 0.8 + 0.3 * len(names)), layout="constrained")
    axes = figure.subplots()
    ends = [0.0] * len(names)
    for key, label in (("", "process"), ("broker_", "broker"), ("redis_", "Redis")):
        widths = [_median(runs, name, key + CPU) for name in names]
        colors: Any = {"broker_": _BROKER, "redis_": _REDIS}.get(key) or [
            _OURS if name.startswith("Hapax") else _THEIRS for name in names
        ]
        axes.barh(names, widths, left=ends, color=colors, label=label)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.set_xlabel("CPU, µs a record: process (blue: Hapax), broker (light), Redis (orange)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _latency(rates: list[dict[str, Any]]) -> Figure:
    """From p50 to p99 of each contender, a picture for each pace."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for each, axes in zip(rates, figure.subplots(1, len(rates), sharey=True), strict=True):
        runs: Runs = each["runs"]
        names = [name for name in runs if results.values(runs, name, "p50_ms")][::-1]
        for name in names:
            ends = [_median(runs, name, key) for key in ("p50_ms", "p99_ms")]
            color = _OURS if name.startswith("Hapax") else _THEIRS
            axes.plot(ends, [name, name], color=color, linewidth=5, solid_capstyle="butt")
        axes.set_title(f"{each['rate']:,} records/s", loc="left")
        axes.set_xlabel("ms until visible, p50 to p99")
        axes.set_xscale("log")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _median(runs: Runs, name: str, key: str) -> float:
    return statistics.median(results.values(runs, name, key))


def _save(figure: Figure, path: Path) -> None:
    with mpl.rc_context({"svg.hashsalt": "hapax", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    path.write_text(_FRACTION.sub(r"\1", path.read_text("utf-8")), "utf-8")
