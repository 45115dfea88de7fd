"""Which of the long tests a run plays where it does not play all."""

import pytest

from tests.kit.proof import is_played

NAMES = [f"tests/fault/test_{number}.py::test_it" for number in range(40)]


@pytest.mark.parametrize("one_in", [1, 2, 3])
def test_each_is_played_by_one_of_so_many_seeds(one_in):
    for name in NAMES:
        assert sum(is_played(name, one_in, seed) for seed in range(9, 9 + one_in)) == 1


def test_each_seed_plays_about_its_share():
    assert 10 <= sum(is_played(name, 2, 1) for name in NAMES) <= 30


def test_all_parameters_of_a_test_are_played_together():
    for name in NAMES:
        seen = {is_played(f"{name}[{form}]", 2, 1) for form in ("list", "threads", "coroutine")}
        assert seen == {is_played(name, 2, 1)}
