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
over records, which costs ten times the reading."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tests.fault import rules
from tests.fault.checking.checker_findings import Findings, Words
from tests.fault.checking.history import History, found_in, place_keys
from tests.fault.checking.reading_columns import DEAD, Table
from tests.fault.checking.reading_texts import ODD
from tests.fault.results import Counts, Judgement

# -- Which record each effect comes from, and what each record asks for --------------------

WAYS = [rules.ways(number) for number in range(rules.PERIOD)]
OUTPUTS_MAX = max(map(len, WAYS))
STRANGE = OUTPUTS_MAX + 1
"""Slot of an effect that is no output of anything."""
SLOTS = STRANGE + 1


@dataclass(frozen=True)
class Matched:
    """By record, then by effect.

    outputs   how many outputs are due, were it not poison
    poison    whether a dead letter is due instead
    real      whether it is an event at all: its number is not negative
    done      whether it is below the committed offset
    made      shape (records, SLOTS): how many effects by slot
    record    by effect: place of its record in the inputs, -1 where there is none
    aborted   by effect: whether it names a record of an aborted transaction
    """

    outputs: NDArray[np.int8]
    poison: NDArray[np.bool_]
    real: NDArray[np.bool_]
    done: NDArray[np.bool_]
    made: NDArray[np.int32]
    record: NDArray[np.int64]
    aborted: NDArray[np.bool_]

    @property
    def due(self) -> NDArray[np.bool_]:
        return (self.outputs > 0) | self.poison

    @property
    def effective(self) -> NDArray[np.bool_]:
        return np.asarray(self.made.any(axis=1))


def match(history: History) -> Matched:
    inputs, effects = history.inputs, history.effects
    number = inputs["number"]
    sources = place_keys(effects["place"], effects["source"])
    record = found_in(place_keys(inputs["lane"], inputs["offset"]), sources)
    aborted = found_in(place_keys(history.aborted["lane"], history.aborted["offset"]), sources)
    known = record >= 0
    flat = record[known] * SLOTS + _slots(history, effects)[known]
    made = np.bincount(flat, minlength=len(inputs) * SLOTS).astype(np.int32)
    return Matched(
        outputs=np.array([len(ways) for ways in WAYS], np.int8)[number % rules.PERIOD],
        poison=rules.is_poison(number),
        real=number >= 0,
        done=inputs["offset"] < history.next_offsets[inputs["lane"]],
        made=made.reshape(-1, SLOTS),
        record=record,
        aborted=aborted >= 0,
    )


def _slots(history: History, effects: Table) -> NDArray[np.int64]:
    dead = np.array([lane.way < 0 for lane in history.lanes], bool)[effects["lane"]]
    slot = effects["slot"].astype(np.int64)
    slot = np.where((slot >= 1) & (slot <= OUTPUTS_MAX), slot, STRANGE)
    return np.where(dead, DEAD, slot)


# -- Whether each effect is right in itself, and stands where it should --------------------

_NOWHERE = -9
_GROUP_BITS = 46
"""A rank within a group, offset times slots, takes so many bits."""


def judge_effects(history: History, matched: Matched, findings: Findings) -> None:
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
    behind = _behind(effects["place"].astype(np.int64), effects["source"] * (STRANGE + 1) + slot)
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


# -- How the run ended: what is not done, and what is still open ---------------------------


