from __future__ import annotations

import pytest

from hapax.operations.doctor.durability import Durability, Level, durability


@pytest.mark.parametrize(
    ("replicas", "acks", "in_sync_min", "level", "copies", "tolerates"),
    [
        # The table of the contract.
        (1, "0", 1, Level.LOWEST, 0, 0),
        (3, "0", 2, Level.LOWEST, 0, 2),
        (2, "all", 1, Level.LOW, 1, 1),
        (3, "1", 1, Level.MEDIUM, 1, 2),
        (3, "all", 2, Level.HIGH, 2, 1),
        (3, "all", 3, Level.HIGHEST, 3, 0),
        (5, "all", 3, Level.HIGH, 3, 2),
        # What lies between.
        (1, "all", 1, Level.LOWEST, 1, 0),
        (2, "1", 2, Level.LOW, 1, 1),
        (3, "all", 1, Level.MEDIUM, 1, 2),
        (2, "all", 2, Level.HIGH, 2, 0),
        (5, "all", 5, Level.HIGHEST, 5, 0),
        (1, "all", 2, Level.LOWEST, 1, 0),
    ],
)
def test_replicas_acks_and_the_in_sync_minimum_make_one_grade(
    replicas, acks, in_sync_min, level, copies, tolerates
):
    found = durability(replicas=replicas, acks=acks, in_sync_min=in_sync_min)
    assert found == Durability(level, copies, tolerates)


def test_more_copies_never_make_a_lower_grade():
    for replicas in range(1, 8):
        grades = [
            durability(replicas=replicas, acks="all", in_sync_min=each).level
            for each in range(1, replicas + 1)
        ]
        assert grades == sorted(grades)
