"""Whether each effect is right in itself, and stands where it should."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tests.fault import rules
from tests.fault.checking.checker_findings import Words
from tests.fault.checking.checker_match import OUTPUTS_MAX, STRANGE, WAYS
from tests.fault.checking.reading_texts import ODD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.fault.checking.checker_findings import Findings
    from tests.fault.checking.checker_match import Matched
    from tests.fault.checking.history import History
    from tests.fault.checking.reading_columns import Table

_NOWHERE = -9
_GROUP_BITS = 46
"""A rank within a group, offset times slots, takes so many bits."""


def judge(history: History, matched: Matched, findings: Findings) -> None:
    """Find effects that name nothing, are ahead, are wrong, or out of order."""
    words = Words(history)
    record, aborted = matched.record, matched.aborted
    findings.add("G1a", np.flatnonzero((record < 0) & aborted), words.effect)
    findings.add("phantom", np.flatnonzero((record < 0) & ~aborted), words.effect)
    bounds = np.searchsorted(history.effects["lane"], np.arange(len(history.lanes) + 1))
    for lane, (start, stop) in enumerate(pairwise(bounds.tolist())):
        known = start + np.flatnonzero(record[start:stop] >= 0)  # a lane at a time, for memory
        effects, at = history.effects[known], record[known]
        inputs = history.inputs[at]
        findings.add("offset-effect", known[~matched.done[at]], words.effect)
        wrong = _wrong(history.lanes[lane].way, effects, inputs)
        if history.headers:
            wrong |= ~effects["headed"]
        findings.add("transform", known[wrong], words.effect)
        once = ~(matched.made[at, :STRANGE] > 1).any(axis=1)
        early = _disordered(effects[once], inputs[once])
        findings.add("order", known[once][early], words.effect)


def _wrong(way: int, effects: Table, inputs: Table) -> NDArray[np.bool_]:
    """Return which effects of a lane are not what the rules make of their records."""
    number = inputs["number"]
    poison = rules.is_poison(number)
    wrong = effects["event"] != number
    wrong |= effects["key"] != inputs["key"]
    wrong |= (effects["dup"] != inputs["copy"]) & (effects["dup"] != ODD)
    wrong |= effects["check"] != inputs["check"]
    if way < 0:
        return np.asarray(wrong | ~poison)
    wrong |= poison
    slot = effects["slot"].astype(np.int64)
    ways = np.full((rules.PERIOD, OUTPUTS_MAX + 2), _NOWHERE)
    for at, due in enumerate(WAYS):
        ways[at, 1 : len(due) + 1] = due
    lengths = np.array([len(due) for due in WAYS])
    wrong |= effects["number"] != number
    wrong |= effects["t_ms"] != inputs["t_ms"]
    wrong |= effects["part"] != slot - 1
    wrong |= effects["parts"] != lengths[number % rules.PERIOD]
    wrong |= ways[number % rules.PERIOD, np.clip(slot, 0, OUTPUTS_MAX + 1)] != way
    return np.asarray(wrong)


def _disordered(effects: Table, inputs: Table) -> NDArray[np.int64]:
    """Return which effects of a lane stand behind one of a later record of partition or key."""
    slot = effects["slot"].astype(np.int64)
    places = effects["place"].astype(np.int64)
    behind = _behind(places, effects["source"] * (STRANGE + 1) + slot)
    # A second copy may have come from another partition, and its key's order with it.
    first = np.flatnonzero(inputs["copy"] == 0)
    ranks = inputs["kseq"] * (STRANGE + 1) + slot
    behind_key = first[_behind(inputs["key"][first].astype(np.int64), ranks[first])]
    return np.union1d(behind, behind_key)


def _behind(groups: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which stand behind a higher rank of their group."""
    assert groups.max(initial=0) < 1 << (63 - _GROUP_BITS)
    assert ranks.max(initial=0) < 1 << _GROUP_BITS
    order = np.argsort(groups, kind="stable")
    ranked = (groups[order] << _GROUP_BITS) + ranks[order]
    return order[np.maximum.accumulate(ranked) > ranked]