def judge_ends(history: History, matched: Matched, findings: Findings) -> None:
    """Find lag, offsets beyond the log, partitions that are stuck, open transactions."""
    words = Words(history)
    findings.add("unseen", np.flatnonzero(~matched.done & matched.real), words.record)
    todo = np.bincount(history.inputs["lane"][~matched.done], minlength=len(history.committed))
    next_offsets = history.next_offsets
    stable = np.array([one.stable for one in history.input_ends], np.int64)
    high = np.array([one.high for one in history.input_ends], np.int64)
    low = np.array([one.low for one in history.input_ends], np.int64)
    behind = (next_offsets < stable) & (todo == 0) & (low < stable)
    findings.add(
        "realtime-lag",
        np.flatnonzero(behind),
        lambda at: f"{history.source}/{at}: committed {next_offsets[at]}, end {stable[at]}",
    )
    findings.add(
        "offset-effect",
        np.flatnonzero(next_offsets > high),
        lambda at: f"{history.source}/{at}: committed {next_offsets[at]}, end {high[at]}",
    )
    lanes = history.lanes
    stuck = [at for at, lane in enumerate(lanes) if lane.ends.stable < lane.ends.high]
    findings.add(
        "stuck-LSO",
        np.array(stuck, np.int64),
        lambda at: (
            f"{lanes[at].topic}/{lanes[at].partition}: last stable offset"
            f" {lanes[at].ends.stable}, high watermark {lanes[at].ends.high}"
        ),
    )
    findings.add("leak", np.arange(len(history.open)), lambda at: history.open[at])


# -- Whether the live reader saw what stands there at the end, once, and in its order ------


def judge_live(history: History, findings: Findings) -> None:
    """Find differences between the live reading and the final one."""
    if history.live is None:
        return
    words, lanes = Words(history), history.lanes
    numbers = {(lane.topic, lane.partition): at for at, lane in enumerate(lanes)}
    seen = history.live.seen
    lane = np.array([numbers.get(lane, -1) for lane in history.live.lanes], np.int64)[seen["lane"]]
    keys = place_keys(lane, seen["offset"])
    order = np.argsort(lane, kind="stable")

    def live(at: int) -> str:
        one = lanes[lane[at]]
        return f"{one.topic}/{one.partition}/{seen['offset'][at]}"

    again = np.diff(keys[order]) <= 0
    findings.add("nonmonotonic-poll", order[1:][again & (np.diff(lane[order]) == 0)], live)
    final = place_keys(history.effects["lane"], history.effects["at"])
    found = found_in(final, keys)
    findings.add("precommitted-read", np.flatnonzero(found < 0), live)
    other = (found >= 0) & (history.effects["hash"][found] != seen["hash"])
    findings.add("inconsistent-offsets", np.flatnonzero(other), live)
    findings.add("poll-skip", _skipped(history, final, keys, lane), words.effect)


def _skipped(
    history: History, final: NDArray[np.int64], keys: NDArray[np.int64], lane: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the effects before the last one that was seen of their lane, never seen."""
    last = np.full(len(history.lanes), -1, np.int64)
    np.maximum.at(last, lane, keys)
    missed = found_in(np.sort(keys), final) < 0
    return np.flatnonzero(missed & (final < last[history.effects["lane"]]))


# -- What became of each record and each event: lost, once, twice, in part -----------------

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
        twins = self._dropped(done & self._matched.due & ~self._matched.effective)
        return self._accounts(done, twins)

    def _events(self, records: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return by number how many of its copies are among these records."""
        return np.bincount(self._number[records], minlength=self._size)

    def _written(self) -> None:
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
        both = (made[:, DEAD] > 0) & made[:, FIRST:STRANGE].any(axis=1)
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


# -- All of it -----------------------------------------------------------------------------


def check(history: History) -> Judgement:
    """Return what the history shows; every class has a number, 0 where nothing was found."""
    findings = Findings()
    matched = match(history)
    accounts = _Records(history, matched, findings).judge()
    judge_effects(history, matched, findings)
    judge_ends(history, matched, findings)
    judge_live(history, findings)
    if not any(findings.counts.values()):
        conserve(history, accounts)
    return Judgement(
        counts=_counts(history, matched, accounts),
        violations=findings.counts,
        examples=findings.examples,
        consume_counts=accounts.consume_counts,
    )


def conserve(history: History, accounts: Accounts) -> None:
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


def _counts(history: History, matched: Matched, accounts: Accounts) -> Counts:
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
