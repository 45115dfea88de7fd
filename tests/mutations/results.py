"""What became of mutations: a table that is kept, and what it adds up to."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.gate import parts
from tests.gate.admission import is_admitted
from tests.mutations import chosen

TABLE = Path(__file__).with_name("results.tsv")
KILLED = ("killed", "timeout")
"""A test that does not end any more has noticed as well."""
COLUMNS = (
    *("mutations", "killed", "by real servers in make test", "by others"),
    *("equivalent", "survived", "unreached", "not played"),
)


class Row(NamedTuple):
    """``outcome``: killed, timeout, survived, unreached (by no test of the layer), not played.

    layer  of the tests that were played: quick (unit, contract in memory) or real
    by     the test that failed
    note   why a survivor is no gap, or what would notice; "equivalent: …" counts as such
    """

    id: str
    outcome: str = "not played"
    layer: str = ""
    by: str = ""
    note: str = ""


def rows() -> dict[str, Row]:
    """Return what is known of each mutation of the list."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    known = {row.id: row for row in (Row(*line.split("\t")) for line in lines[2:])}
    return {key: known.get(key, Row(key)) for key in chosen.listed()}


def keep(row: Row) -> None:
    """Write the table with this row in it."""
    lines = ["\t".join(one) for one in (rows() | {row.id: row}).values()]
    head = f"# at {parts.commit()}", "\t".join(Row._fields)
    TABLE.write_text("\n".join([*head, *lines, ""]))


def tables() -> str:
    """Return the counts by package, and the survivors that no note explains."""
    places = {line.split("\t")[0]: line for line in chosen.LIST.read_text().splitlines()}
    counts: dict[str, Counter[str]] = {name: Counter() for name in chosen.PACKAGES}
    open_ones = []
    for row in rows().values():
        place = places[row.id].split("\t")[1]
        count = counts[chosen.package(f"service/hapax/{place}")]
        count["mutations"] += 1
        count[_column(row)] += 1
        if _column(row) in {"survived", "unreached", "not played"}:
            open_ones.append(f"{row.outcome:10} {places[row.id]}  {row.note}")
    lines = [f"| package | {' | '.join(COLUMNS)} |", "|---|" + "--:|" * len(COLUMNS)]
    whole = sum(counts.values(), Counter())
    for name, count in [*counts.items(), ("all", whole)]:
        lines.append(f"| {name} | {' | '.join(str(count[column]) for column in COLUMNS)} |")
    return "\n".join([*lines, "", *open_ones])


def _column(row: Row) -> str:
    if row.outcome in KILLED:
        if row.layer == "quick":
            return "killed"
        in_each_commit = row.by.startswith("tests/contract/") or is_admitted(row.by)
        return "by real servers in make test" if in_each_commit else "by others"
    return "equivalent" if row.note.startswith("equivalent") else row.outcome
