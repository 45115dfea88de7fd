"""Each mistake that tests without brokers can notice is noticed by the tests that say so."""

import sys
from pathlib import Path

import pytest

from tests.kit.commands import output_of
from tests.unit.mutants import MUTANTS, UNBROKEN


@pytest.fixture(scope="module")
def played():
    """One process plays all of them, each in a copy of itself."""
    shown = output_of((sys.executable, "-m", "tests.unit.mutants"), cwd=Path(__file__).parents[2])
    lines = [line.split("\t") for line in shown.splitlines() if "\t" in line]
    return {name: (word, test) for name, word, test in lines}


def test_without_a_mistake_these_tests_pass(played):
    assert played[UNBROKEN] == ("survived", "")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_noticed(name, played):
    word, test = played[name]
    assert word == "killed"
    assert test.partition("[")[0] in MUTANTS[name].tests
