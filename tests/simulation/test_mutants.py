"""Controls: a broken worker must be caught, or the green of the others proves nothing."""

from __future__ import annotations

import pytest

from tests.kit.turn import first
from tests.simulation.directed import DIRECTED
from tests.simulation.mutants import MUTANTS, broken
from tests.simulation.play import fails, play

SEEDS = range(4000)


@pytest.mark.filterwarnings("default:another seed")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_worker_is_caught_by_its_class(name):
    wanted, directed = set(MUTANTS[name].classes), MUTANTS[name].directed

    def caught(seed: int) -> bool:
        return any(kind in wanted for kind, _ in play(seed).found)

    with broken(name):
        if directed:
            assert any(fails(each) in wanted for each in DIRECTED[directed]())
        else:
            assert first(MUTANTS[name].seed, SEEDS, caught) is not None, f"none of {wanted}"
