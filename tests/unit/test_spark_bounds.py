"""How the driver ends: bounded runs, draining, and a Spark that is gone."""

import pytest

from hapax.cluster.partition_offsets import HeldBack
from hapax.core.errors import BatchAbortedError, MemberFencedError, ProducerDeadError, StopError
from hapax.engines.spark.plan import RangeOutcome
from hapax.processing.limits import FenceBudget
from tests.kit.spark_driver import (
    OVER,
    P0,
    P1,
    P2,
    P3,
    STOP,
    Driver,
    Scenario,
    done,
    played,
    settled,
)


def endless(driver: Driver) -> Scenario:
    while not (yield):
        assert not driver.jobs.running or driver.lifecycle.stopping


@played(lanes=2, records_max=10)
def test_where_records_are_counted_one_range_runs_at_a_time_with_what_is_left(driver):
    yield from driver.working({P0: 100, P1: 100}, p0=0, p1=0)
    yield from driver.turns(50)
    assert list(driver.jobs.running) == [0]
    driver.jobs.end(0, **done(P0, 0, 4))
    yield from driver.until(lambda: driver.jobs.running)
    yield from driver.turns(50)
    (lane,) = driver.jobs.running
    driver.jobs.end(lane, RangeOutcome.CLAIMS, **done((P0, P1)[lane], 4, 9))
    yield from driver.until(lambda: driver.jobs.running)
    (lane,) = driver.jobs.running
    driver.jobs.end(lane, **done((P0, P1)[lane], 9, 10))
    yield from endless(driver)
    assert [plan.records_max for plan in driver.jobs.plans] == [10, 6, 1]
    assert driver.lifecycle.reason == "the bounded run is done"


@played(lanes=1, records_max=10)
def test_records_that_were_committed_before_a_range_failed_are_counted(driver):
    yield from driver.working({P0: 100}, p0=0)
    driver.jobs.end(0, RangeOutcome.DEAD, reason="no", settled=[settled({P0: (0, 8)}, records=7)])
    yield from driver.started(0)
    assert driver.plan.records_max == 3
    driver.jobs.end(0, **done(P0, 8, 11))
    yield from endless(driver)


@played(lanes=1, at_end=True)
def test_a_run_to_the_end_is_done_where_the_logs_ended_at_its_start(driver):
    yield from driver.working({P0: 10, P1: 0, P2: 3}, p0=4)
    driver.member.logs[P0] = 99  # records that came later are not waited for
    driver.jobs.end(0, settled=[settled({P0: (4, 10)})], ended={P1: 0, P2: 3})
    yield from driver.until(lambda: driver.jobs.running or driver.lifecycle.stopping)
    driver.jobs.running.clear()
    yield from endless(driver)
    assert driver.lifecycle.reason == "the bounded run is done"


@played(lanes=1, at_end=True)
def test_a_run_to_the_end_waits_for_what_other_members_still_have_to_do(driver):
    driver.member.logs = {P2: 7}
    driver.assign({P0: 10}, p0=10)
    yield from driver.turns(200)
    assert not driver.lifecycle.stopping
    driver.member.stable[P2] = 7
    yield from endless(driver)
    assert driver.lifecycle.reason == "the bounded run is done"


@played(lanes=1, at_end=True)
def test_a_run_to_the_end_waits_for_what_was_open_at_its_start(driver):
    driver.member.open = {P0: 4, P2: 3}
    driver.member.logs = {P2: 7}  # of another member
    driver.member.stable[P2] = 3
    driver.assign({P0: 10, P1: 5}, p0=4, p1=5)
    yield from driver.until(lambda: driver.told.of("open_transactions_awaited"))
    held = {P0: HeldBack(4, 10), P2: HeldBack(3, 7)}
    assert driver.told.of("open_transactions_awaited") == [{"held": held}]
    driver.member.open = {}
    yield from driver.started(0)
    driver.member.stable[P2] = 8
    driver.jobs.end(0, **done(P0, 4, 11))
    yield from endless(driver)
    assert driver.lifecycle.reason == "the bounded run is done"
    assert driver.told.of("open_transactions_awaited")[1:] == [{"held": {}}]


