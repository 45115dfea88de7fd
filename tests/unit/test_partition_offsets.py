from __future__ import annotations

import msgspec
import pytest

from hapax.commands.offsets_screen import figures, show
from hapax.core.partition_offsets import LogOffsets, position
from hapax.operations.offsets import Look


def standing(
    committed: int | None = 20, *, low: int = 10, stable: int = 50, oldest_ms: int | None = 1_000
) -> Look:
    return Look(
        topic="in",
        partition=0,
        log=LogOffsets(low, stable, 60),
        committed=committed,
        position=position(committed, LogOffsets(low, stable, 60), "earliest"),
        oldest_ms=oldest_ms,
    )


def test_lag_counts_what_readers_can_reach():
    one = standing()
    assert (one.lag, one.log.last_stable_offset_lag, one.lost) == (30, 10, 0)
    assert one.lag_s(3_000) == 2.0
    assert one.lag_s(500) == 0.0


def test_what_was_deleted_unread_is_lost_and_no_lag():
    one = standing(5)
    assert (one.lag, one.lost) == (40, 5)


def test_without_a_record_to_look_at_the_age_is_unknown_and_without_lag_it_is_0():
    assert standing(oldest_ms=None).lag_s(9) is None
    assert standing(50, oldest_ms=None).lag_s(9) == 0.0
    assert standing(70, oldest_ms=None).lag == 0
    assert msgspec.structs.replace(standing(oldest_ms=None), empty=True).lag_s(9) == 0.0


@pytest.mark.parametrize(("start", "where"), [("earliest", 10), ("latest", 50), ("refuse", None)])
def test_without_a_committed_offset_the_start_decides(start, where):
    assert position(None, LogOffsets(10, 50, 60), start) == where
    assert position(20, LogOffsets(10, 50, 60), start) == 20


def test_sums_are_of_all_and_an_unknown_age_makes_the_sum_unknown():
    found = figures([standing(), standing(5)])
    assert found["lag"] == 70
    assert found["lag_seconds"] > 1_000
    assert figures([standing(), standing(oldest_ms=None)])["lag_seconds"] is None


def test_the_table_says_what_is_odd(capsys):
    show([standing(), standing(5), standing(None), standing(90)])
    told = capsys.readouterr().out
    for words in ("LOST 5", "open transaction", "no committed offset yet", "beyond the end"):
        assert words in told
    assert "total" in told
