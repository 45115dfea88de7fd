"""The controls: who, struck how, and what must show."""

from tests.fault.controls.recipes import (
    aborts,
    joins,
    kills,
    late_abort,
    late_commit,
    late_offsets,
    zombie,
)
from tests.fault.controls.trials import Trial

PLAIN = ("-m", "tests.fault.controls", "plain-transactions")
DUPLICATE = ("duplicate", "repeated")
LOST = ("lost", "dedup-loss", "torn-txn", "offset-effect")

CONTROLS: tuple[Trial, ...] = (
    Trial("auto-commit", kills, (*DUPLICATE, *LOST), rows=("P23",)),
    Trial("commit-after-produce", kills, DUPLICATE, rows=("P23",), quick=True),
    Trial("redis-set-nx", kills, LOST, rows=("P23",), claims=True, rate=500, quick=True),
    Trial("without-rewind", aborts, LOST, rows=("G4",)),
    Trial("plain-late-abort", late_abort, LOST, command=PLAIN, rows=("S-K1",), quick=True),
    Trial("plain-late-commit", late_commit, DUPLICATE, command=PLAIN, rows=("S-K1",)),
    Trial("plain-late-offsets", late_offsets, DUPLICATE, command=PLAIN, rows=("S-K1",), quick=True),
    Trial("confluent-example", joins, (*DUPLICATE, *LOST), rows=("G1",), quick=True),
    Trial("quixstreams", late_commit, DUPLICATE, rows=("S-K1",)),
    Trial("aiokafka", zombie, DUPLICATE, rows=("Z1",)),
)
