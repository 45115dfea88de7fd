"""Controls: a broken worker must be caught, or the green of the others proves nothing."""

from __future__ import annotations

import pytest

from tests.simulation.directed import DIRECTED
from tests.simulation.mutants import MUTANTS, broken
from tests.simulation.play import fails, play

SEEDS = range(4000)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_worker_is_caught_by_its_class(name):
    wanted, directed = set(MUTANTS[name].classes), MUTANTS[name].directed
    with broken(name):
        if directed:
            caught = any(fails(each) in wanted for each in DIRECTED[directed]())
        else:
            caught = any(wanted & {kind for kind, _ in play(seed).found} for seed in SEEDS)
    assert caught, f"none of {wanted} within {len(SEEDS)} seeds"
