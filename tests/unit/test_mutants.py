"""Each mistake that tests without brokers can notice is noticed by the tests that say so."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.mutants import MUTANTS, UNBROKEN


@pytest.fixture(scope="module")
def played():
    """One process plays all of them, each in a copy of itself."""
    command = (sys.executable, "-m", "tests.unit.mutants")
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    return {name: (word, test) for name, word, test in lines}


def test_without_a_mistake_these_tests_pass(played):
    assert played[UNBROKEN] == ("survived", "")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_noticed(name, played):
    word, test = played[name]
    assert word == "killed"
    assert test.partition("[")[0] in MUTANTS[name].tests
