"""What is asked in a process of its own."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hapax.core.errors import ConfigurationError
from hapax.kafka.admin.isolated import TRIES, CrashedError, run_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path


def crash(marks: Path, times: int) -> int:
    """Die as the client does, so many times; then return who answers."""
    before = len(list(marks.iterdir()))
    if before < times:
        (marks / str(before)).touch()
        os.abort()
    return os.getpid()


def refuse() -> None:
    raise ConfigurationError(["one", "another"])


@pytest.mark.parametrize("times", [0, 1])
def test_a_process_that_dies_is_replaced_and_the_one_that_asks_lives_on(tmp_path, times):
    assert run_in_subprocess(partial(crash, tmp_path, times)) != os.getpid()
    assert len(list(tmp_path.iterdir())) == times


def test_a_question_that_costs_each_process_is_given_up(tmp_path):
    with pytest.raises(CrashedError, match="crashed 2 times"):
        run_in_subprocess(partial(crash, tmp_path, 99))
    assert len(list(tmp_path.iterdir())) == TRIES


def test_a_refusal_comes_back_with_each_of_its_problems():
    with pytest.raises(ConfigurationError) as raised:
        run_in_subprocess(refuse)
    assert raised.value.problems == ["one", "another"]
