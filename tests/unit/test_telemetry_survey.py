"""Surveys become gauges, which go when nobody can tell them any more."""

import math

import msgspec
import pytest

from hapax.cluster.lag import PartitionLag
from hapax.cluster.partition_offsets import LogOffsets
from tests.unit.test_telemetry_events import ORDERS, OUT_LAG, Told

OF_THE_GROUP = ("consumer_lag", "consumer_lag_seconds", "retention_margin_seconds")
GAUGES = (*OF_THE_GROUP, "open_transaction_seconds", "last_stable_offset_lag")
OURS = PartitionLag(
    topic="orders",
    partition=0,
    is_input=True,
    log=LogOffsets(0, 9, 9),
    committed=5,
    position=7,
    at_s=1_700_000_000.0,
    lag_s=60.0,
    margin_s=3600.0,
    open_s=0.0,
)


@pytest.fixture
def told():
    told = Told()
    told.events.partitions_assigned([ORDERS])
    return told


def survey(told: Told, *partition_lags: PartitionLag, complete: bool = True) -> None:
    told.events.lag_updated(partition_lags, told.wall_s, complete=complete)


def gauges(told: Told, standing: PartitionLag) -> list[float | None]:
    labels = {"topic": standing.topic, "partition": str(standing.partition)}
    group = {"group": "shop"}
    return [
        told.value(name, **labels, **(group if name in OF_THE_GROUP else {})) for name in GAUGES
    ]


def test_a_partition_of_ours_has_all_gauges_and_one_that_is_written_to_has_two(told):
    survey(told, OURS, OUT_LAG)
    assert gauges(told, OURS) == [4, 60.0, 3600.0, 0.0, 0]
    assert gauges(told, OUT_LAG) == [None, None, None, 12.5, 3]
    assert told.health.partition_lags == {ORDERS: OURS, ("out", 0): OUT_LAG}
    assert told.health.lag_updated_s == told.wall_s


def test_for_ever_is_infinite_and_what_cannot_be_told_any_more_is_not_shown(told):
    survey(told, msgspec.structs.replace(OURS, margin_s=math.inf))
    assert gauges(told, OURS)[2] == math.inf
    survey(told, msgspec.structs.replace(OURS, margin_s=None, lag_s=None))
    assert gauges(told, OURS)[1:3] == [60.0, None]


def test_a_partition_that_left_is_not_shown_any_more(told):
    other = msgspec.structs.replace(OURS, partition=1)
    told.events.partitions_assigned([("orders", 1)])
    survey(told, OURS, other, OUT_LAG)
    told.events.partitions_revoked([ORDERS])
    assert gauges(told, OURS) == [None] * 5
    assert gauges(told, other)[0] == OURS.lag
    survey(told, OURS, OUT_LAG)  # asked for before it left
    assert gauges(told, OURS) == [None] * 5
    assert gauges(told, OUT_LAG)[4] == 3


def test_what_an_incomplete_survey_leaves_out_is_as_it_was_and_a_complete_one_ends_it(told):
    survey(told, OURS, OUT_LAG)
    survey(told, OUT_LAG, complete=False)
    assert gauges(told, OURS) == [4, 60.0, 3600.0, 0.0, 0]
    survey(told, OUT_LAG)
    assert gauges(told, OURS) == [None] * 5
    survey(told, OURS)
    told.health.partitions = frozenset()  # the rebalance had removed the series just before
    survey(told)
    assert gauges(told, OURS) == [None] * 5


def test_the_age_of_figures_is_that_of_the_look_that_brought_them(told):
    survey(told, OURS, OUT_LAG)
    seen_s = told.wall_s
    told.wall_s += 20
    survey(told, msgspec.structs.replace(OUT_LAG, at_s=told.wall_s), complete=False)
    assert told.health.lag_updated_s == seen_s
    assert told.health.partition_lags[ORDERS].at_s == seen_s
    assert told.health.partition_lags[("out", 0)].at_s == told.wall_s


def test_failures_are_told_once_a_minute_and_counted_each_time(told):
    for _ in range(5):
        told.events.lag_monitor_failed("timed out")
    assert [line["event"] for line in told.lines].count("lag_monitor_failed") == 1
    assert told.value("lag_monitor_errors_total") == 5
