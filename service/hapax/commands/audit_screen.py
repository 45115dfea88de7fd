"""What people and machines see of an audit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hapax.operations.audit.result import ANOMALIES

if TYPE_CHECKING:
    from hapax.operations.audit.result import Audit, InputFindings

PARTITIONS_SHOWN = 40
_PLAIN_INTERVAL_S = 5.0
_COLUMNS_WITHOUT_TERMINAL = 160

_ACCOUNTS = {
    "records": "records",
    "with_outputs": "with outputs",
    "filtered": "filtered",
    "duplicates": "duplicates",
    "dead_letters": "dead letters",
}


class AuditScreen:
    """Says how far the audit is: a live line on a terminal, plain lines elsewhere; on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("") if self._console.is_terminal else None
        self._shown_s = 0.0
        self._what = ""

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def report(self, what: str, done: int, total: int) -> None:
        """Show what goes on."""
        text = f"{what}: {done:,} of {total:,}" if total else what
        if self._status is not None:
            self._status.update(text)
            return
        now_s = time.monotonic()
        if what != self._what or now_s - self._shown_s > _PLAIN_INTERVAL_S:
            self._what, self._shown_s = what, now_s
            self._console.print(text, markup=False)


def figures(audit: Audit) -> dict[str, object]:
    """Return everything as JSON can have it."""
    return {
        "clean": audit.clean,
        "anomalies": audit.anomalies,
        **msgspec.to_builtins(audit),
    }


def show(audit: Audit) -> None:
    """Print accounts, anomalies, the verdict, and where to look."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _COLUMNS_WITHOUT_TERMINAL
    shown = _shown(audit)
    console.print(_accounts(audit, shown))
    if not audit.clean:
        console.print(_anomalies(audit, shown))
    for sentence in sentences(audit):
        console.print(sentence, markup=False, soft_wrap=True)


def sentences(audit: Audit) -> list[str]:
    """Return the result in words."""
    records = audit.totals["records"]
    if audit.clean:
        unknown = audit.totals["unexplained"]
        words = [f"Kept: {records:,} records judged, each with its effect once, in order."]
        if unknown:
            # Without the transform it is not known whether they should have had an effect.
            words = [
                (
                    f"Not refuted: {records:,} records judged; {unknown:,} of them have no effect,"
                    " which only the transform can explain: audit without --no-transform."
                ),
            ]
        if not records:
            words = ["Nothing to judge: no record is below a committed offset."]
    else:
        found = ", ".join(
            f"{audit.anomalies[one.name]:,} {one.title}"
            for one in ANOMALIES
            if one.name in audit.anomalies
        )
        words = [f"BROKEN: {found}; {records:,} records judged."]
        words += _explained(audit)
    words += [f"Remark: {remark}." for remark in audit.remarks]
    return [*words, f"{audit.duration_s:.0f} s; compared: {audit.compare}."]


def _explained(audit: Audit) -> list[str]:
    words = []
    for one in ANOMALIES:
        if one.name in audit.anomalies:
            words.append(f"{one.title}: {one.meaning}")
            words += [f"  {example}" for example in audit.examples.get(one.name, [])]
    return words


def _shown(audit: Audit) -> list[InputFindings]:
    """Return the partitions that get a line: all, or those with anomalies."""
    if len(audit.inputs) <= PARTITIONS_SHOWN:
        return audit.inputs
    names = [one.name for one in ANOMALIES]
    odd = [one for one in audit.inputs if any(one.counts.get(name) for name in names)]
    return odd[:PARTITIONS_SHOWN]


def _accounts(audit: Audit, shown: list[InputFindings]) -> Table:
    names = dict(_ACCOUNTS)
    if audit.totals["unexplained"]:
        names["unexplained"] = "without effect"
    if audit.totals.get("waiting"):
        names["waiting"] = "waiting for a later try"
    grid = Table(box=SIMPLE_HEAD)
    grid.add_column("input partition", no_wrap=True)
    for title in ("from", "to", "lag", *names.values(), "anomalies"):
        grid.add_column(title, justify="right")
    for one in shown:
        bounds = one.bounds
        lag = bounds.end - (bounds.low if bounds.committed is None else bounds.committed)
        grid.add_row(
            f"{bounds.topic}/{bounds.partition}",
            f"{bounds.start:,}",
            f"{bounds.until:,}",
            f"{lag:,}",
            *_cells(one.counts, names),
            _judged(_sum(one.counts)),
        )
    grid.add_section()
    grid.add_row("total", "", "", "", *_cells(audit.totals, names), _judged(_sum(audit.totals)))
    return grid


def _anomalies(audit: Audit, shown: list[InputFindings]) -> Table:
    found = [one for one in ANOMALIES if one.name in audit.anomalies]
    grid = Table(box=SIMPLE_HEAD)
    grid.add_column("input partition", no_wrap=True)
    for one in found:
        grid.add_column(one.title, justify="right")
    for line in shown:
        cells = [_judged(line.counts.get(one.name, 0)) for one in found]
        grid.add_row(f"{line.bounds.topic}/{line.bounds.partition}", *cells)
    grid.add_section()
    grid.add_row("total", *[_judged(audit.totals[one.name]) for one in found])
    return grid


def _cells(counts: dict[str, int], names: dict[str, str]) -> list[str]:
    return [f"{counts.get(name, 0):,}" for name in names]


def _sum(counts: dict[str, int]) -> int:
    return sum(counts.get(one.name, 0) for one in ANOMALIES)


def _judged(count: int) -> Text:
    return Text(f"{count:,}", "bold red" if count else "green")
