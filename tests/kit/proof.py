"""What a test of a row leaves behind for the report: which rows, what came of it, how often.

And how often it repeats its fault: a few times in CI, all of them in make full.
"""

import os
from collections.abc import Generator

import pytest

from tests.fault.results import Case, note_case


def rounds(few: int, full: int) -> int:
    """Return ``full`` where ROUNDS=full, else ``few``; a test that asks is marked ``rounds``."""
    return full if os.environ.get("ROUNDS") == "full" else few


at_length = pytest.mark.skipif(
    os.environ.get("ROUNDS") != "full", reason="takes minutes: in make full"
)
"""Marks a test that CI leaves out, in addition to ``rounds``; a shorter one shows the same."""


class Proof:
    """Filled by the test: how often its fault struck, and what is worth telling."""

    def __init__(self) -> None:
        self.struck: int | None = None
        self.words: list[str] = []

    def note(self, *, struck: int, note: str = "") -> None:
        """Add strikes; a fault that found nothing is no fault."""
        assert struck > 0, "the fault has not struck"
        self.struck = (self.struck or 0) + struck
        if note:
            self.words.append(note)


_PROOF = pytest.StashKey[Proof]()


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    """Return where the test says how often its fault struck."""
    node: pytest.Item = request.node
    node.stash[_PROOF] = Proof()
    return node.stash[_PROOF]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the outcome of each test that stands for rows."""
    report = yield
    rows = [str(row) for mark in item.iter_markers("row") for row in mark.args]
    if rows and (call.when == "call" or report.outcome == "failed"):
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        proof = item.stash.get(_PROOF, Proof())
        case = Case(
            rows=tuple(rows),
            test=item.nodeid,
            outcome=outcome,
            seconds=round(call.duration, 3),
            struck=proof.struck,
            note="; ".join(proof.words),
        )
        note_case(case, item.config.rootpath / "build" / "proof")
    return report
