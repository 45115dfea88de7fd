"""Which ranges the driver plans, when, and what a plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.core.records import Coordinates
from hapax.core.transform import Failure
from hapax.engines.spark.plan import RangeOutcome, RangePlan
from tests.kit.spark_driver import P0, P1, P2, TASK_MAX_S, Driver, done, settled

if TYPE_CHECKING:
    from tests.kit.spark_driver import Scenario


def test_a_plan_goes_from_what_is_committed_to_the_last_stable_offset() -> None:
    driver = Driver(lanes=1)

    def scenario() -> Scenario:
        driver.assign({P0: 10, P1: 7, P2: 5}, p0=4, p1=7)
        yield from driver.started(0)
        driver.jobs.end(0)

    driver.play(scenario())
    assert driver.plan == RangePlan(
        lane=0,
        member=b"member",
        starts={P0: 4, P2: None},
        ends={P0: 10, P2: 5},
        cluster_id="the-cluster",
        duration_s=2.0,
        pace=500,
    )


def test_nothing_is_planned_where_nothing_is_new_until_something_comes() -> None:
    driver = Driver(lanes=2)

    def scenario() -> Scenario:
        driver.assign({P0: 10, P1: 10}, p0=10, p1=10)
        yield from driver.turns(100)
        assert driver.jobs.plans == []
        driver.member.logs[P1] = 12
        yield from driver.started(1)
        driver.jobs.end(1)

    driver.play(scenario())
    assert [(plan.starts, plan.ends) for plan in driver.jobs.plans] == [({P1: 10}, {P1: 12})]


def test_an_empty_partition_without_committed_offset_is_planned_once() -> None:
    driver = Driver(lanes=1)

    def scenario() -> Scenario:
        driver.assign({P0: 0})
        yield from driver.started(0)
        driver.jobs.end(0, ended={P0: 0})
        yield from driver.turns(200)

    driver.play(scenario())
    assert [(plan.starts, plan.ends) for plan in driver.jobs.plans] == [({P0: None}, {P0: 0})]


def test_ends_are_not_asked_for_at_every_turn() -> None:
    driver = Driver(lanes=2)

    def scenario() -> Scenario:
        driver.assign({P0: 10, P1: 10}, p1=10)
        yield from driver.started(0)
        del driver.journal[:]
        yield from driver.turns(100)
        driver.jobs.end(0)

    before_s = driver.clock.now_s
    driver.play(scenario())
    asked = driver.journal.count("stable_ends")
    assert 1 < asked <= (driver.clock.now_s - before_s) / 0.05


def test_a_plan_is_made_of_what_the_last_report_came_to() -> None:
    driver = Driver(lanes=1)
    no = Failure("Refused", "no", 1)
    condemned = {Coordinates("in", 0, 9): no, Coordinates("in", 0, 2): no}

    def scenario() -> Scenario:
        driver.assign({P0: 100, P1: 100}, p0=0, p1=0)
        yield from driver.started(0)
        driver.jobs.end(
            0,
            RangeOutcome.ABORTED,
            settled=[
                settled({P0: (0, 3), P1: (0, 8)}, dead_letters=2),
                settled({P0: (3, 6)}),
            ],
            ended={P1: 9},
            pace=2000,
            reason="too large",
            culprits=condemned,
        )
        yield from driver.started(0)
        driver.jobs.end(0)

    driver.play(scenario())
    assert driver.plan.starts == {P0: 6, P1: 9}
    assert driver.plan.pace == 2000
    assert driver.plan.rejected[Coordinates("in", 0, 9)] == no
    assert driver.plan.failed == (14, 2)


def test_a_lane_goes_on_at_once_without_waiting_for_others() -> None:
    driver = Driver(lanes=2)

    def scenario() -> Scenario:
        driver.assign({P0: 100, P1: 100}, p0=0, p1=0)
        yield from driver.started(0, 1)
        for offset in range(10, 60, 10):
            driver.jobs.end(1, **done(P1, offset - 10, offset))
            yield from driver.started(1)
        driver.jobs.end(0)
        driver.jobs.end(1)

    driver.play(scenario())
    assert [plan.lane for plan in driver.jobs.plans[:7]] == [0, 1, 1, 1, 1, 1, 1]
    assert driver.journal.count("committed") == 1


def test_a_lane_that_failed_rests_a_little_longer_each_time() -> None:
    driver = Driver(lanes=1)
    rests: list[float] = []

    def scenario() -> Scenario:
        driver.assign({P0: 100}, p0=0)
        yield from driver.started(0)
        for _ in range(7):
            before_s = driver.clock.now_s
            driver.jobs.end(0, RangeOutcome.ABORTED, reason="no")
            yield from driver.started(0)
            rests.append(driver.clock.now_s - before_s)
        driver.jobs.end(0, RangeOutcome.DONE, **done(P0, 0, 5))
        yield from driver.started(0)
        before_s = driver.clock.now_s
        driver.jobs.end(0, RangeOutcome.ABORTED, reason="no")
        yield from driver.started(0)
        rests.append(driver.clock.now_s - before_s)
        driver.jobs.end(0)

    driver.play(scenario())
    assert rests == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.05], abs=0.11)
    assert rests == [*sorted(rests[:7]), rests[7]]
    assert rests[7] < rests[2]


def test_nothing_is_planned_while_claims_are_away() -> None:
    driver = Driver(lanes=2)

    def scenario() -> Scenario:
        driver.assign({P0: 100, P1: 100}, p0=0, p1=0)
        yield from driver.started(0, 1)
        driver.claims.outage = "away"
        driver.jobs.end(0, RangeOutcome.CLAIMS, reason="away")
        driver.jobs.end(1, RangeOutcome.CLAIMS, reason="away", **done(P1, 0, 5))
        yield from driver.turns(100)
        assert len(driver.jobs.plans) == 2
        driver.claims.outage = None
        yield from driver.started(0, 1)
        driver.jobs.end(0)
        driver.jobs.end(1)

    driver.play(scenario())
    assert [plan.starts for plan in driver.jobs.plans[2:]] == [{P0: 0}, {P1: 5}]
    assert driver.told.names().count("claims_recovered") == 1


def test_partitions_are_not_shared_out_while_claims_are_away() -> None:
    driver = Driver(lanes=1)

    def scenario() -> Scenario:
        driver.assign({P0: 100}, p0=0)
        yield from driver.started(0)
        driver.claims.outage = "away"
        driver.jobs.end(0, RangeOutcome.CLAIMS, reason="away")
        driver.assign({P1: 100})
        del driver.journal[:]
        yield from driver.turns(100)
        assert driver.journal == []
        driver.claims.outage = None
        yield from driver.started(0)
        driver.jobs.end(0)

    driver.play(scenario())
    assert driver.plan.starts == {P0: 0, P1: None}


def test_a_task_that_never_reports_is_cancelled_and_planned_again() -> None:
    driver = Driver(lanes=1)

    def scenario() -> Scenario:
        driver.assign({P0: 100}, p0=0)
        yield from driver.started(0)
        before_s = driver.clock.now_s
        yield from driver.until(lambda: "cancel 0" in driver.journal, turns_max=20_000)
        assert driver.clock.now_s - before_s == pytest.approx(TASK_MAX_S, abs=1.0)
        yield from driver.started(0)
        driver.jobs.end(0)

    driver.play(scenario())
    assert driver.journal.count("cancel 0") == 1
    assert [facts["failures"] for facts in driver.told.of("task_lost")] == [1]


def test_a_task_that_resists_is_not_cancelled_at_every_turn() -> None:
    driver = Driver(lanes=1)
    driver.jobs.obeys = False

    def scenario() -> Scenario:
        driver.assign({P0: 100}, p0=0)
        yield from driver.started(0)
        yield from driver.until(lambda: "cancel 0" in driver.journal, turns_max=20_000)
        yield from driver.turns(500)
        driver.jobs.lose(0)
        yield

    driver.play(scenario())
    assert driver.journal.count("cancel 0") == 1


def test_tasks_that_are_lost_after_they_committed_are_planned_again_without_limit() -> None:
    driver = Driver(lanes=1)

    def scenario() -> Scenario:
        driver.assign({P0: 100}, p0=0)
        for offset in range(1, 31):
            yield from driver.started(0)
            driver.member.stable[P0] = offset
            driver.jobs.lose(0)
        yield from driver.started(0)
        driver.jobs.end(0)

    driver.play(scenario())
    assert [plan.starts[P0] for plan in driver.jobs.plans] == list(range(31))
    assert {facts["failures"] for facts in driver.told.of("task_lost")} == {1}


def test_a_lost_task_is_fenced_before_the_group_is_asked_what_it_committed() -> None:
    driver = Driver(lanes=2)

    def scenario() -> Scenario:
        driver.assign({P0: 100, P1: 100}, p0=0, p1=0)
        yield from driver.started(0, 1)
        del driver.journal[:]
        driver.jobs.hold = True
        driver.jobs.lose(0)
        yield from driver.turns(50)
        assert driver.journal == [], "no answer is final while the fence is not up"
        driver.jobs.release()
        yield from driver.started(0)
        for lane in (0, 1):
            driver.jobs.end(lane)

    driver.play(scenario())
    steps = [step for step in driver.journal if step.startswith(("fence", "committed", "submit"))]
    assert steps[:3] == ["fence 0", "committed", "submit 0"]
