"""The tables of partitions: the worst first, and what is beyond the first rows folded away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hapax.telemetry.http.page_values import (
    NONE,
    UNKNOWN,
    columns,
    folded_table,
    margin,
    mark,
    number,
    open_for,
    section,
    sort_key,
    span,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_INPUTS: Final = (
    "partition", "low", "committed", "position", "last stable", "end", "lag", "lag, time",
    "deleted in", "open for", "seen",
)  # fmt: skip
_FIGURES: Final = (
    "log_start", "committed", "position", "last_stable", "high_watermark", "lag",
)  # fmt: skip
_WRITTEN: Final = ("partition", "low", "last stable", "end", "undecided", "open for", "seen")


STYLE: Final = f"""@media (max-width: 44rem) {{
{columns("inputs", _INPUTS)}{columns("outputs", _WRITTEN)}}}
"""
"""Names of columns for narrow screens, written once and not in each cell."""


def inputs(status: Mapping[str, Any]) -> str:
    """Return the assigned partitions."""
    rows = sorted(status.get("partitions", ()), key=sort_key)
    return _table("inputs", "Input partitions", _INPUTS, _input, rows, status)


def outputs(status: Mapping[str, Any]) -> str:
    """Return the partitions of the output topic and of the dead-letter topic."""
    rows = sorted(status.get("outputs", ()), key=sort_key)
    return _table("outputs", "Written to", _WRITTEN, _written, rows, status)


def _table(
    anchor: str,
    title: str,
    names: Sequence[str],
    cells: Callable[[Mapping[str, Any]], list[str]],
    rows: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
) -> str:
    if not rows:
        return section(anchor, title, NONE)
    ago_s = status.get("lag_updated_s_ago")
    asked = "no complete query yet" if ago_s is None else f"last complete query {span(ago_s)} ago"
    shown = [cells(row) for row in rows]
    body = folded_table(anchor, title, names, shown, "more, with less lag")
    total = f"{len(rows):,}, the worst first; " if len(rows) > 1 else ""
    return section(anchor, f"{title} <small>{total}{asked}</small>", body)


def _input(row: Mapping[str, Any]) -> list[str]:
    return [
        _name(row),
        *(number(row.get(key)) for key in _FIGURES),
        span(row.get("lag_seconds")),
        margin(row.get("retention_margin_seconds")),
        open_for(row.get("open_transaction_seconds")),
        _seen(row),
    ]


def _written(row: Mapping[str, Any]) -> list[str]:
    keys = ("log_start", "last_stable", "high_watermark", "last_stable_offset_lag")
    figures = (number(row.get(key)) for key in keys)
    return [_name(row), *figures, open_for(row.get("open_transaction_seconds")), _seen(row)]


def _seen(row: Mapping[str, Any]) -> str:
    """Return how old the figures of a row are: those of a broker that is away grow old alone."""
    ago_s = row.get("seen_s_ago")
    return UNKNOWN if ago_s is None else f"{span(ago_s)} ago"


def _name(row: Mapping[str, Any]) -> str:
    name = f"{text(row['topic'])}/{number(row['partition'])}"
    return name if row.get("stuck") is None else f"{name} {mark('bad', 'stuck')}"
