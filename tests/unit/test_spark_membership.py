"""The driver in its group: partitions come, go, and are shared out over lanes."""

import pytest

from hapax.core.errors import (
    BatchAbortedError,
    DuplicateInstanceError,
    MemberFencedError,
    ProducerDeadError,
    StopError,
)
from hapax.core.limits import FenceBudget
from tests.kit.spark_driver import P0, P1, P2, P3, STOP, done, played


@played(lanes=2)
def test_every_lane_is_fenced_and_offsets_are_read_before_anything_is_planned(driver):
    driver.assign({P0: 10, P1: 10})
    yield from driver.started(0, 1)
    driver.jobs.end(0)
    driver.jobs.end(1)
    yield STOP
    steps = [step for step in driver.journal if step != "member"]
    assert steps == [
        "fence 0", "fence 1", "fence predecessor", "committed", "stable_ends",
        "submit 0", "submit 1",
    ]  # fmt: skip


@played(lanes=3)
def test_partitions_are_spread_evenly_and_a_lane_too_many_stays_idle(driver):
    driver.assign({P0: 9, P1: 9, P2: 9, P3: 9})
    yield from driver.started(0, 1, 2)
    driver.revoke(P1, P2, P3)
    for lane in range(3):
        driver.jobs.end(lane)
    yield from driver.started(0)
    yield from driver.turns(20)
    driver.jobs.end(0)
    yield STOP
    assert [
        {number: list(at) for number, at in facts["lanes"].items()}
        for facts in driver.told.of("lanes_assigned")
    ] == [{0: [P0, P3], 1: [P1], 2: [P2]}, {0: [P0]}]
    assert [plan.lane for plan in driver.jobs.plans] == [0, 1, 2, 0]


@played(lanes=2)
def test_a_share_out_waits_for_the_running_tasks(driver):
    driver.assign({P0: 10, P1: 10})
    yield from driver.started(0, 1)
    driver.revoke(P1)
    del driver.journal[:]
    driver.jobs.end(1)
    yield from driver.turns(50)
    assert driver.journal == [], "lane 0 still works on what was shared out before"
    driver.jobs.end(0, **done(P0, 0, 4))
    driver.member.stable[P0] = 4
    yield from driver.started(0)
    driver.jobs.end(0)
    yield STOP
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
    driver.jobs.end(0)
    yield STOP
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
    driver.jobs.end(0)
    driver.jobs.end(1)
    yield STOP
    assert [plan.starts for plan in driver.jobs.plans] == [{P1: None}, {P2: 3}]


@played(lanes=1)
def test_partitions_that_all_leave_while_fences_go_up_leave_nothing_to_plan(driver):
    driver.jobs.hold = True
    driver.assign({P0: 10})
    yield from driver.turns(5)
    driver.revoke(P0)
    driver.jobs.release()
    yield from driver.turns(50)
    yield STOP
    assert driver.jobs.plans == []


@played(lanes=1)
def test_a_predecessor_of_our_name_is_fenced_once_only(driver):
    driver.assign({P0: 10})
    yield from driver.started(0)
    driver.assign({P1: 10})
    driver.jobs.end(0)
    yield from driver.started(0)
    driver.jobs.end(0)
    yield STOP
    assert driver.journal.count("fence 0") == 2
    assert driver.journal.count("fence predecessor") == 1


@played()
def test_a_standby_without_partitions_fences_nobody_and_plans_nothing(driver):
    driver.assign({})
    yield from driver.turns(50)
    yield STOP
    assert driver.journal == []
    assert driver.told.of("partitions_assigned") == [{"partitions": []}]


@played(lanes=1)
def test_whoever_loses_everything_plans_nothing_more(driver):
    driver.assign({P0: 10})
    yield from driver.started(0)
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
    driver.assign({P0: 10})
    yield from driver.started(0)
    driver.jobs.end(0)
    yield STOP
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
    driver.assign({P0: 10}, p0=2)
    yield from driver.started(0)
    driver.jobs.end(0)
    yield STOP
    assert driver.plan.starts == {P0: 2}
    assert [facts["reason"] for facts in driver.told.of("producer_init_retried")] == [
        f"{call}: no answer",
        call,
    ]
    assert driver.clock.now_s - before_s > 0.4


@played(lanes=2)
def test_running_tasks_report_also_while_brokers_are_waited_for(driver):
    driver.assign({P0: 10, P1: 10})
    yield from driver.started(0, 1)
    driver.jobs.end(0, **done(P0, 0, 10))
    driver.member.fail["stable_ends"] = [BatchAbortedError("no answer")]
    yield from driver.until(lambda: driver.told.of("producer_init_retried"))
    driver.jobs.end(1, **done(P1, 0, 7))
    yield
    yield
    assert len(driver.told.of("range_completed")) == 2


@played(lanes=1)
def test_a_member_whose_name_was_given_away_joins_anew_and_shares_out_again(driver):
    driver.assign({P0: 10})
    yield from driver.started(0)
    driver.member.fail["attend"] = [MemberFencedError("fenced", explained=False)]
    yield
    driver.revoke(P0, lost=True)
    driver.jobs.end(0)
    yield from driver.turns(10)
    driver.assign({P0: 10}, p0=6)
    yield from driver.started(0)
    driver.jobs.end(0)
    yield STOP
    assert driver.journal.count("reopen") == 1
    assert driver.journal.count("fence 0") == 2
    assert driver.plan.starts == {P0: 6}
    assert driver.told.of("member_fenced") == [{"reason": "fenced", "explained": False}]


@played(lanes=1)
def test_a_driver_that_was_fenced_stands_back_before_it_joins_anew(driver):
    driver.member.fail["attend"] = [MemberFencedError("fenced", explained=False)]
    began_s = driver.clock.now_s
    yield from driver.until(lambda: "reopen" in driver.journal)
    assert driver.clock.now_s - began_s >= FenceBudget.STAND_BACK_S


@played(lanes=1)
def test_a_name_that_is_given_away_again_and_again_means_a_twin(driver):
    driver.member.fail["attend"] = [MemberFencedError("fenced", explained=False)] * 2
    with pytest.raises(DuplicateInstanceError):
        yield from driver.turns(50)


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
    driver.assign({P0: 5, P1: 9}, p0=3)
    yield from driver.started(0, 1)
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