@played(lanes=1, at_end=True, open_timeout_s=None)
def test_a_run_that_may_leave_waits_for_other_members_up_to_what_is_open(driver):
    driver.member.open = {P0: 4, P2: 3}
    driver.member.logs = {P2: 7}
    driver.member.stable[P2] = 1
    driver.assign({P0: 10}, p0=4)
    yield from driver.turns(100)
    assert not driver.lifecycle.stopping
    driver.member.stable[P2] = 3
    yield from endless(driver)
    held = {P0: HeldBack(4, 10), P2: HeldBack(3, 7)}
    assert driver.told.of("open_transactions_left") == [{"held": held}]


@played(lanes=1, at_end=True, open_timeout_s=30.0)
def test_a_wait_for_open_transactions_that_is_too_long_ends_the_driver(driver):
    driver.member.open = {P0: 4}
    driver.assign({P0: 10}, p0=4)
    with pytest.raises(StopError, match=r"6 offsets wait .*in/0 from 4 to 10.*hapax transactions"):
        yield OVER


@played(lanes=1, at_end=True)
def test_a_run_to_the_end_asks_again_when_brokers_do_not_answer(driver):
    driver.member.fail["ends"] = [BatchAbortedError("no answer")]
    driver.assign({P0: 10}, p0=10)
    yield from endless(driver)
    assert driver.journal.count("ends") == 2


@played(lanes=2)
def test_asked_to_stop_nothing_is_planned_and_what_runs_is_waited_for(driver):
    yield from driver.working({P0: 100, P1: 100}, 0, 1, p0=0, p1=0)
    driver.lifecycle.stop("SIGTERM")
    yield
    driver.jobs.end(1, **done(P1, 0, 5))
    yield from driver.turns(100)
    driver.jobs.end(0, **done(P0, 0, 9))
    yield OVER
    assert len(driver.jobs.plans) == 2
    spans = [facts["spans"] for facts in driver.told.of("range_completed")]
    assert spans == [{P1: (0, 5)}, {P0: (0, 9)}]
    assert "batch_abandoned" not in driver.told.names()


@played(lanes=1, shutdown_s=5.0)
def test_a_range_that_outlasts_the_deadline_is_left_to_the_successor(driver):
    before_s = driver.clock.now_s
    yield from driver.working({P0: 100}, p0=0)
    driver.lifecycle.stop("SIGTERM")
    yield OVER
    assert driver.told.of("batch_abandoned") == [
        {"reason": "lane 0: its range did not end in time"}
    ]
    assert driver.clock.now_s - before_s < 7


@played(lanes=1)
def test_a_task_that_dies_while_stopping_is_no_error(driver):
    driver.jobs.gone = StopError("Spark's JVM is gone")
    yield from driver.working({P0: 100}, p0=0)
    driver.lifecycle.stop("SIGTERM")
    yield
    driver.jobs.lose(0, "the JVM is gone")
    yield OVER
    assert driver.told.of("batch_abandoned") == [{"reason": "the JVM is gone"}]
    assert "task_lost" not in driver.told.names()


@played(lanes=1)
def test_brokers_that_are_away_while_draining_do_not_end_the_drain(driver):
    yield from driver.working({P0: 100}, p0=0)
    driver.lifecycle.stop("SIGTERM")
    yield
    driver.member.fail["attend"] = [BatchAbortedError("no answer")]
    yield
    driver.jobs.end(0, **done(P0, 0, 9))
    yield OVER
    assert driver.told.of("batch_abandoned") == [{"reason": "no answer"}]
    assert len(driver.told.of("range_completed")) == 1


@played(lanes=1)
def test_a_member_that_is_fenced_while_draining_does_not_keep_reports_from_being_taken(driver):
    before_s = driver.clock.now_s
    yield from driver.working({P0: 100}, p0=0)
    driver.lifecycle.stop("SIGTERM")
    yield
    driver.member.fail["attend"] = [MemberFencedError("gone", explained=True)] * 9_000
    driver.jobs.end(0, **done(P0, 0, 9))
    yield OVER
    assert len(driver.told.of("range_completed")) == 1
    assert driver.clock.now_s - before_s < 5


@played(lanes=1)
def test_without_spark_the_driver_leaves_and_says_so(driver):
    driver.jobs.gone = StopError("Spark's JVM is gone")
    yield from driver.working({P0: 100}, p0=0)
    driver.jobs.lose(0, "connection refused")
    with pytest.raises(StopError, match="JVM is gone"):
        yield OVER


