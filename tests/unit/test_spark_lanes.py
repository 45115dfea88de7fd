"""Lanes: which partitions they have, what they know, and what travels to a task and back."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from hapax.core import errors
from hapax.core.records import Coordinates
from hapax.core.results import Failure
from hapax.engines.spark.lanes import Homes, Lane
from hapax.engines.spark.plan import RangePlan, RangeReport
from hapax.processing.limits import RetryPolicy
from tests.kit.spark_driver import P0, P1, P2, P3, Driver, settled

if TYPE_CHECKING:
    from tests.kit.spark_driver import Scenario

CULPRIT = Coordinates("in", 0, 7)
NO = Failure("Refused", "no", 1)


def lane(**positions: int | None) -> Lane:
    made = Lane(0, RetryPolicy(3))
    made.take_over({("in", int(name[1:])): offset for name, offset in positions.items()})
    return made


def test_wanted_is_what_lies_behind_our_position():
    assert lane(p0=5, p1=5, p2=None, p3=None).wanted({P0: 6, P1: 5, P2: 0}) == {P0: 6, P2: 0}


def test_progress_of_a_partition_that_left_meanwhile_is_not_ours_to_remember():
    one = lane(p0=5)
    one.record_report(RangeReport(lane=0, settled=[settled({P0: (5, 6), P1: (0, 3)})]))
    assert one.positions == {P0: 6}


def test_a_lane_that_takes_over_begins_without_failures_and_condemned_records():
    one = lane(p0=5)
    one.rest(100.0)
    one.lost, one.retry.rejected = 3, {CULPRIT: NO}
    one.take_over({P1: None})
    assert (one.failures, one.lost, one.rest_until_s, one.retry.rejected) == (0, 0, 0.0, {})
    assert one.positions == {P1: None}


def test_progress_ends_impatience_and_rest_and_what_follows_a_lost_task_marks_what_it_works_at():
    one = lane(p0=5)
    one.retry.records_max, one.retry.attempts = 4, 2
    one.rest(100.0)
    one.record_report(RangeReport(lane=0))
    assert (one.retry.records_max, one.retry.attempt, one.failures) == (4, 3, 1)
    one.record_report(RangeReport(lane=0, ended={P0: 6}))
    assert (one.retry.records_max, one.retry.attempt, one.failures) == (8, 1, 0)
    one = lane(p0=5)
    one.retry.attempts = 1
    one.lose()
    assert one.retry.attempt == 1


def test_partitions_are_spread_as_evenly_as_can_be():
    homes = Homes(3, sticky=False)
    assert homes.spread([P3, P1, P0, P2]) == {0: [P0, P3], 1: [P1], 2: [P2]}
    assert homes.spread([P3, P2]) == {0: [P2], 1: [P3], 2: []}
    assert homes.spread([]) == {0: [], 1: [], 2: []}


def test_sticky_partitions_keep_their_lane_and_new_ones_go_where_there_is_least():
    homes = Homes(2, sticky=True)
    assert homes.spread([P0, P1, P2, P3]) == {0: [P0, P2], 1: [P1, P3]}
    assert homes.spread([P0, P2]) == {0: [P0, P2], 1: []}
    assert homes.spread([P0, P1, P2]) == {0: [P0, P2], 1: [P1]}
    homes = Homes(2, sticky=True)
    homes.spread([P0, P1, P2])
    assert homes.spread([P0, P2, P3]) == {0: [P0, P2], 1: [P3]}


@pytest.mark.parametrize(("sticky", "second"), [(False, 0), (True, 1)])
def test_the_driver_spreads_as_its_group_needs_it(second, *, sticky):
    driver = Driver(lanes=2, sticky=sticky)

    def scenario() -> Scenario:
        yield from driver.working({P0: 9, P1: 9}, 0, 1)
        driver.revoke(P0)
        driver.jobs.end(0)
        driver.jobs.end(1)
        yield from driver.started(second)
        driver.jobs.end(second)

    driver.play(scenario())
    assert driver.plan.starts == {P1: None}


@pytest.mark.parametrize(("sticky", "lanes"), [(False, {0, 1, 2}), (True, {0})])
def test_cores_that_come_later_get_lanes_of_their_own(lanes, *, sticky):
    driver = Driver(lanes=1, sticky=sticky)

    def scenario() -> Scenario:
        yield from driver.working({P0: 9, P1: 9, P2: 9})
        driver.jobs.lanes, grown_s = 5, driver.clock.monotonic() + 11
        yield from driver.until(lambda: driver.clock.monotonic() > grown_s, 4000)
        driver.jobs.end(0)
        yield from driver.started(*lanes)
        for lane in lanes:
            driver.jobs.end(lane)

    driver.play(scenario())
    spread = {(plan.lane, tuple(plan.starts)) for plan in driver.jobs.plans[1:]}
    assert spread == ({(0, (P0, P1, P2))} if sticky else {(0, (P0,)), (1, (P1,)), (2, (P2,))})


PLAN = RangePlan(
    lane=3,
    member=b"CGMDv2:\x01",
    starts={P0: 5, P1: None},
    ends={P0: 9, P1: 0},
    duration_s=2.0,
    pace=800,
    records_max=10,
    batch_max=4,
    attempt=2,
    rejected={CULPRIT: NO},
    failed=(100, 3),
)
REPORT = RangeReport(
    lane=3,
    settled=[
        settled({P0: (5, 8)}, dead_letter_examples=[(CULPRIT, Failure("KeyError", "'id'", 3))])
    ],
    ended={P1: 0},
    open_s=0.1,
    work_s=0.2,
    pace=900,
    records=3,
    suspect=CULPRIT,
    events=[("claims_lost", ()), ("librdkafka_logged", ("consumer", 40, "FAIL", "refused"))],
)


@pytest.mark.parametrize("value", [PLAN, REPORT], ids=["plan", "report"])
def test_what_travels_between_driver_and_task_arrives_as_it_was(value):
    arrived = pickle.loads(pickle.dumps(value))  # noqa: S301 - Spark does the same
    assert arrived == value
    assert type(arrived) is type(value)
    coordinates = [arrived.suspect] if isinstance(arrived, RangeReport) else [*arrived.rejected]
    assert [type(one) for one in coordinates] == [Coordinates]


@pytest.mark.parametrize(
    "error",
    [
        errors.ClaimsUnavailableError("away"),
        errors.SchemasUnavailableError("away", key="id/7", refused=True),
        errors.BatchAbortedError("no", refused={3: "too large"}, content=True, resolved=False),
        errors.ProducerDeadError("epoch", fenced=True, unanswered=True),
        errors.MemberFencedError("gone", explained=True),
        errors.RetryLater("later", after="5m"),
        errors.ConfigurationError(["one", "two"]),
        errors.PreflightError(["one"]),
        errors.PositionLostError("offset gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_arrive_with_all_that_they_say(error):
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 - as above
    assert type(arrived) is type(error)
    assert (arrived.args, vars(arrived)) == (error.args, vars(error))


def test_progress_is_the_last_word_on_each_partition():
    report = RangeReport(
        lane=0,
        settled=[settled({P0: (0, 3)}), settled({P0: (3, 6), P1: (0, 2)}), settled({P1: (2, 4)})],
        ended={P1: 5, P2: 1},
    )
    assert report.progress == {P0: 6, P1: 5, P2: 1}
    assert RangeReport(lane=0).progress == {}
