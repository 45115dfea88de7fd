"""The timer wheel of the retry topic: pure arithmetic."""

from __future__ import annotations

import random

import pytest

from hapax.core.retry_levels import (
    FACTOR,
    LEVELS,
    LONGEST_MS,
    LOWEST_MS,
    SHORTEST_MS,
    WAITS_MS,
    create_command,
    place,
)

MOVES_MAX = 3 * (LEVELS - 2) + 2
"""At most three in each level but the highest, one there more than once, and level 0."""


def path(delay_ms: int, late_ms: int = 0) -> list[tuple[int, int]]:
    """Return level and wait of each move, when each is looked at so late, until it is due."""
    left, found = delay_ms, []
    while left > 0:
        level, wait_ms = place(left)
        found.append((level, wait_ms))
        left -= wait_ms + late_ms
    return found


@pytest.mark.parametrize("seed", range(20))
def test_any_delay_comes_down_to_its_due_time_in_few_moves_and_never_early(seed):
    chance = random.Random(seed)
    for _ in range(500):
        delay_ms = round(SHORTEST_MS * (LONGEST_MS / SHORTEST_MS) ** chance.random())
        moves = path(delay_ms)
        assert sum(wait for _level, wait in moves) == delay_ms
        assert len(moves) <= MOVES_MAX
        levels = [level for level, _wait in moves]
        assert levels == sorted(levels, reverse=True)


def test_the_longest_delay_needs_no_more_moves_than_the_page_says():
    assert max(len(path(delay)) for delay in range(SHORTEST_MS, LONGEST_MS, 7919)) <= MOVES_MAX


@pytest.mark.parametrize("delay_ms", [SHORTEST_MS, 5_000, 300_000, LONGEST_MS])
def test_what_is_looked_at_late_waits_less_and_is_no_later_than_the_last_look(delay_ms):
    late_ms = 40
    spent = sum(wait + late_ms for _level, wait in path(delay_ms, late_ms))
    assert delay_ms <= spent <= delay_ms + late_ms


@pytest.mark.parametrize("level", range(1, LEVELS))
def test_a_record_waits_in_the_highest_level_whose_wait_fits(level):
    wait_ms = WAITS_MS[level]
    assert place(wait_ms) == (level, wait_ms)
    below = place(wait_ms - 1)
    assert below.level == level - 1
    assert below.wait_ms == (WAITS_MS[level - 1] or wait_ms - 1)


def test_the_lowest_level_holds_up_for_less_than_its_bound_and_the_highest_is_near_a_day():
    assert place(LOWEST_MS - 1) == (0, LOWEST_MS - 1)
    assert place(0) == place(-5) == (0, 0)
    assert LOWEST_MS <= 500
    assert WAITS_MS[-1] <= LONGEST_MS < FACTOR * WAITS_MS[-1]


def test_the_command_gives_the_topic_one_partition_for_each_level():
    assert f"--partitions {LEVELS}" in create_command("t")
    assert f"--alter --topic t --partitions {LEVELS}" in create_command("t", existing=True)
