"""Which ranges the driver plans, when, and what a plan says."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hapax.core.errors import StopError
from hapax.core.records import Coordinates
from hapax.core.results import Failure
from hapax.engines.spark.driver import EXECUTORS_INTERVAL_S, SparkEngine
from hapax.engines.spark.plan import RangeOutcome, RangePlan
from hapax.engines.spark.task import Task
from tests.kit.spark_driver import P0, P1, P2, STOP, TASK_MAX_S, done, played, settled

TOO_LONG_S = 2.0 + EXECUTORS_INTERVAL_S


@played(lanes=1)
def test_a_plan_goes_from_what_is_committed_to_the_last_stable_offset(driver):
    yield from driver.working({P0: 10, P1: 7, P2: 5}, p0=4, p1=7)
    yield from driver.ended(0)
    assert driver.plan == RangePlan(
        lane=0,
        member=b"member",
        starts={P0: 4, P1: 7, P2: None},
        ends={P0: 10, P2: 5},
        cluster_id="the-cluster",
        duration_s=2.0,
        stay_s=0.25,
        pace=500,
    )


@played(lanes=2)
def test_nothing_is_planned_where_nothing_is_new_until_something_comes(driver):
    driver.assign({P0: 10, P1: 10}, p0=10, p1=10)
    yield from driver.turns(100)
    assert driver.jobs.plans == []
    driver.member.logs[P1] = 12
    yield from driver.started(1)
    yield from driver.ended(1)
    assert [(plan.starts, plan.ends) for plan in driver.jobs.plans] == [({P1: 10}, {P1: 12})]


@played(lanes=1)
def test_an_empty_partition_without_committed_offset_is_planned_once(driver):
    yield from driver.working({P0: 0})
    driver.jobs.end(0, ended={P0: 0})
    yield from driver.turns(200)
    yield STOP
    assert [(plan.starts, plan.ends) for plan in driver.jobs.plans] == [({P0: None}, {P0: 0})]


@played(lanes=2)
def test_ends_are_not_asked_for_at_every_turn(driver):
    before_s = driver.clock.now_s
    yield from driver.working({P0: 10, P1: 10}, p1=10)
    del driver.journal[:]
    yield from driver.turns(100)
    yield from driver.ended(0)
    assert 1 < driver.journal.count("stable_ends") <= (driver.clock.now_s - before_s) / 0.05


@played(lanes=1)
def test_a_plan_is_made_of_what_the_last_report_came_to(driver):
    no = Failure("Refused", "no", 1)
    condemned = {Coordinates("in", 0, 9): no, Coordinates("in", 0, 2): no}
    yield from driver.working({P0: 100, P1: 100}, p0=0, p1=0)
    driver.jobs.end(
        0,
        RangeOutcome.ABORTED,
        settled=[settled({P0: (0, 3), P1: (0, 8)}, dead_letters=2), settled({P0: (3, 6)})],
        ended={P1: 9},
        pace=2000,
        reason="too large",
        culprits=condemned,
    )
    yield from driver.started(0)
    yield from driver.ended(0)
    assert driver.plan.starts == {P0: 6, P1: 9}
    assert driver.plan.pace == 2000
    assert driver.plan.rejected[Coordinates("in", 0, 9)] == no
    assert driver.plan.failed == (14, 2)


@played(lanes=2)
def test_a_lane_goes_on_at_once_without_waiting_for_others(driver):
    yield from driver.working({P0: 100, P1: 100}, 0, 1, p0=0, p1=0)
    for offset in range(10, 60, 10):
        driver.jobs.end(1, **done(P1, offset - 10, offset))
        yield from driver.started(1)
    yield from driver.ended(0, 1)
    assert [plan.lane for plan in driver.jobs.plans[:7]] == [0, 1, 1, 1, 1, 1, 1]
    assert driver.journal.count("committed") == 1


@played(lanes=1)
def test_a_lane_that_failed_rests_a_little_longer_each_time(driver):
    rests: list[float] = []
    yield from driver.working({P0: 100}, p0=0)
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
    yield from driver.ended(0)
    assert rests == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.05], abs=0.11)
    assert rests == [*sorted(rests[:7]), rests[7]]
    assert rests[7] < rests[2]


@played(lanes=2)
def test_nothing_is_planned_or_shared_out_while_claims_are_away(driver):
    yield from driver.working({P0: 100, P1: 100}, 0, 1, p0=0, p1=0)
    driver.claims.outage = "away"
    driver.jobs.end(0, RangeOutcome.CLAIMS, reason="away")
    driver.jobs.end(1, RangeOutcome.CLAIMS, reason="away", **done(P1, 0, 5))
    driver.member.stable[P1] = 5
    driver.assign({P2: 100})
    del driver.journal[:]
    yield from driver.turns(100)
    assert (len(driver.jobs.plans), driver.journal) == (2, [])
    driver.claims.outage = None
    yield from driver.started(0, 1)
    yield from driver.ended(0, 1)
    assert [plan.starts for plan in driver.jobs.plans[2:]] == [{P0: 0, P2: None}, {P1: 5}]
    assert driver.told.names().count("claims_recovered") == 1


@played(lanes=1)
def test_a_task_that_never_reports_is_cancelled_and_planned_again(driver):
    yield from driver.working({P0: 100}, p0=0)
    before_s = driver.clock.now_s
    yield from driver.until(lambda: "cancel 0" in driver.journal, turns_max=20_000)
    assert driver.clock.now_s - before_s == pytest.approx(TASK_MAX_S, abs=1.0)
    yield from driver.started(0)
    yield from driver.ended(0)
    assert driver.journal.count("cancel 0") == 1
    assert [facts["failures"] for facts in driver.told.of("task_lost")] == [1]


@played(lanes=1)
def test_a_task_that_resists_is_not_cancelled_at_every_turn(driver):
    driver.jobs.obeys = False
    yield from driver.working({P0: 100}, p0=0)
    yield from driver.until(lambda: "cancel 0" in driver.journal, turns_max=20_000)
    yield from driver.turns(500)
    driver.jobs.lose(0)
    yield
    yield STOP
    assert driver.journal.count("cancel 0") == 1


@played(lanes=1)
def test_tasks_that_are_lost_after_they_committed_are_planned_again_without_limit(driver):
    driver.assign({P0: 100}, p0=0)
    for offset in range(1, 31):
        yield from driver.started(0)
        driver.member.stable[P0] = offset
        driver.jobs.lose(0)
    yield from driver.started(0)
    yield from driver.ended(0)
    assert [plan.starts[P0] for plan in driver.jobs.plans] == list(range(31))
    assert {facts["failures"] for facts in driver.told.of("task_lost")} == {1}


@played(lanes=2)
def test_a_lost_task_is_fenced_before_the_group_is_asked_what_it_committed(driver):
    yield from driver.working({P0: 100, P1: 100}, 0, 1, p0=0, p1=0)
    del driver.journal[:]
    driver.jobs.hold = True
    driver.jobs.lose(0)
    yield from driver.turns(50)
    assert driver.journal == [], "no answer is final while the fence is not up"
    driver.jobs.release()
    yield from driver.started(0)
    for lane in (0, 1):
        driver.jobs.end(lane)
    yield STOP
    steps = [step for step in driver.journal if step.startswith(("fence", "committed", "submit"))]
    assert steps[:3] == ["fence 0", "committed", "submit 0"]


@played(lanes=1)
def test_a_driver_that_has_nothing_to_plan_notices_that_spark_is_gone(driver):
    before_s = driver.clock.now_s
    driver.assign({P0: 10}, p0=10)
    yield from driver.turns(10)
    driver.jobs.gone = StopError("the JVM is gone")
    with pytest.raises(StopError, match="JVM is gone"):
        yield from driver.turns(1000)
    assert driver.clock.now_s - before_s < 15


@played(lanes=1)
def test_a_lane_whose_records_kept_coming_goes_on_at_once_and_without_a_question(driver):
    yield from driver.working({P0: 10, P1: 10}, p0=0, p1=10)
    del driver.journal[:]
    driver.jobs.end(0, flowing=True, **done(P0, 0, 5000))
    yield
    assert driver.journal == ["member", "submit 0"]
    yield from driver.ended(0)
    assert (driver.plan.starts, driver.plan.ends) == ({P0: 5000, P1: 10}, {})


@played(lanes=1)
def test_the_next_range_is_on_its_way_before_the_last_one_is_told(driver):
    plans: list[int] = []
    driver.told.on["range_completed"] = lambda: plans.append(len(driver.jobs.plans))
    yield from driver.working({P0: 10}, p0=0)
    driver.jobs.end(0, flowing=True, **done(P0, 0, 20))
    yield from driver.started(0)
    driver.jobs.end(0, flowing=True, **done(P0, 20, 30))
    yield STOP
    assert plans == [2, 2], "the last one is told although nothing comes after it"


@played(lanes=1)
def test_behind_a_range_that_waited_in_vain_the_ends_are_asked_for_again(driver):
    yield from driver.working({P0: 10}, p0=0)
    driver.jobs.end(0, flowing=True, **done(P0, 0, 10))
    yield from driver.started(0)
    del driver.journal[:]
    driver.jobs.end(0)
    driver.member.logs[P0] = 11
    yield from driver.started(0)
    assert "stable_ends" in driver.journal
    yield from driver.ended(0)
    assert driver.plan.ends == {P0: 11}


@played(lanes=1)
def test_a_partition_without_an_offset_is_not_left_out_because_others_have_records(driver):
    driver.assign({P0: 10, P1: 0}, p0=0)
    del driver.member.logs[P1]  # its broker has not answered yet
    yield from driver.started(0)
    driver.member.logs[P1] = 0
    driver.jobs.end(0, flowing=True, **done(P0, 0, 10))
    yield from driver.started(0)
    yield from driver.ended(0)
    assert [plan.starts for plan in driver.jobs.plans] == [{P0: 0}, {P0: 10, P1: None}]


@played(lanes=3)
def test_tasks_stay_only_where_that_keeps_no_other_lane_waiting(driver):
    driver.jobs.slots = 2
    yield from driver.working({P0: 10, P1: 10, P2: 10}, 0, 1, 2, p0=0, p1=0, p2=0)
    driver.revoke(P2)
    for lane in range(3):
        driver.jobs.end(lane)
    yield from driver.started(0, 1)
    yield from driver.ended(0, 1)
    assert [plan.stay_s for plan in driver.jobs.plans] == [0.0, 0.0, 0.0, 0.25, 0.25]


@played(lanes=2)
def test_running_tasks_are_recalled_while_partitions_move_and_no_longer(driver):
    yield from driver.working({P0: 10, P1: 10}, 0, 1)
    assert driver.jobs.recalls == 0
    driver.revoke(P1)
    yield from driver.until(lambda: driver.jobs.recalled)
    driver.jobs.end(0)
    yield from driver.turns(5)
    assert driver.jobs.recalled, "the other one still runs"
    driver.jobs.end(1)
    yield from driver.started(0)  # the double takes no plan while tasks are recalled
    yield from driver.ended(0)
    assert len(driver.jobs.plans) == 3


@played(lanes=1)
def test_running_tasks_are_recalled_while_the_operator_pauses_and_when_asked_to_stop(driver):
    yield from driver.working({P0: 10})
    driver.lifecycle.pause()
    yield from driver.until(lambda: driver.jobs.recalled)
    driver.jobs.end(0, **done(P0, 0, 5))
    yield from driver.until(lambda: not driver.jobs.recalled)
    driver.lifecycle.resume()
    yield from driver.started(0)
    driver.lifecycle.stop("asked to")
    yield
    assert driver.jobs.recalled
    driver.jobs.end(0)


def test_a_task_is_recalled_by_the_file_that_its_plan_names(tmp_path):
    file = tmp_path / "recall"
    task: Any = SimpleNamespace(_plan=SimpleNamespace(recall=str(file)))
    assert not Task._recalled(task)
    file.touch()
    assert Task._recalled(task)
    assert not Task._recalled(cast("Any", SimpleNamespace(_plan=SimpleNamespace(recall=None))))


@pytest.mark.parametrize(("seconds", "told"), [(0.0, 0), (TOO_LONG_S, 0), (TOO_LONG_S + 1, 1)])
def test_a_range_that_no_executor_takes_is_told_and_one_that_runs_is_not(seconds, told):
    said: list[str] = []
    lane = SimpleNamespace(job=object(), began_s=1_000.0 - seconds)
    driver: Any = SimpleNamespace(
        _looked_s=0.0,
        _duration_s=2.0,
        _lifecycle=SimpleNamespace(stopping=True),
        _lanes=SimpleNamespace(grow=lambda: None, all=[lane, SimpleNamespace(job=None)]),
        _events=SimpleNamespace(executors_awaited=said.append),
    )
    SparkEngine._look_at_executors(driver, 1_000.0)
    assert len(said) == told
