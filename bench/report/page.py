"""docs/performance.md from its template and the figures, and the sentence of the README."""

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench import results
from bench.contenders import NATIVE, PYTHON
from bench.report import tables
from bench.report.goals import CPU, goals
from bench.results import Results, Runs

# -- Pictures of what was found: SVG, the same bytes for the same figures and library ------

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


# -- The page ------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PAGE, README = ROOT / "docs/performance.md", ROOT / "README.md"
KEPT = ROOT / "docs/performance/runs.json"
NOT_MEASURED = "Not measured yet."
BUSY = 3
"""Load for each core above which a machine is busy: the benchmark itself makes 1 to 2."""
_TEMPLATE = Path(__file__).with_name("page.md")
_SHORT = re.compile(r"(?s)(<!-- performance -->).*?(<!-- /performance -->)")


def page(found: Results) -> str:
    parts = {
        name: "\n".join(table(found.parts[name])) if name in found.parts else NOT_MEASURED
        for name, table in tables.TABLES.items()
    }
    reached = [goal.reached for goal in goals(found)]
    sizes = {
        "records": f"{found.parts.get('throughput', {}).get('records', 0):,}",
        "partition_records": f"{found.parts.get('partitions', {}).get('records', 0):,}",
        "claims_ids": f"{found.parts.get('claims', {}).get('ids', 0):,}",
        "spark_records": f"{found.parts.get('spark', {}).get('records', 0):,}",
        "latency_seconds": f"{found.parts.get('latency', {}).get('seconds', 0):g}",
    }
    unmeasured = [f"{name}: not measured yet" for name in tables.TABLES if name not in found.parts]
    missing = [*unmeasured, *(f"{name}: {why}" for name, why in found.missing.items())]
    text = Template(_TEMPLATE.read_text("utf-8")).substitute(
        **parts,
        **sizes,
        goals="\n".join(tables.goals_table(found)),
        counted=f"{reached.count(True)} reached, {reached.count(False)} missed,"
        f" {reached.count(None)} not measured",
        made=_made(found),
        busy=_busy(found, list(tables.TABLES)),
        missing=_listed(missing),
        voids=_by_reason(found.voids),
        cpu_picture=_picture("throughput", "cpu.svg", "CPU a record", found),
        latency_picture=_picture("latency", "latency.svg", "Latency", found),
    )
    # A section without figures is one line in the list of what is missing.
    sections = re.split(r"(?m)^(?=###? )", text)
    return "".join(section for section in sections if NOT_MEASURED not in section)


def short(found: Results) -> str:
    part = found.parts.get("throughput")
    return tables.short(part, NATIVE[3].name, PYTHON[3].name) if part else NOT_MEASURED


def keep(newer: Sequence[Results]) -> None:
    """Join figures to those kept, and write page, pictures and the sentence of the README."""
    from bench.report.page import draw  # noqa: PLC0415 - slow to load, and for this alone

    found = results.read(KEPT) if KEPT.exists() else results.Results()
    for each in newer:
        found = found.joined(each)
    results.write(found, KEPT)
    found = results.read(KEPT)
    draw(found, KEPT.parent)
    PAGE.write_text(page(found), "utf-8")
    README.write_text(with_short(README.read_text("utf-8"), found), "utf-8")


def with_short(readme: str, found: Results) -> str:
    return _SHORT.sub(lambda match: f"{match[1]}{short(found)}{match[2]}", readme)


def tables_of(found: Results) -> str:
    """Return what was measured, for a terminal."""
    blocks = [
        f"{name}\n\n" + "\n".join(tables.TABLES[name](part)) for name, part in found.parts.items()
    ]
    blocks += ["Not measured:\n" + _listed([f"{n}: {why}" for n, why in found.missing.items()])]
    blocks += ["Void:\n" + _listed(found.voids)]
    return "\n\n".join(blocks)


def _made(found: Results) -> str:
    """Return a line for each machine, and one for each part with the state of its code."""
    machines = {
        tuple((name, value) for name, value in made.machine.items() if name != "commit")
        for made in found.made.values()
    }
    lines = [", ".join(f"{name} {value}" for name, value in facts) for facts in sorted(machines)]
    lines = [f"Made on: {line}." for line in lines]
    rows = [
        f"| {part} | {made.date} | {made.machine.get('commit', '')} | `{made.command}`"
        f" | {made.seconds / 60:.0f} min | {made.load[0]:g}, {made.load[-1]:g} |"
        for part, made in found.made.items()
    ]
    head = ["| part | when | commit | command | took | load before, after |", "|---" * 6 + "|"]
    return "\n".join([*lines, "", *head, *rows])


def _busy(found: Results, parts: Sequence[str]) -> str:
    """Return a warning where other programs used the machine meanwhile; else nothing."""
    loads = {
        part: max(found.made[part].load)
        for part in parts
        if part in found.made
        and max(found.made[part].load, default=0) > BUSY * int(found.made[part].machine["cores"])
    }
    if not loads:
        return ""
    words = ", ".join(f"{part} at a load of {load:g}" for part, load in loads.items())
    return (
        f"**The machine was busy with other programs ({words}): these figures are rough. Measure"
        " again on a quiet one.**"
    )


def _picture(part: str, file: str, title: str, found: Results) -> str:
    return f"![{title}](performance/{file})" if part in found.parts else ""


def _by_reason(voids: Sequence[str]) -> str:
    """Return a line for each reason, with the runs that it made void and what they measured."""
    runs: dict[str, list[str]] = defaultdict(list)
    for line in voids:
        where, _, why = line.partition(": ")
        reason, _, measured = why.partition(": ")
        runs[reason].append(f"{where} ({measured})" if measured else where)
    return _listed([f"{reason}: {'; '.join(each)}" for reason, each in runs.items()])


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None."
