"""``make full``: everything, in parts that resume and add up, recorded in the repository.

A round plays each part once. ``docs/proof/full.json`` has when each part was last played, on which
commit and with what counts; a round that is not complete goes on where the last call ended.
"""

import json
from datetime import UTC, datetime
from typing import Any

from tests.gate import parts
from tests.gate.parts import PYTHON, ROOT, Part, tests
from tests.gate.rotating import PROOF
from tests.gate.running import Outcome

FILE = ROOT / "docs" / "proof" / "full.json"
WARNS_AT_COMMITS, FAILS_AT_COMMITS = 40, 150
_DEEP, _LONG = 6, 12
_FORMS = ("coroutine", "threads", "list", "list-coroutine")
BESIDE = ("test", "fault-cluster", "matrix", "image")
"""Targets that no part plays. ``seconds`` of ``make test`` are what README says of it."""
_LIMIT_S = 3 * 3600.0


def every() -> list[Part]:
    return [
        Part("promises in seconds", (*tests("alone", lanes=1), "tests"), limit_s=_LIMIT_S),
        *(_shares("deep", number, _DEEP, lanes=4) for number in range(_DEEP)),
        *(_shares("long", number, _LONG, lanes=1) for number in range(_LONG)),
        Part("rules at length", ("env", "DEEP=1", *tests("rules", lanes=2), "tests")),
        _fault("all faults", "run", "ci"),
        *(_rows_by(form, number) for number, form in enumerate(_FORMS)),
        _fault("faults on Spark", "run", "spark"),
        _fault("faults on a Spark cluster", "run", "cluster"),
        *(
            Part(
                f"all {kind}",
                (PYTHON, "-m", f"tests.fault.{kind}", "--all", "--folder", PROOF),
                limit_s=_LIMIT_S,
            )
            for kind in ("controls", "mutants")
        ),
        Part(
            "100,000 schedules",
            (PYTHON, "-m", "tests.simulation", "--count", "100000", "--jobs", "2"),
        ),
        *(
            _fault(
                f"random pairs of faults, {engine}",
                "run",
                "chaos",
                "--engine",
                engine,
                "--seconds",
                "900",
            )
            for engine in ("worker", "mixed", "spark")
        ),
    ]


def _shares(layer: str, number: int, n: int, *, lanes: int) -> Part:
    return Part(
        f"{layer} {number + 1} of {n}",
        (
            "env",
            f"TURN={number}",
            "ROUNDS=full",
            *tests(layer, lanes=lanes),
            "--share",
            str(n),
            "tests",
        ),
        limit_s=_LIMIT_S,
    )


def _rows_by(form: str, number: int) -> Part:
    """Return half of the rows with a form of calls, another half each round and for the next form.

    All rows with all forms took an hour and a quarter of a machine without other work, and so were
    not played at all.
    """
    turn = int(parts.git("rev-list", "--count", "--first-parent", recorded()["round"]) or 0)
    words = ("--calls", form, "--each-row", "--share", "2")
    return _fault(f"faults by {form}", "run", "ci", *words, "--turn", str(turn + number))


def _fault(name: str, *words: str) -> Part:
    """Return a campaign that is judged by its records: seconds are asserted by the layer alone."""
    words = (*words, "--shared", "--folder", PROOF)
    return Part(name, (PYTHON, "-m", "tests.fault", *words), limit_s=_LIMIT_S)


def recorded() -> dict[str, Any]:
    """Return the record: ``round``, the commit at which it began, and a line for each part."""
    record: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return record


def due() -> list[Part]:
    """Return what is left of the round, first what was not played for the longest time."""
    record, ages = recorded(), _ages()
    done = {name for name, line in record["parts"].items() if line.get("round") == record["round"]}
    left = [part for part in every() if part.name not in done]
    return sorted(left or every(), key=lambda part: -ages[part.name])


def note(outcome: Outcome) -> None:
    record = recorded()
    names = {part.name for part in every()}
    if all(record["parts"].get(name, {}).get("round") == record["round"] for name in names):
        record["round"] = parts.commit()
    record["parts"] = {name: line for name, line in record["parts"].items() if name in names}
    record["parts"][outcome.part.name] = {
        "round": record["round"],
        **_now(),
        "seconds": round(outcome.wall_s),
        "counts": outcome.counts,
    }
    _write(record)


def note_beside(target: str, seconds: str = "") -> None:
    """Record that a target has passed which no part plays."""
    record = recorded()
    took = {"seconds": int(seconds)} if seconds else {}
    record.setdefault("beside", {})[target] = {**_now(), **took}
    _write(record)


def _now() -> dict[str, str]:
    return {"commit": parts.commit(), "date": datetime.now(UTC).date().isoformat()}


def _write(record: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def age() -> tuple[int, str]:
    """Return how many commits ago the part was played that waits longest, and which it is."""
    ages = _ages()
    oldest = max(ages, key=lambda name: ages[name])
    return ages[oldest], oldest


def _ages() -> dict[str, int]:
    """Return commits by part; one that was never played waits since records began."""
    record = recorded()
    return {
        part.name: _commits_since(record["parts"].get(part.name, {}).get("commit", record["since"]))
        for part in every()
    }


def table() -> str:
    record = recorded()
    lines = ["| part | last played | commit | tests |", "|---|---|---|---|"]
    lines += [_row(part.name, record["parts"].get(part.name)) for part in every()]
    beside = record.get("beside", {})
    lines += [_row(f"make {target}", beside.get(target)) for target in BESIDE]
    return "\n".join(lines)


def _row(name: str, line: dict[str, Any] | None) -> str:
    if line is None:
        return f"| {name} | not since records began |  |  |"
    counts = ", ".join(f"{number} {what}" for what, number in line.get("counts", {}).items())
    return f"| {name} | {line['date']} | {line['commit']} | {counts} |"


def _commits_since(commit: str) -> int:
    """Return how many; 0 where the clone does not reach back so far."""
    return int(parts.git("rev-list", "--count", "--first-parent", f"{commit}..HEAD") or 0)
