"""Decides what a history shows: pure, and all in columns.

Classes keep Jepsen's names where Jepsen has one. Beside them the class of ``hapax audit``
(service/hapax/operations/audit/result.py) that says the same:

====================  ==============  ==========================================================
here                  audit           what it is
====================  ==============  ==========================================================
lost-write            (unknown)       acknowledged to the feeder, not in the input
lost                  missing         below the committed offset, effect due, none there
dedup-loss            dedup_loss      every copy of an event was dropped as a copy
duplicate             doubled         one record had its effect twice
repeated              repeated        two copies of one event had their effect
G1a                   from_aborted    effect of an aborted input; aborted input that is visible
precommitted-read     (unknown)       the live reader saw what is not there at the end
inconsistent-offsets  (unknown)       two values at one offset
poll-skip             (unknown)       the live reader never got what is there
nonmonotonic-poll     (unknown)       the live reader was handed something again
order                 out_of_order    behind one of a later record of its partition or its key
torn-txn              torn            some outputs of a record only
offset-effect         ahead           effect at or above the committed offset; offset beyond log
phantom               orphaned        names a record that is not there
transform             wrong           value, headers or key are not what the rules say
unseen                (lag)           readable input at or above the committed offset at the end
realtime-lag          (lag)           nothing to read, and yet the committed offset is not the end
stuck-LSO             (ends)          last stable offset below the high watermark at the end
leak                  (unknown)       transaction that is open at the end
====================  ==============  ==========================================================

``hang`` and ``undefined-exit`` are what a campaign sees. The audit must do without a ledger, a
live reader and rules that are known; it judges records in Spark, so that no machine has to hold
them. Shared with it are the parser of coordinates and the meaning of the classes; not the loop
over records, which costs ten times the reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.fault.checking import checker_effects, checker_ends, checker_live, checker_records
from tests.fault.checking.checker_findings import Findings
from tests.fault.checking.checker_match import match
from tests.fault.results import Counts, Judgement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.fault.checking.checker_match import Matched
    from tests.fault.checking.history import History


def check(history: History) -> Judgement:
    """Return what the history shows; every class has a number, 0 where nothing was found."""
    findings = Findings()
    matched = match(history)
    accounts = checker_records.judge(history, matched, findings)
    checker_effects.judge(history, matched, findings)
    checker_ends.judge(history, matched, findings)
    checker_live.judge(history, findings)
    if not any(findings.counts.values()):
        conserve(history, accounts)
    return Judgement(
        counts=_counts(history, matched, accounts),
        violations=findings.counts,
        examples=findings.examples,
        consume_counts=accounts.consume_counts,
    )


def conserve(history: History, accounts: checker_records.Accounts) -> None:
    """Assert the conservation law of a history in which nothing was found.

    It is counted in another way than the classes are, so that an error of the checker shows.
    """
    effects = history.effects
    dead = np.array([lane.way < 0 for lane in history.lanes], bool)[effects["lane"]]
    for partition, offset in enumerate(history.next_offsets.tolist()):
        of_it = history.inputs[history.inputs["lane"] == partition]
        below = int(np.searchsorted(of_it["offset"], offset))
        made = effects["place"] == partition
        with_outputs = _distinct(effects["source"][made & ~dead])
        dead_letters = int((made & dead).sum())
        silent = accounts.silent(partition)
        law = f"{below} = {with_outputs} + {dead_letters} + {silent}"
        assert below == with_outputs + dead_letters + silent, f"{history.source}/{partition}: {law}"


def _distinct(values: NDArray[np.int64]) -> int:
    ordered = np.sort(values)  # np.unique takes six times as long
    return int(np.count_nonzero(np.diff(ordered))) + bool(ordered.size)


def _counts(history: History, matched: Matched, accounts: checker_records.Accounts) -> Counts:
    way = np.array([lane.way for lane in history.lanes], np.int64)[history.effects["lane"]]
    return Counts(
        records=len(history.inputs),
        distinct=_distinct(history.inputs["number"]),
        duplicates=accounts.duplicates,
        filtered=accounts.filtered,
        outputs=int((way >= 0).sum()),
        dead_letters=int((way < 0).sum()),
        hidden_in=len(history.aborted),
        hidden_out=history.hidden,
    )
