"""The mutants: which fault shows each, and as what. Without its mutation every trial is clean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fault.controls import recipes
from tests.fault.controls.plans import DUPLICATE, LOST
from tests.fault.controls.trials import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN = ("-m", "tests.fault.mutants")
UNHURRIED = {"HAPAX_GROUP__SESSION_TIMEOUT": "15s", "HAPAX_TRANSACTION__TIMEOUT": "10s"}
"""Where a request is kept: nothing else is to run out of time meanwhile."""
LATE = UNHURRIED | {"HAPAX_TRANSACTION__RECORDS_MAX": "100"}
"""For late requests: marks of a process at work end after twice as many (core/suspicion.py)."""
SMALL_QUEUE = {"HAPAX_KAFKA__PROPERTIES": '{"queue.buffering.max.messages": "20"}'}


def _mutant(name: str, strike: recipes.Recipe, expected: tuple[str, ...], **more: object) -> Trial:
    given = {"kind": "mutant", "claims": True, **more}
    return Trial(name, (*_RUN, name), strike, expected, **given)  # type: ignore[arg-type]


MUTANTS: tuple[Trial, ...] = (
    _mutant(
        "offsets-outside-the-transaction",
        recipes.kill_in_commit,
        LOST,
        rows=("P16",),
        quick=True,
    ),
    _mutant("no-rewind", recipes.aborts, LOST, rows=("G4",), quick=True),
    _mutant("no-group-metadata", recipes.zombie, DUPLICATE, rows=("Z1",)),
    _mutant(
        "generation-minus-one",
        recipes.zombie,
        DUPLICATE,
        rows=("Z1",),
        # A static name would go with the metadata, and the broker refuses one without a member.
        settings={"HAPAX_GROUP__MEMBERSHIP": "dynamic"},
    ),
    _mutant("read-uncommitted", recipes.nothing, ("G1a", "phantom"), quick=True),
    _mutant(
        "ignored-produce-exceptions",
        recipes.nothing,
        LOST,
        rows=("T2",),
        settings=SMALL_QUEUE,
        late=2000,
    ),
    _mutant(
        "ignored-delivery-reports",
        recipes.refused_records,
        (),
        note="harmless alone: the commit fails",
    ),
    _mutant(
        "abort-after-commit-timeout",
        recipes.lost_answer,
        DUPLICATE,
        rows=("P17",),
        settings=UNHURRIED,
    ),
    _mutant("claim-then-drop", recipes.kill_in_commit, LOST, rows=("P20",), quick=True),
    _mutant("progress-one-too-far", recipes.kill_in_commit, LOST, rows=("P16",)),
    _mutant(
        "progress-one-too-short",
        recipes.kill_in_commit,
        (*DUPLICATE, "realtime-lag"),  # the ends that are committed when idle repair some of it
        rows=("P16",),
    ),
    _mutant("reset-to-latest", recipes.nothing, LOST, late=2000, quick=True),
    _mutant("two-transactions-without-gate", recipes.kill_between, LOST, rows=("P16",)),
    _mutant(
        "no-fence-on-doubt",
        recipes.late_offsets,
        DUPLICATE,
        rows=("S-K1",),
        settings=LATE,
        quick=True,
    ),
    _mutant(
        "random-transactional-id",
        recipes.orphan,
        ("stuck-LSO",),
        rows=("P16",),
        settings=UNHURRIED,
        note="correct, but slow: nobody ends what a kill left",
    ),
)


def unbroken(trials: Sequence[Trial]) -> list[Trial]:
    """Return the same faults for the service as it is, each once: it must be clean."""
    by_fault = {(trial.strike, str(trial.settings)): trial for trial in trials}
    return [
        replace(
            trial,
            name=f"service-{trial.strike.__name__.replace('_', '-')}",
            command=(*_RUN, "none"),
            kind="service",
            expected=(),
            note="",
        )
        for trial in by_fault.values()
    ]
