"""A checker that is broken gives itself away: by what it does not find, or by the law it breaks.

Otherwise nobody would know that the tests of the checker can fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.fault.checking import (
    checker,
    checker_effects,
    checker_ends,
    checker_live,
    checker_match,
    checker_records,
)
from tests.fault.checking import checker_anomalies as anomalies
from tests.fault.checking import checker_anomalies_wrong as wrong
from tests.fault.checking.checker_anomalies import PLANTS
from tests.fault.checking.checker_findings import Findings
from tests.fault.checking.checker_histories import right
from tests.fault.checking.checker_tables import history

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fault.checking.checker_anomalies import Plant

    Break = Callable[[pytest.MonkeyPatch], None]

SEEDS = range(6)
NOTHING = np.zeros(0, np.int64)


def _replaced(owner: Any, name: str, value: Any) -> Break:
    return lambda patch: patch.setattr(owner, name, value)


def _matched(**fields: Callable[[checker_match.Matched], Any]) -> Break:
    """Break what the matching says."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        whole = checker_match.match

        def match(given: Any) -> Any:
            found = whole(given)
            for name, value in fields.items():
                object.__setattr__(found, name, value(found))
            return found

        patch.setattr(checker, "match", match)

    return apply


def _only_the_first_found(self: Findings, name: str, found: Any, describe: Any) -> None:
    if not any(self.counts.values()):
        self.counts[name] += len(found)


BROKEN: dict[str, tuple[Break, Plant]] = {
    "takes every effect for the first output": (
        _replaced(checker_match, "_slots", lambda _history, effects: np.ones(len(effects), int)),
        anomalies.torn_txn,
    ),
    "confuses partitions": (
        _replaced(checker_match, "place_keys", lambda _lane, offset: np.sort(offset)),
        anomalies.lost,
    ),
    "forgets how often an effect is there": (
        _matched(made=lambda found: np.minimum(found.made, 1)),
        anomalies.duplicate,
    ),
    "takes every record for done": (
        _matched(done=lambda found: np.ones_like(found.done)),
        anomalies.ahead,
    ),
    "takes no record for due": (
        _matched(
            outputs=lambda found: found.outputs * 0, poison=lambda found: found.poison & False
        ),
        anomalies.lost,
    ),
    "takes aborted input for no input": (
        _matched(aborted=lambda found: found.aborted & False),
        anomalies.aborted_read,
    ),
    "takes an event that is there once for one that is owned": (
        _replaced(
            checker_records._Records, "_events", lambda self, _records: np.ones(self._size, int)
        ),
        anomalies.dedup_loss,
    ),
    "looks for no torn transactions": (
        _replaced(checker_records._Records, "_torn", lambda _self: None),
        anomalies.torn_txn,
    ),
    "asks no ledger": (
        _replaced(checker_records._Records, "_written", lambda _self: None),
        anomalies.lost_write,
    ),
    "knows no order": (
        _replaced(checker_effects, "_behind", lambda _groups, _ranks: NOTHING),
        anomalies.order,
    ),
    "compares no values": (
        _replaced(
            checker_effects, "_wrong", lambda _way, effects, _inputs: np.zeros(len(effects), bool)
        ),
        wrong.wrong_value,
    ),
    "asks no live reader": (
        _replaced(checker_live, "judge", lambda *_: None),
        wrong.poll_skip,
    ),
    "looks at no ends": (
        _replaced(checker_ends, "judge", lambda *_: None),
        anomalies.stuck,
    ),
    "stops at what it finds first": (
        _replaced(Findings, "add", _only_the_first_found),
        anomalies.dead_letter_and_outputs,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_checker_misses_what_is_planted(name, monkeypatch):
    break_, plant = BROKEN[name]
    expected = dict(PLANTS)[plant]
    break_(monkeypatch)
    answers = []
    for seed in SEEDS:
        world = right(seed)
        if plant(world):
            answers.append(_found(world))
    assert answers
    assert any(answer != expected for answer in answers)


def _found(world: Any) -> set[str]:
    try:
        counts = checker.check(history(world)).violations
    except AssertionError:
        return {"the law is broken"}
    return {name for name, count in counts.items() if count}


@pytest.mark.parametrize("error", [-1, 1])
def test_accounts_that_do_not_add_up_break_the_law(error, monkeypatch):
    silent = checker_records.Accounts.silent
    monkeypatch.setattr(
        checker_records.Accounts,
        "silent",
        lambda self, partition: silent(self, partition) + error,
    )
    with pytest.raises(AssertionError, match=r"in/0: \d+ = \d+ \+ \d+ \+ -?\d+"):
        checker.check(history(right(1)))


@pytest.mark.parametrize("plant", [anomalies.lost, anomalies.duplicate, anomalies.repeated])
def test_a_checker_that_finds_nothing_breaks_the_law_or_shows_other_counts(plant, monkeypatch):
    monkeypatch.setattr(Findings, "add", lambda *_: None)
    told = 0
    for seed in SEEDS:
        world = right(seed)
        if not plant(world):
            continue
        try:
            told += set(checker.check(history(world)).consume_counts) != {1}
        except AssertionError:
            told += 1
    assert told
