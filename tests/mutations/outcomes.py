"""What became of mutations: one line of JSON each while they are played, a table that is kept.

An outcome is of a mutation and of the sources and tests that it met: after a change of either, what
was killed stays killed until it is played again, and what survived is played again.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

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