@played(lanes=2)
def test_every_lane_is_fenced_and_offsets_are_read_before_anything_is_planned(driver):
    yield from driver.working({P0: 10, P1: 10}, 0, 1)
    yield from driver.ended(0, 1)
    assert [step for step in driver.journal if step != "member"] == [
        "fence 0", "fence 1", "fence predecessor", "committed", "stable_ends",
        "submit 0", "submit 1",
    ]  # fmt: skip


@played(lanes=3)
def test_partitions_are_spread_evenly_and_a_lane_too_many_stays_idle(driver):
    yield from driver.working({P0: 9, P1: 9, P2: 9, P3: 9}, 0, 1, 2)
    driver.revoke(P1, P2, P3)
    for lane in range(3):
        driver.jobs.end(lane)
    yield from driver.started(0)
    yield from driver.turns(20)
    yield from driver.ended(0)
    assert [
        {number: list(at) for number, at in facts["lanes"].items()}
        for facts in driver.told.of("lanes_assigned")
    ] == [{0: [P0, P3], 1: [P1], 2: [P2]}, {0: [P0]}]
    assert [plan.lane for plan in driver.jobs.plans] == [0, 1, 2, 0]


@played(lanes=2)
def test_a_share_out_waits_for_the_running_tasks(driver):
    yield from driver.working({P0: 10, P1: 10}, 0, 1)
    driver.revoke(P1)
    del driver.journal[:]
    driver.jobs.end(1)
    yield from driver.turns(50)
    assert driver.journal == [], "lane 0 still works on what was shared out before"
    driver.jobs.end(0, **done(P0, 0, 4))
    driver.member.stable[P0] = 4
    yield from driver.started(0)
    yield from driver.ended(0)
    assert driver.journal[:3] == ["fence 0", "fence 1", "committed"]
    assert driver.plan.starts == {P0: 4}
    assert driver.told.of("partitions_revoked") == [{"partitions": [P1]}]


@played(lanes=1)
def test_a_share_out_waits_until_every_fence_stands(driver):
    driver.jobs.hold = True
    driver.assign({P0: 10})
    yield from driver.turns(50)
    assert driver.journal == []
    driver.jobs.release()
    yield from driver.started(0)
    yield from driver.ended(0)
    assert driver.journal[:3] == ["fence 0", "fence predecessor", "committed"]


@played(lanes=2)
def test_partitions_that_change_while_fences_go_up_are_shared_out_as_they_are_in_the_end(driver):
    driver.jobs.hold = True
    driver.assign({P0: 10, P1: 10})
    yield from driver.turns(5)
    driver.revoke(P0)
    driver.assign({P2: 10}, p2=3)
    yield from driver.turns(5)
    driver.jobs.release()
    driver.jobs.hold = False
    yield from driver.started(0, 1)
    yield from driver.ended(0, 1)
    assert [plan.starts for plan in driver.jobs.plans] == [{P1: None}, {P2: 3}]


@played(lanes=1)
def test_a_predecessor_of_our_name_is_fenced_once_only(driver):
    yield from driver.working({P0: 10})
    driver.assign({P1: 10})
    driver.jobs.end(0)
    yield from driver.started(0)
    yield from driver.ended(0)
    assert driver.journal.count("fence 0") == 2
    assert driver.journal.count("fence predecessor") == 1


@played()
def test_a_standby_without_partitions_fences_nobody_and_plans_nothing(driver):
    driver.assign({})
    yield from driver.turns(50)
    assert driver.journal == []
    assert driver.told.of("partitions_assigned") == [{"partitions": []}]
    driver.jobs.hold = True
    driver.assign({P0: 10})
    yield from driver.turns(5)
    driver.revoke(P0)  # while fences go up
    driver.jobs.release()
    yield from driver.turns(50)
    yield STOP
    assert driver.jobs.plans == []


@played(lanes=1)
def test_whoever_loses_everything_plans_nothing_more(driver):
    yield from driver.working({P0: 10})
    driver.revoke(P0, lost=True)
    driver.jobs.end(0)
    yield from driver.turns(100)
    yield STOP
    assert len(driver.jobs.plans) == 1
    assert driver.told.of("partitions_lost") == [{"partitions": [P0]}]
    assert driver.journal[-1] == "submit 0", "nobody is asked about what is not ours"


