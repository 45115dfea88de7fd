"""Surveys become gauges, which go when nobody can tell them any more."""

from __future__ import annotations

import math

import msgspec
import pytest

from hapax.core.lag import Standing
from tests.unit.test_telemetry_events import ORDERS, OUT_STANDING, Told

GAUGES = (
    "consumer_lag",
    "consumer_lag_seconds",
    "retention_margin_seconds",
    "open_transaction_seconds",
    "stable_gap",
)
OURS = Standing(
    topic="orders",
    partition=0,
    ours=True,
    low_watermark=0,
    committed=5,
    position=7,
    last_stable_offset=9,
    high_watermark=9,
    at_s=1_700_000_000.0,
    lag_s=60.0,
    margin_s=3600.0,
    open_s=0.0,
)


@pytest.fixture
def told() -> Told:
    told = Told()
    told.events.partitions_assigned([ORDERS])
    return told


def survey(told: Told, *standings: Standing, complete: bool = True) -> None:
    told.events.logs_surveyed(standings, told.wall_s, complete=complete)


def gauges(told: Told, standing: Standing) -> list[float | None]:
    labels = {"topic": standing.topic, "partition": str(standing.partition)}
    return [told.value(name, **labels) for name in GAUGES]


def test_a_partition_of_ours_has_all_gauges_and_one_that_is_written_to_has_two(told: Told) -> None:
    survey(told, OURS, OUT_STANDING)
    assert gauges(told, OURS) == [4, 60.0, 3600.0, 0.0, 0]
    assert gauges(told, OUT_STANDING) == [None, None, None, 12.5, 3]
    assert told.health.standings == {ORDERS: OURS, ("out", 0): OUT_STANDING}
    assert told.health.surveyed_s == told.wall_s


def test_for_ever_is_infinite_and_what_cannot_be_told_any_more_is_not_shown(told: Told) -> None:
    survey(told, msgspec.structs.replace(OURS, margin_s=math.inf))
    assert gauges(told, OURS)[2] == math.inf
    survey(told, msgspec.structs.replace(OURS, margin_s=None, lag_s=None))
    assert gauges(told, OURS)[1:3] == [60.0, None]


def test_a_partition_that_left_is_not_shown_any_more(told: Told) -> None:
    survey(told, OURS, OUT_STANDING)
    told.events.partitions_revoked([ORDERS])
    assert gauges(told, OURS) == [None] * 5
    survey(told, OURS, OUT_STANDING)  # asked for before it left
    assert gauges(told, OURS) == [None] * 5
    assert gauges(told, OUT_STANDING)[4] == 3


def test_a_partition_that_left_while_it_was_told_goes_with_the_next_survey(told: Told) -> None:
    survey(told, OURS)
    told.health.partitions = frozenset()  # the rebalance had removed the series just before
    survey(told)
    assert gauges(told, OURS) == [None] * 5


def test_what_an_incomplete_survey_leaves_out_stands_as_it_was(told: Told) -> None:
    survey(told, OURS, OUT_STANDING)
    survey(told, OUT_STANDING, complete=False)
    assert gauges(told, OURS) == [4, 60.0, 3600.0, 0.0, 0]
    survey(told, OUT_STANDING)
    assert gauges(told, OURS) == [None] * 5


def test_the_age_of_figures_is_that_of_the_look_that_brought_them(told: Told) -> None:
    survey(told, OURS, OUT_STANDING)
    seen_s = told.wall_s
    told.wall_s += 20
    newer = msgspec.structs.replace(OUT_STANDING, at_s=told.wall_s)
    survey(told, newer, complete=False)
    assert told.health.surveyed_s == seen_s
    assert told.health.standings[ORDERS].at_s == seen_s
    assert told.health.standings[("out", 0)].at_s == told.wall_s


def test_failures_are_told_once_a_minute_and_counted_each_time(told: Told) -> None:
    for _ in range(5):
        told.events.survey_failed("timed out")
    assert [line["event"] for line in told.lines].count("survey_failed") == 1
    assert told.value("survey_failures_total") == 5
