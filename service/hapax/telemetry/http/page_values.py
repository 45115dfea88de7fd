"""How the status page writes values: numbers, spans, times, marks. All text is escaped."""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MARGIN_BAD_S, MARGIN_WARN_S = 3_600.0, 6 * 3_600.0
OPEN_WARN_S: Final = 60.0
UNFOLDED_MAX: Final = 20
UNKNOWN: Final = "&ndash;"
NONE: Final = '<p class="none">none</p>'
_UNITS: Final = (
    (86_400.0, 2 * 86_400.0, "d"), (3_600.0, 2 * 3_600.0, "h"), (60.0, 120.0, "min")
)  # fmt: skip
_BYTES: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_WIDTH, _HEIGHT = 240, 40


def text(value: object) -> str:
    """Return any text, escaped."""
    return escape(str(value))


def number(value: float | None) -> str:
    """Return a number with thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return bytes in the largest unit that fits."""
    if value is None:
        return UNKNOWN
    for unit, name in _BYTES:
        if value >= unit:
            return f"{value / unit:,.1f}&nbsp;{name}"
    return f"{value:,}&nbsp;B"


def span(seconds: float | None) -> str:
    """Return a span of time in the unit that a reader would use."""
    if seconds is None:
        return UNKNOWN
    for unit_s, from_s, name in _UNITS:
        if seconds >= from_s:
            return f"{seconds / unit_s:.1f}&nbsp;{name}"
    return f"{seconds:.1f}&nbsp;s" if seconds >= 0.1 else "0&nbsp;s"  # noqa: PLR2004 - what is shown


def clock(at_s: float | None) -> str:
    """Return a moment of Unix time as the log has it: UTC."""
    if at_s is None:
        return UNKNOWN
    moment = time.gmtime(at_s)
    return (
        f'<time datetime="{time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)}">'
        f"{time.strftime('%H:%M:%S', moment)}&nbsp;UTC</time>"
    )


def margin(margin_s: float | str | None) -> str:
    """Return when retention deletes the next unread record, marked when that is soon."""
    if margin_s is None or isinstance(margin_s, str):
        return UNKNOWN if margin_s is None else text(margin_s)
    if margin_s <= 0:
        return mark("bad", "being deleted")
    if margin_s < MARGIN_BAD_S:
        return mark("bad", span(margin_s))
    return mark("warn", span(margin_s)) if margin_s < MARGIN_WARN_S else span(margin_s)


def open_for(open_s: float | None) -> str:
    """Return how long a transaction has been open, marked when that is long."""
    shown = span(open_s)
    return shown if open_s is None or open_s < OPEN_WARN_S else mark("warn", shown)


def mark(look: str, shown: str) -> str:
    """Return what needs attention, by more than its colour."""
    return f'<strong class="{look}"><span aria-hidden="true">⚠ </span>{shown}</strong>'


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers in order as ranges: ``0-3, 7``."""
    runs: list[list[int]] = []
    for one in numbers:
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def line(values: Sequence[float | None], label: str) -> str:
    """Return a small chart of values over time, the newest on the right.

    ``label`` is what it shows, in words, for those who cannot see it.
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    top = max(*known, 1)
    step = _WIDTH / (len(known) - 1)
    points = " ".join(
        f"{at * step:.0f},{_HEIGHT - 1 - (_HEIGHT - 2) * value / top:.0f}"
        for at, value in enumerate(known)
    )
    return (
        f'<svg class="chart" role="img" aria-label="{text(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' preserveAspectRatio="none"><polyline points="{points}"/></svg>'
    )


def bar(part: float, whole: float) -> str:
    """Return a bar for a part of a whole; the number is next to it."""
    share = max(1, round(100 * part / whole))
    return (
        '<svg class="bar" aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none">'
        f'<rect width="{share}" height="10"/></svg>'
    )


def section(anchor: str, title: str, body: str) -> str:
    """Return one box of the page; ``anchor`` names it for the script and for links."""
    return f'<section id="{anchor}"><h2>{title}</h2>{body}</section>'


def pairs(named: Iterable[tuple[str, str]]) -> str:
    """Return names with their values."""
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in named)
    return f"<dl>{rows}</dl>"


def table(label: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls by itself; the first cell of a row is its heading.

    On narrow screens the style writes the name of its column before each cell (``columns``).
    """
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td>{cell}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(label)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def columns(anchor: str, names: Sequence[str]) -> str:
    """Return style that writes the name of its column before each cell, on narrow screens."""
    return "".join(
        f'#{anchor} td:nth-child({at})::before {{ content: "{name}"; }}\n'
        for at, name in enumerate(names[1:], start=2)
    )


def folded_table(
    anchor: str, title: str, names: Sequence[str], rows: Sequence[Sequence[str]], rest: str = "more"
) -> str:
    """Return a table of the first rows; the others are folded away, as so many ``rest``."""
    body = table(title, names, rows[:UNFOLDED_MAX])
    others = rows[UNFOLDED_MAX:]
    if not others:
        return body
    folded = table(f"{title}, the others", names, others)
    return (
        f'{body}<details id="{anchor}-folded"><summary>{len(others):,} {rest}</summary>'
        f"{folded}</details>"
    )


def sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Order rows of partitions: stuck first, then being deleted, then the largest lag."""
    margin_s = row.get("retention_margin_seconds")
    soon = isinstance(margin_s, (int, float)) and margin_s < MARGIN_WARN_S
    return (
        row.get("stuck") is None,
        margin_s if soon else MARGIN_WARN_S,
        -(row.get("lag_seconds") or 0.0),
        -(row.get("lag") or 0),
        -(row.get("open_transaction_seconds") or 0.0),
        row["topic"],
        row["partition"],
    )
