"""What became of mutations: one line of JSON each while they are played, a table that is kept.

An outcome is of a mutation and of the sources and tests that it met: after a change of either, what
was killed stays killed until it is played again, and what survived is played again.
"""

import functools
import hashlib
import json
import shutil
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.gate.admission import is_admitted
from tests.mutations import chosen
from tests.mutations.candidates import ROOT, Mutation

TABLE = Path(__file__).with_name("results.tsv")
PARTS = ROOT / "build/mutations/outcomes.jsonl"
KILLED = ("killed", "timeout")
"""A test that does not end any more has noticed as well."""


class Outcome(NamedTuple):
    """``outcome``: killed, timeout, survived, unreached (by no test of the layer).

    layer  of the tests that were played: quick (unit, contract in memory) or real
    by     the test that failed
    tests  how many functions of tests were chosen
    """

    id: str
    layer: str
    outcome: str
    by: str = ""
    tests: int = 0
    seconds: float = 0.0
    state: str = ""


@functools.cache
def state() -> str:
    digest = hashlib.sha256()
    for folder in ("service/hapax", "tests/unit", "tests/contract", "tests/kit"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def keep(outcome: Outcome) -> None:
    PARTS.parent.mkdir(parents=True, exist_ok=True)
    with PARTS.open("a") as file:
        file.write(json.dumps(outcome._replace(state=state())._asdict()) + "\n")


def show(mutation: Mutation, outcome: Outcome) -> None:
    place = f"{mutation.file.removeprefix('service/hapax/')}:{mutation.line}"
    words = (outcome.outcome, mutation.id, place, mutation.kind, f"{outcome.seconds:g}s")
    print(" ".join((*words, outcome.by)), flush=True)  # noqa: T201


def kept(layer: str) -> dict[str, Outcome]:
    if not PARTS.exists():
        return {}
    every = [Outcome(**json.loads(line)) for line in PARTS.read_text().splitlines()]
    return {one.id: one for one in every if one.layer == layer}


def is_settled(outcome: Outcome | None) -> bool:
    """Whether it need not be played again."""
    return outcome is not None and (outcome.outcome in KILLED or outcome.state == state())


# -- The table that is kept, and what it adds up to ---------------------------------------


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
            outcome = kept(layer).get(key)
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
