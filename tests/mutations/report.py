"""The table that is kept, and what it adds up to."""

import shutil
import subprocess
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

from tests.gate.admission import is_admitted
from tests.mutations import chosen, outcomes
from tests.mutations.candidates import ROOT
from tests.mutations.outcomes import KILLED, TABLE

HEADER = "id\toutcome\tlayer\tby\tnote"
COLUMNS = (
    *("mutations", "killed", "by real servers in make test", "by others"),
    *("equivalent", "survived", "unreached", "not played"),
)


class Row(NamedTuple):
    """``note``: why a survivor is no gap, or what would notice; "equivalent: …" counts as such."""

    id: str
    outcome: str
    layer: str = ""
    by: str = ""
    note: str = ""


def rows() -> list[Row]:
    """Return what is known of each mutation of the list, by the table and by what was played."""
    before = _kept()
    found = []
    for key in chosen.listed():
        row = before.get(key, Row(key, "not played"))
        for layer in ("quick", "real"):
            outcome = outcomes.kept(layer).get(key)
            if outcome is None or (layer == "real" and row.outcome in KILLED):
                continue
            if layer == "quick" or outcome.outcome != "unreached":
                row = row._replace(outcome=outcome.outcome, layer=layer, by=outcome.by)
        found.append(row)
    return found


def write() -> None:
    git = shutil.which("git")
    assert git is not None, "results are of a checkout"
    command = [git, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    day = datetime.now(tz=UTC).date().isoformat()
    lines = ["\t".join(row) for row in rows()]
    TABLE.write_text("\n".join([f"# at {commit.strip()}, {day}", HEADER, *lines, ""]))


def tables() -> str:
    """Return the counts by package, and the survivors that no note explains."""
    places = {line.split("\t")[0]: line for line in chosen.LIST.read_text().splitlines()}
    counts: dict[str, Counter[str]] = {name: Counter() for name in chosen.PACKAGES}
    open_ones = []
    for row in rows():
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


def _kept() -> dict[str, Row]:
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    found = (Row(*line.split("\t")) for line in lines[2:])
    return {row.id: row for row in found}