@played(lanes=2)
def test_brokers_that_do_not_answer_a_fence_are_waited_for_and_all_fences_go_up_again(driver):
    driver.fences.fail = [ProducerDeadError("no answer")]
    yield from driver.working({P0: 10})
    yield from driver.ended(0)
    fences = [step for step in driver.journal if step.startswith("fence")]
    assert fences == ["fence 0", "fence 1", "fence predecessor"] * 2
    assert driver.told.of("producer_init_retried") == [{"reason": "no answer"}]


@played(lanes=1)
def test_a_fence_that_is_refused_for_good_stops_the_service(driver):
    driver.fences.fail = [StopError("grant the right")]
    driver.assign({P0: 10})
    with pytest.raises(StopError, match="grant"):
        yield from driver.turns(50)


@pytest.mark.parametrize("call", ["committed", "stable_ends", "member"])
@played(lanes=1)
def test_brokers_that_do_not_answer_are_asked_again_a_little_later(driver, call):
    driver.member.fail[call] = [BatchAbortedError(f"{call}: no answer"), BatchAbortedError(call)]
    before_s = driver.clock.now_s
    yield from driver.working({P0: 10}, p0=2)
    yield from driver.ended(0)
    assert driver.plan.starts == {P0: 2}
    assert [facts["reason"] for facts in driver.told.of("producer_init_retried")] == [
        f"{call}: no answer",
        call,
    ]
    assert driver.clock.now_s - before_s > 0.4


@played(lanes=2)
def test_running_tasks_report_also_while_brokers_are_waited_for(driver):
    yield from driver.working({P0: 10, P1: 10}, 0, 1)
    driver.jobs.end(0, **done(P0, 0, 10))
    driver.member.fail["stable_ends"] = [BatchAbortedError("no answer")]
    yield from driver.until(lambda: driver.told.of("producer_init_retried"))
    driver.jobs.end(1, **done(P1, 0, 7))
    yield
    yield
    assert len(driver.told.of("range_completed")) == 2


@played(lanes=1)
def test_a_member_whose_name_was_given_away_joins_anew_and_shares_out_again(driver):
    yield from driver.working({P0: 10})
    driver.member.fail["attend"] = [MemberFencedError("fenced", explained=False)]
    began_s = driver.clock.now_s
    yield
    driver.revoke(P0, lost=True)
    driver.jobs.end(0)
    yield from driver.until(lambda: "reopen" in driver.journal)
    assert driver.clock.now_s - began_s >= FenceBudget.STAND_BACK_S
    yield from driver.working({P0: 10}, p0=6)
    yield from driver.ended(0)
    assert driver.journal.count("reopen") == 1
    assert driver.journal.count("fence 0") == 2
    assert driver.plan.starts == {P0: 6}
    assert driver.told.of("member_fenced") == [{"reason": "fenced", "explained": False}]


@played(lanes=1)
def test_what_the_member_complains_of_is_told(driver):
    driver.member.news.errors = ["broker down"]
    yield
    yield
    yield STOP
    assert [facts["text"] for facts in driver.told.of("librdkafka_logged")] == ["broker down"]


@played(lanes=1)
def test_partitions_that_belong_to_nobody_are_told_once_they_are_adopted(driver):
    driver.assign({P0: 10}, p0=10)
    driver.member.orphans = [P1]
    yield from driver.until(lambda: driver.told.of("partitions_unowned"), turns_max=20_000)
    yield STOP
    assert driver.told.of("partitions_unowned") == [{"partitions": [P1]}]


@played(lanes=2)
def test_where_the_group_begins_is_committed_before_anything_is_planned(driver):
    driver.member.places = {P1: 5}
    yield from driver.working({P0: 5, P1: 9}, 0, 1, p0=3)
    assert driver.member.begun == [[P1]]
    assert [plan.starts for plan in driver.jobs.plans] == [{P0: 3}, {P1: 5}]
    assert {plan.cluster_id for plan in driver.jobs.plans} == {"the-cluster"}
    driver.jobs.release()


@played(lanes=1)
def test_nothing_is_planned_while_another_member_begins_the_topic(driver):
    driver.member.elsewhere = True
    driver.assign({P0: 5})
    yield from driver.until(lambda: len(driver.member.begun) > 2)
    assert driver.jobs.plans == []
    driver.member.elsewhere, driver.member.places = False, {P0: 2}
    yield from driver.started(0)
    assert driver.plan.starts == {P0: 2}
    driver.jobs.release()
