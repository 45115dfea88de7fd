"""The checker on histories that are made up: right ones pass, one anomaly is found by its name."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fault.checking.checker import check
from tests.fault.checking.checker_anomalies import PLANTS
from tests.fault.checking.checker_histories import right
from tests.fault.checking.checker_tables import history
from tests.fault.results import VIOLATIONS
from tests.kit.turn import of_this_turn

BY_CAMPAIGNS = {"hang", "undefined-exit", "row-demand"}
SEEDS = of_this_turn(40, 40)
ENOUGH = 8 if os.environ.get("DEEP") == "1" else 3


@given(seed=st.integers(0, 2**32), claims=st.booleans())
@settings(max_examples=50 * ENOUGH // 3, deadline=None)
def test_a_history_in_which_all_went_well_has_0_in_every_class(seed: int, claims: bool) -> None:  # noqa: FBT001 - hypothesis
    judgement = check(history(right(seed, claims=claims)))
    assert judgement.violations == dict.fromkeys(VIOLATIONS, 0), judgement.examples
    if claims:
        assert set(judgement.consume_counts) == {1}


@pytest.mark.parametrize(
    ("plant", "classes"), PLANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_one_planted_anomaly_is_found_by_its_name_and_nothing_else(plant, classes):
    planted = 0
    for seed in SEEDS:
        world = right(seed)
        if plant(world):
            planted += 1
            judgement = check(history(world))
            assert judgement.anomalies.keys() == judgement.examples.keys() == classes, seed
        if planted == ENOUGH:
            break
    assert planted == ENOUGH


def test_every_class_that_the_checker_decides_is_planted():
    assert set().union(*(classes for _plant, classes in PLANTS)) == set(VIOLATIONS) - BY_CAMPAIGNS
