"""What a test of a row leaves behind for the report: which rows, what came of it, how often.

And how often it repeats its fault: a few times in CI, all of them in make fault-long; and which of
the long tests a run plays, where it does not play all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.fault.results import Case, note_case
from tests.kit.turn import is_in_share, turn

if TYPE_CHECKING:
    from collections.abc import Generator


def rounds(few: int, full: int) -> int:
    """Return ``full`` where ROUNDS=full, else ``few``; a test that asks is marked ``rounds``."""
    return full if os.environ.get("ROUNDS") == "full" else few


at_length = pytest.mark.skipif(
    os.environ.get("ROUNDS") != "full", reason="takes minutes: in make fault-long"
)
"""Marks a test that CI leaves out, in addition to ``rounds``; a shorter one shows the same."""


def is_played(test: str, one_in: int, turn: int) -> bool:
    """Return whether a run plays this test; so many turns in a row play each test once.

    All parameters of a test are played together: they share what it starts.
    """
    return is_in_share(test.partition("[")[0], one_in, turn)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ONE_IN=2 leave out half of the long tests that stand for no row, by turn."""
    one_in, now = int(os.environ.get("ONE_IN") or 1), turn()
    left_out = [
        item
        for item in items
        if item.get_closest_marker("long")
        and not item.get_closest_marker("row")
        and not is_played(item.nodeid, one_in, now)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
