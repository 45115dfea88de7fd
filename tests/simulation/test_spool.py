"""The spool under power losses: schedules that must pass, and broken spools that must not."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from tests.kit.turn import first, of_this_turn
from tests.simulation.spool.mutants import MUTANTS
from tests.simulation.spool.play import WrongError, play

SCHEDULES, TRIES = of_this_turn(250, 2500), range(4000)


def test_power_losses_lose_nothing_double_nothing_and_keep_the_order():
    struck = Counter[str]()
    for seed in SCHEDULES:
        struck.update(play(seed, flips=seed % 2 == 1))
    assert struck["power lost"] > len(SCHEDULES) / 2, struck
    assert struck["told"] > len(SCHEDULES) / 125, struck
    others = min(struck["disk failed"], struck["disk full"], struck["answer lost"])
    assert others > len(SCHEDULES) / 50, struck


def is_found_out(seed: int) -> bool:
    with suppress(Exception):
        try:
            play(seed, flips=seed % 2 == 1)
        except WrongError:
            return True
    return False


@pytest.mark.filterwarnings("default:another seed")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_spool_that_is_broken_on_purpose_is_found_out(mutant, monkeypatch):
    mutant(monkeypatch)
    assert first(MUTANTS[mutant], TRIES, is_found_out) is not None
