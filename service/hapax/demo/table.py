"""The result: what people read, and what machines read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from hapax.demo.damage import DemoFault
    from hapax.demo.judge import DemoVerdict
    from hapax.demo.story import DemoSummary

Row = tuple[str, Callable[["DemoVerdict"], int]]

_ROWS: list[Row] = [
    ("records in", lambda verdict: verdict.records_in),
    ("  distinct events", lambda verdict: verdict.events),
    ("records out", lambda verdict: verdict.outputs),
    ("dead letters", lambda verdict: verdict.dead_letters),
    ("duplicates removed", lambda verdict: verdict.duplicates_removed),
]
_ANOMALIES: list[Row] = [
    ("lost", lambda verdict: verdict.lost),
    ("doubled", lambda verdict: verdict.doubled),
    ("  sent twice", lambda verdict: verdict.doubled_by_repeats),
    ("  after a kill", lambda verdict: verdict.doubled_by_crashes),
    ("out of order", lambda verdict: verdict.out_of_order),
    ("wrong or torn", lambda verdict: verdict.wrong),
    ("from aborted records", lambda verdict: verdict.from_aborted),
]


_CELL_MAX = 22
"""What fits next to the other columns on a terminal of 80."""


def table(outcome: DemoSummary) -> Table:
    """Return both columns side by side."""
    grid = Table(box=SIMPLE_HEAD)
    grid.add_column("", no_wrap=True)
    grid.add_column("hapax", justify="right", no_wrap=True)
    grid.add_column("ordinary at-least-once loop", justify="right", no_wrap=True)
    both = (outcome.hapax, outcome.ordinary)
    for name, of in _ROWS:
        grid.add_row(name, *(f"{of(verdict):,}" for verdict in both))
    grid.add_row("aborted records hidden", *[f"{outcome.aborted:,}"] * 2)
    grid.add_row("faults", _counted(outcome.faults), _counted(outcome.ordinary_faults))
    if outcome.hand_overs:
        grid.add_row("hand-overs", str(len(outcome.hand_overs)), "")
    grid.add_section()
    for name, of in _ANOMALIES:
        grid.add_row(name, *(_judged(of(verdict)) for verdict in both))
    return grid


def sentences(outcome: DemoSummary) -> list[str]:
    """Return the result in words, offenders included."""
    words = []
    if outcome.exact:
        words.append("Exactly once: every event had its whole effect once, in order.")
    else:
        words.append("The promise was broken.")
        words += [
            f"  {kind}: {example}"
            for kind, examples in outcome.hapax.examples.items()
            for example in examples
        ]
        codes = [*outcome.exit_codes, *(one.exit_code for one in outcome.hand_overs)]
        if any(codes):
            words.append(f"  exit codes of those that were asked to leave: {codes}, not 0")
    words += [f"{one.sentence[0].upper()}{one.sentence[1:]}." for one in outcome.hand_overs]
    if outcome.ordinary.exact:
        words.append("The ordinary loop was exact, too, this time: the faults missed its gap.")
    return words


def figures(outcome: DemoSummary) -> dict[str, object]:
    """Return everything as JSON can have it."""
    found: dict[str, object] = msgspec.to_builtins(outcome)
    for name, verdict in (("hapax", outcome.hapax), ("ordinary", outcome.ordinary)):
        found[name] = {
            **msgspec.to_builtins(verdict),
            "doubled": verdict.doubled,
            "exact": verdict.exact,
        }
    return {"exact": outcome.exact, **found}


def _counted(faults: list[DemoFault]) -> str:
    kinds = Counter(fault.kind for fault in faults)
    words = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items()]
    line = ", ".join(words) or "none"
    return line if len(line) <= _CELL_MAX else ",\n".join(words)


def _judged(count: int) -> Text:
    return Text(f"{count:,}", "bold red" if count else "green")
