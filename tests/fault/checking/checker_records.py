"""What became of each record and each event: lost, once, twice, in part."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.fault.checking.checker_findings import Words
from tests.fault.checking.checker_match import STRANGE
from tests.fault.checking.reading_columns import DEAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.fault.checking.checker_findings import Findings
    from tests.fault.checking.checker_match import Matched
    from tests.fault.checking.history import History

FIRST = DEAD + 1


@dataclass(frozen=True)
class Accounts:
    """What records came to.

    still           by partition: records that rightly have no effect
    consume_counts  how many events, of those that ask for an effect, had it how often
    """

    still: NDArray[np.int64]
    filtered: int
    duplicates: int
    consume_counts: dict[int, int]

    def silent(self, partition: int) -> int:
        """Return how many records of a partition rightly have no effect."""
        return int(self.still[partition])


def judge(history: History, matched: Matched, findings: Findings) -> Accounts:
    """Find what is lost, doubled, repeated, torn; return what became of the rest."""
    return _Records(history, matched, findings).judge()


class _Records:
    def __init__(self, history: History, matched: Matched, findings: Findings) -> None:
        self._history = history
        self._matched = matched
        self._findings = findings
        self._words = Words(history)
        self._number = np.where(matched.real, history.inputs["number"], 0)
        self._size = int(self._number.max(initial=0)) + 1

    def judge(self) -> Accounts:
        self._written()
        self._doubled()
        self._torn()
        done = self._matched.real & self._matched.done
        silent = done & self._matched.due & ~self._matched.effective
        twins = self._dropped(silent)
        return self._accounts(done, twins)

    def _events(self, records: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return by number how many of its copies are among these records."""
        return np.bincount(self._number[records], minlength=self._size)

    def _written(self) -> None:
        """Compare the input with what the feeder knows."""
        ledger, inputs, real = self._history.ledger, self._history.inputs, self._matched.real
        seen = np.zeros((max(len(ledger.fates), self._size), ledger.fates.shape[1]), bool)
        seen[inputs["number"][real], inputs["copy"][real]] = True
        lost = np.flatnonzero(ledger.acked & ~seen[: len(ledger.fates)])
        copies = ledger.fates.shape[1]
        self._findings.add(
            "lost-write", lost, lambda at: f"event {at // copies}, copy {at % copies}: acknowledged"
        )
        refused = np.zeros(len(inputs), bool)
        known = real & (inputs["number"] < len(ledger.fates))
        refused[known] = ledger.refused[inputs["number"][known], inputs["copy"][known]]
        self._findings.add(
            "G1a",
            np.flatnonzero(refused | ~real),
            lambda at: f"{self._words.record(at)}: aborted, and visible in the input",
        )

    def _doubled(self) -> None:
        made = self._matched.made
        outputs = made[:, FIRST:STRANGE]
        both = (made[:, DEAD] > 0) & outputs.any(axis=1)
        twice = np.flatnonzero((made[:, :STRANGE] > 1).any(axis=1) | both)
        self._findings.add("duplicate", twice, self._with_effects)
        if self._history.claims:
            copies = self._events(self._matched.real & self._matched.effective)
            self._findings.add("repeated", np.flatnonzero(copies > 1), self._event)

    def _torn(self) -> None:
        made, matched = self._matched.made, self._matched
        there = (made[:, FIRST:STRANGE] > 0).sum(axis=1)
        some = (there > 0) & (there < matched.outputs) & ~matched.poison & (made[:, DEAD] == 0)
        self._findings.add("torn-txn", np.flatnonzero(some & matched.real), self._with_effects)

    def _dropped(self, silent: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Find what was lost among records without effect; return the rest: rightly dropped."""
        matched, number = self._matched, self._number
        if not self._history.claims:
            self._findings.add("lost", np.flatnonzero(silent), self._words.record)
            return np.zeros_like(silent)
        owned = self._events(matched.real & matched.effective) > 0
        pending = self._events(matched.real & ~matched.done & matched.due) > 0
        gone = silent & ~(owned | pending)[number]
        alone = self._events(matched.real)[number] == 1
        self._findings.add("lost", np.flatnonzero(gone & alone), self._words.record)
        events = np.unique(number[gone & ~alone])
        self._findings.add("dedup-loss", events, self._event)
        return silent & ~gone

    def _accounts(self, done: NDArray[np.bool_], twins: NDArray[np.bool_]) -> Accounts:
        matched, number = self._matched, self._number
        idle = done & ~matched.due & ~matched.effective
        filtered = int((self._events(idle) > 0).sum()) if self._history.claims else int(idle.sum())
        partitions = len(self._history.committed)
        still = np.bincount(self._history.inputs["lane"][idle | twins], minlength=partitions)
        asked = self._events(done & matched.due) > 0
        times = matched.made[:, :STRANGE].max(axis=1, initial=0)
        totals = np.bincount(number, weights=np.where(matched.real, times, 0), minlength=self._size)
        return Accounts(
            still=still,
            filtered=filtered,
            duplicates=int(idle.sum()) - filtered + int(twins.sum()),
            consume_counts=dict(sorted(Counter(totals[asked].astype(int).tolist()).items())),
        )

    # -- words ----------------------------------------------------------------------------

    def _with_effects(self, at: int) -> str:
        return self._words.record_with(at, np.flatnonzero(self._matched.record == at))

    def _event(self, number: int) -> str:
        records = np.flatnonzero((self._number == number) & self._matched.real)
        return "; ".join(self._with_effects(int(at)) for at in records)
