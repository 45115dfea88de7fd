"""The controls: who, struck how, and what must show."""

from __future__ import annotations

from tests.fault.controls import recipes
from tests.fault.controls.trials import Trial

_RUN = ("-m", "tests.fault.controls")
DUPLICATE = ("duplicate", "repeated")
LOST = ("lost", "dedup-loss", "torn-txn", "offset-effect")

CONTROLS: tuple[Trial, ...] = (
    Trial("auto-commit", (*_RUN, "auto-commit"), recipes.kills, (*DUPLICATE, *LOST), rows=("P23",)),
    Trial(
        "commit-after-produce",
        (*_RUN, "commit-after-produce"),
        recipes.kills,
        DUPLICATE,
        rows=("P23",),
        quick=True,
    ),
    Trial(
        "redis-set-nx",
        (*_RUN, "redis-set-nx"),
        recipes.kills,
        LOST,
        rows=("P23",),
        claims=True,
        rate=500,
        quick=True,
    ),
    Trial("without-rewind", (*_RUN, "without-rewind"), recipes.aborts, LOST, rows=("G4",)),
    Trial(
        "plain-late-abort",
        (*_RUN, "plain-transactions"),
        recipes.late_abort,
        LOST,
        rows=("S-K1",),
        quick=True,
    ),
    Trial(
        "plain-late-commit",
        (*_RUN, "plain-transactions"),
        recipes.late_commit,
        DUPLICATE,
        rows=("S-K1",),
    ),
    Trial(
        "plain-late-offsets",
        (*_RUN, "plain-transactions"),
        recipes.late_offsets,
        DUPLICATE,
        rows=("S-K1",),
        quick=True,
    ),
    Trial(
        "confluent-example",
        (*_RUN, "confluent-example"),
        recipes.joins,
        (*DUPLICATE, *LOST),
        rows=("G1",),
        quick=True,
    ),
    Trial(
        "quixstreams",
        (*_RUN, "quixstreams"),
        recipes.late_commit,
        DUPLICATE,
        rows=("S-K1",),
    ),
    Trial("aiokafka", (*_RUN, "aiokafka"), recipes.zombie, DUPLICATE, rows=("Z1",)),
)
