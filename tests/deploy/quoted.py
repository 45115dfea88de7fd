"""Rows of tables of one page, quoted by another: a figure is measured once, and typed nowhere.

A page says what it quotes, and the rows follow up to the end mark:

    <!-- quoted from proof.md / Promised times / back, static | broker, static / p50 s | max s -->
    <!-- end of quote -->

page / title of the section / first cells of the rows / headers of the columns. Where the first
cell is no name (a rate), a row is named by its first two cells with a space between.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_QUOTE: Final = re.compile(
    r"(?ms)^(?P<mark><!-- quoted from (?P<page>\S+) / (?P<title>[^/]+) / (?P<rows>[^/]+)"
    r" / (?P<columns>[^\n]+) -->\n).*?^(?P<end><!-- end of quote -->)$"
)
_TABLE: Final = re.compile(r"(?m)(?:^\|.*\|\n)+")


def quoted(page: Path) -> str:
    """Return the page with its quotes as the quoted pages have them now.

    Raises LookupError where a page, title, row or column is not there any more.
    """

    def rows(match: re.Match[str]) -> str:
        table = _table(
            page.with_name(match["page"]),
            match["title"],
            match["rows"].split(" | "),
            match["columns"].split(" | "),
        )
        return f"{match['mark']}{table}{match['end']}"

    return _QUOTE.sub(rows, page.read_text())


def _table(page: Path, title: str, rows: list[str], columns: list[str]) -> str:
    section = re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page.read_text())
    if section is None:
        raise LookupError(f"{page.name} has no section {title}")
    for table in _TABLE.findall(section[1]):
        header, rule, *lines = [_cells(line) for line in table.splitlines()]
        named = {cells[0]: cells for cells in lines} | {" ".join(c[:2]): c for c in lines}
        if set(rows) <= set(named) and set(columns) <= set(header):
            places = [header.index(column) for column in columns]
            kept = [["", *columns], ["---", *(rule[at] for at in places)]]
            kept += [[row, *(named[row][at] for at in places)] for row in rows]
            return "".join(f"| {' | '.join(cells)} |\n" for cells in kept)
    raise LookupError(f"no table of {page.name}, {title}, has rows {rows} and columns {columns}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
