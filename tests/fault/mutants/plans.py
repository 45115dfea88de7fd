"""The mutants: which fault shows each, and as what. Without its mutation every trial is clean."""

from collections.abc import Sequence
from dataclasses import replace

from tests.fault.controls.plans import DUPLICATE, LOST
from tests.fault.controls.recipes import (
    aborts,
    kill_between,
    kill_in_commit,
    late_offsets,
    lost_answer,
    nothing,
    orphan,
    refused_records,
    zombie,
)
from tests.fault.controls.trials import Trial

UNBROKEN = ("-m", "tests.fault.mutants", "none")
DYNAMIC = {"HAPAX_GROUP__MEMBERSHIP": "dynamic"}
UNHURRIED = {"HAPAX_GROUP__SESSION_TIMEOUT": "15s", "HAPAX_TRANSACTION__TIMEOUT": "10s"}
"""Where a request is kept: nothing else is to run out of time meanwhile."""
LATE = UNHURRIED | {"HAPAX_TRANSACTION__RECORDS_MAX": "100"}
"""For late requests: marks end after twice as many (processing/crash_markers.py)."""
SMALL_QUEUE = {"HAPAX_KAFKA__PROPERTIES": '{"queue.buffering.max.messages": "20"}'}

_MUTANTS = (
    Trial("offsets-outside-the-transaction", kill_in_commit, LOST, rows=("P16",), quick=True),
    Trial("no-rewind", aborts, LOST, rows=("G4",), quick=True),
    Trial("no-group-metadata", zombie, DUPLICATE, rows=("Z1",)),
    # A static name would go with the metadata, and the broker refuses one without a member.
    Trial("generation-minus-one", zombie, DUPLICATE, rows=("Z1",), settings=DYNAMIC),
    Trial("read-uncommitted", nothing, ("G1a", "phantom"), quick=True),
    Trial(
        "ignored-produce-exceptions", nothing, LOST, rows=("T2",), settings=SMALL_QUEUE, late=2000
    ),
    Trial("ignored-delivery-reports", refused_records, note="harmless alone: the commit fails"),
    Trial("abort-after-commit-timeout", lost_answer, DUPLICATE, rows=("P17",), settings=UNHURRIED),
    Trial("claim-then-drop", kill_in_commit, LOST, rows=("P20",), quick=True),
    Trial("progress-one-too-far", kill_in_commit, LOST, rows=("P16",)),
    # The ends that are committed when idle repair some of it.
    Trial("progress-one-too-short", kill_in_commit, (*DUPLICATE, "realtime-lag"), rows=("P16",)),
    Trial("reset-to-latest", nothing, LOST, late=2000, quick=True),
    # The later commit is often refused with INVALID_PRODUCER_EPOCH (measured: in 5 tries of 7).
    Trial("two-transactions-without-gate", kill_between, LOST, rows=("P16",), rare=True),
    Trial("no-fence-on-doubt", late_offsets, DUPLICATE, rows=("S-K1",), settings=LATE, quick=True),
    Trial(
        "random-transactional-id",
        orphan,
        ("stuck-LSO",),
        rows=("P16",),
        settings=UNHURRIED,
        note="correct, but slow: nobody ends what a kill left",
    ),
)
MUTANTS = tuple(replace(trial, kind="mutant", claims=True) for trial in _MUTANTS)


def unbroken(trials: Sequence[Trial]) -> list[Trial]:
    """Return the same faults for the service as it is, each once: it must be clean."""
    by_fault = {(trial.strike, str(trial.settings)): trial for trial in trials}
    return [
        replace(
            trial,
            name=f"service-{trial.strike.__name__.replace('_', '-')}",
            command=UNBROKEN,
            kind="service",
            expected=(),
            note="",
        )
        for trial in by_fault.values()
    ]
