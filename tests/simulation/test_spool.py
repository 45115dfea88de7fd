"""The spool under power losses: schedules that must pass, and broken spools that must not."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from tests.simulation.spool.mutants import MUTANTS
from tests.simulation.spool.play import WrongError, play

SCHEDULES, TRIES_MAX = 2500, 4000


def test_power_losses_lose_nothing_double_nothing_and_keep_the_order():
    struck = Counter[str]()
    for seed in range(SCHEDULES):
        struck.update(play(seed, flips=seed % 2 == 1))
    assert struck["power lost"] > SCHEDULES / 2, struck
    assert struck["told"] > SCHEDULES / 20, struck
    assert min(struck["disk failed"], struck["disk full"], struck["answer lost"]) > 50, struck


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_spool_that_is_broken_on_purpose_is_found_out(mutant, monkeypatch):
    mutant(monkeypatch)
    for seed in range(TRIES_MAX):
        with suppress(Exception):
            try:
                play(seed, flips=seed % 2 == 1)
            except WrongError:
                return
    pytest.fail(f"{TRIES_MAX} schedules have found nothing")
