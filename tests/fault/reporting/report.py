"""The report of runs and tests::

    python -m tests.fault.reporting                     # print what build/proof holds
    python -m tests.fault.reporting --keep              # join it to docs/proof, write docs/proof.md

Exits with 1 when something is not as it must be: a violation, a control that survived, a row of
the matrix that neither struck nor has a reason.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from string import Template

from tests.fault.reporting import tables
from tests.fault.reporting.matrix import INVARIANTS
from tests.fault.results import Case, Run, read_cases, read_kept, read_runs, write_kept

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build/proof"
PAGE = ROOT / "docs/proof.md"
KEPT = ROOT / "docs/proof/runs.json.gz"
README = ROOT / "README.md"
PICTURES_MAX = 1
FINE = ("passed", "xfailed")
"""Outcomes of tests that are no news; what is expected to fail stands in the matrix as that."""
_LOAD = "load of the machine"
_TEMPLATE = Path(__file__).with_suffix(".md")
_SUMMARY = re.compile(r"(?s)(<!-- proof -->).*?(<!-- /proof -->)")


def page(runs: Sequence[Run], cases: Sequence[Case]) -> str:
    service = [run for run in runs if run.kind == "service"]
    others = [run for run in runs if run.kind != "service"]
    values = {
        "summary": tables.summary(service, cases),
        "consume_counts": _consume_counts(service),
        "pictures": "\n\n".join(
            f"![{run.name}](proof/{_picture(run)})" for run in _pictured(service)
        ),
        "runs": tables.runs_table(service),
        "machine": _machine(runs),
        "violations": tables.violations_list(service),
        "faults": tables.faults_table(service),
        "promises": tables.promises_table(service),
        "controls": tables.controls_table(others),
        "invariants": "; ".join(f"{name} {text}" for name, text in INVARIANTS.items()),
        "matrix": tables.matrix_table(service, cases),
        "notes": _notes(runs),
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def problems(runs: Sequence[Run], cases: Sequence[Case]) -> list[str]:
    found = [text for run in runs for text in run.problems]
    found += [f"{case.test}: {case.outcome}" for case in cases if case.outcome not in FINE]
    gaps = tables.gaps(runs, cases)
    return found + ([f"rows that nothing covers: {', '.join(gaps)}"] if gaps else [])


def keep(runs: Sequence[Run], cases: Sequence[Case]) -> None:
    """Write the page, its pictures, and the sentence of the README."""
    from tests.fault.reporting.plot import draw  # noqa: PLC0415 - slow to load, and for this alone

    for stale in KEPT.parent.glob("*.svg"):
        stale.unlink()
    for run in _pictured(runs):
        draw(run, KEPT.parent / _picture(run))
    PAGE.write_text(page(runs, cases), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    told = sentence(PAGE.read_text(encoding="utf-8"))
    README.write_text(_SUMMARY.sub(rf"\g<1>{told}\g<2>", text), encoding="utf-8")


def sentence(text: str) -> str:
    """Return the sum that README gives of the page."""
    of = dict(re.findall(r"(?m)^\| \**([a-z ]+?)\** \| \**([\d,]+)\** \|$", text))
    struck = f"{of['faults']} faults and {of['processes killed']} killed processes"
    return f"{of['input records']} records, {struck}, there were {of['violations']} violations"


def _pictured(runs: Sequence[Run]) -> list[Run]:
    drawable = [run for run in runs if run.kind == "service" and run.samples]
    return sorted(drawable, key=lambda run: -run.seconds)[:PICTURES_MAX]


def _picture(run: Run) -> str:
    name = f"{run.name}-{run.seed}"
    return "".join(letter if letter.isalnum() else "-" for letter in name) + ".svg"


def _consume_counts(runs: Sequence[Run]) -> str:
    counts: dict[int, int] = {}
    for run in runs:
        for times, events in run.judgement.consume_counts.items():
            counts[times] = counts.get(times, 0) + events
    words = ", ".join(f"{times}: {events:,}" for times, events in sorted(counts.items()))
    return f"{{{words}}}"


def _machine(runs: Sequence[Run]) -> str:
    seen = {tuple(run.machine.items()) for run in runs}
    return "\n".join(
        "Made on: " + ", ".join(f"{name} {value}" for name, value in facts) + "."
        for facts in sorted(seen)
    )


def _notes(runs: Sequence[Run]) -> str:
    """Return each note once, with the runs that have it; the load of the machine last."""
    notes: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for note in run.notes:
            begin, found, load = note.partition(_LOAD)
            text = _LOAD if found and not begin else note.replace("AssertionError: ", "")
            text = re.sub(r"(found nothing to strike).*", r"\1", text)
            notes[text].append(f"{run.name}{load}" if text == _LOAD else run.name)
    loads = notes.pop(_LOAD, [])
    lines = [f"- {', '.join(dict.fromkeys(names))}: {text}" for text, names in notes.items()]
    lines += [f"- {_LOAD}: {', '.join(loads)}"] if loads else []
    return "\n".join(lines) or "None."


def main() -> int:
    parser = argparse.ArgumentParser(description="The report of the fault suite.")
    parser.add_argument("--folder", type=Path, default=BUILD, help="what runs and tests have left")
    parser.add_argument("--keep", action="store_true", help="join it to docs/proof, write the page")
    wanted = parser.parse_args()
    runs, cases = read_runs(wanted.folder), read_cases(wanted.folder)
    if wanted.keep:
        kept = read_kept(KEPT).joined(runs, cases)
        runs, cases = kept.runs, kept.cases
        for run in runs:  # seconds are for pictures alone, and are most of what a run has written
            run.samples = run.samples if run in _pictured(runs) else []
        write_kept(kept, KEPT)
        keep(runs, cases)
    else:
        sys.stdout.write(page(runs, cases))
    found_wrong = problems(runs, cases)
    sys.stderr.write("".join(f"{line}\n" for line in found_wrong))
    return 1 if found_wrong or not runs else 0
