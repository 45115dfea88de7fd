"""Surveys become gauges, which go when nobody can tell them any more."""

from __future__ import annotations

import math

import msgspec
import pytest

from service.core.survey import Standing
from tests.unit.test_telemetry_events import ORDERS, OUT_STANDING, Told

GAUGES = (
    "consumer_lag_seconds",
    "retention_margin_seconds",
    "open_transaction_seconds",
    "stable_gap",
)
OURS = Standing(
    topic="orders",
    partition=0,
    ours=True,
    low=0,
    committed=5,
    position=7,
    stable=9,
    end=9,
    lag=4,
    lag_s=60.0,
    margin_s=3600.0,
    gap=0,
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
    assert gauges(told, OURS) == [60.0, 3600.0, 0.0, 0]
    assert gauges(told, OUT_STANDING) == [None, None, 12.5, 3]
    assert told.health.standings == {ORDERS: OURS, ("out", 0): OUT_STANDING}
    assert told.health.surveyed_s == told.wall_s


def test_for_ever_is_infinite_and_what_cannot_be_told_any_more_is_not_shown(told: Told) -> None:
    survey(told, msgspec.structs.replace(OURS, margin_s=math.inf))
    assert gauges(told, OURS)[1] == math.inf
    survey(told, msgspec.structs.replace(OURS, margin_s=None, lag_s=None))
    assert gauges(told, OURS)[:2] == [60.0, None]


def test_a_partition_that_left_is_not_shown_any_more(told: Told) -> None:
    survey(told, OURS, OUT_STANDING)
    told.events.partitions_revoked([ORDERS])
    assert gauges(told, OURS) == [None] * 4
    survey(told, OURS, OUT_STANDING)  # asked for before it left
    assert gauges(told, OURS) == [None] * 4
    assert gauges(told, OUT_STANDING)[3] == 3


def test_a_partition_that_left_while_it_was_told_goes_with_the_next_survey(told: Told) -> None:
    survey(told, OURS)
    told.health.partitions = frozenset()  # the rebalance had removed the series just before
    survey(told)
    assert gauges(told, OURS) == [None] * 4


def test_what_an_incomplete_survey_leaves_out_stands_as_it_was(told: Told) -> None:
    survey(told, OURS, OUT_STANDING)
    survey(told, OUT_STANDING, complete=False)
    assert gauges(told, OURS) == [60.0, 3600.0, 0.0, 0]
    survey(told, OUT_STANDING)
    assert gauges(told, OURS) == [None] * 4


def test_while_the_loop_does_not_tell_the_lag_surveys_do(told: Told) -> None:
    told.events.lag_observed({ORDERS: 0})
    survey(told, OURS)
    assert told.value("consumer_lag", topic="orders", partition="0") == 0
    told.monotonic_s += 6  # it holds: the claim store is away
    survey(told, OURS, OUT_STANDING)
    assert told.value("consumer_lag", topic="orders", partition="0") == OURS.lag
    assert told.health.lags == {ORDERS: OURS.lag}
    assert told.value("consumer_lag", topic="out", partition="0") is None


def test_failures_are_told_once_a_minute_and_counted_each_time(told: Told) -> None:
    for _ in range(5):
        told.events.survey_failed("timed out")
    assert [line["event"] for line in told.lines].count("survey_failed") == 1
    assert told.value("survey_failures_total") == 5
