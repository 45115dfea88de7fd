"""Recovery while something is away: claim store, brokers, group; and told to stop meanwhile."""

from collections.abc import Callable

import pytest

from hapax.core.errors import (
    BatchAbortedError,
    ClaimsUnavailableError,
    DuplicateInstanceError,
    MemberFencedError,
    ProducerDeadError,
    StopError,
)
from hapax.core.limits import FenceBudget
from hapax.engines.membership import HOLD_S
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script
from tests.kit.pipeline import Pipeline, taken
from tests.unit.test_recovery import ABORTED, DEAD, FENCED, NOTHING, P0, P1, filled


def answering_after(pipeline: Pipeline, attends: int) -> Callable[[str], None]:
    left = [attends]

    def then(step: str) -> None:
        left[0] -= step == "attend"
        if not left[0] and pipeline.claims is not None:
            pipeline.claims.outage = None

    return then


def test_while_claims_are_away_partitions_are_held_and_membership_is_kept():
    script = Script()
    pipeline = filled(script)
    batch = taken(pipeline)
    assert pipeline.claims is not None
    pipeline.claims.outage = "away"
    script.then = answering_after(pipeline, 4)
    pipeline.recovery.recover(ClaimsUnavailableError("away"), batch)
    assert script.steps.count("attend") == 4
    assert pipeline.told.of("claims_unavailable") == [{"reason": "away", "policy": "pause"}]
    assert pipeline.told.of("claims_recovered")[0]["outage_s"] > 0.7
    assert pipeline.source.paused == frozenset()
    assert pipeline.source.take(500, 0.0) == batch


def test_while_claims_are_away_nothing_is_delivered_from_new_partitions_either():
    script = Script()
    pipeline = filled(script, partitions=2)
    pipeline.broker.group.join("other")
    batch = taken(pipeline)
    assert set(batch.first) == {P1}
    assert pipeline.claims is not None
    pipeline.claims.outage = "away"
    held: list[frozenset[tuple[str, int]]] = []

    def then(step: str) -> None:
        if step == "attend":
            pipeline.broker.group.expel("other")
            held.append(pipeline.source.paused)
            if len(held) == 3 and pipeline.claims is not None:
                pipeline.claims.outage = None

    script.then = then
    pipeline.recovery.recover(ClaimsUnavailableError("away"), batch)
    assert held == [{P1}, {P0, P1}, {P0, P1}]


def test_told_to_stop_while_claims_are_away_the_worker_leaves_in_order():
    script = Script()
    pipeline = filled(script)
    batch = taken(pipeline)
    assert pipeline.claims is not None
    pipeline.claims.outage = "away"
    script.then = lambda step: pipeline.lifecycle.stop("SIGTERM") if step == "attend" else None
    pipeline.recovery.recover(ClaimsUnavailableError("away"), batch)
    assert "claims_recovered" not in pipeline.told.names()
    assert pipeline.source.paused == frozenset()


@pytest.mark.parametrize("error", [BatchAbortedError("x"), ProducerDeadError("x")])
def test_told_to_stop_before_recovery_begins_the_rest_is_left_to_the_successor(error):
    script = Script()
    pipeline = filled(script)
    batch = taken(pipeline)
    pipeline.lifecycle.stop("SIGTERM")
    steps = list(script.steps)
    pipeline.recovery.recover(error, batch)
    assert pipeline.told.of("batch_abandoned") == [{"reason": "x"}]
    assert script.steps == steps


@pytest.mark.parametrize("step", ["open", "committed", "rewind"])
def test_told_to_stop_while_brokers_are_away_the_worker_leaves_when_time_is_up(step):
    first: list[InjectedFault | None] = [None] if step == "open" else []
    script = Script(**{step: first + [DEAD] * 999})
    pipeline = filled(script)
    batch = taken(pipeline)

    def then(reached: str) -> None:
        if script.steps.count(step) == 5:
            pipeline.lifecycle.stop("SIGTERM")
        if script.steps.count(step) > 5:
            pipeline.clock.wait(10.0)

    script.then = then
    with pytest.raises(StopError, match="the next start resolves it"):
        pipeline.recovery.recover(ProducerDeadError("dead"), batch)


def test_while_the_group_gives_no_answer_the_loop_still_moves():
    pipeline = filled(Script(committed=[ABORTED] * 20))
    batch = taken(pipeline)
    pipeline.recovery.recover(BatchAbortedError("unknown", resolved=False), batch)
    assert pipeline.told.names().count("loop_moved") >= 10


def test_without_a_claim_store_an_outage_of_it_is_over_at_once():
    pipeline = Pipeline(claims=False)
    pipeline.recovery.recover(ClaimsUnavailableError("away"), NOTHING)
    assert "claims_recovered" in pipeline.told.names()


def test_a_fenced_member_joins_again_and_one_fenced_again_without_progress_has_a_twin():
    pipeline = filled(Script(take=[None, FENCED]))
    pipeline.run_judged(open_first=False)
    pipeline = filled(Script(take=[FENCED, FENCED]))
    with pytest.raises(DuplicateInstanceError):
        pipeline.run(open_first=False)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ProducerDeadError("fenced", fenced=True), "open"),
        (MemberFencedError("fenced", explained=False), "reopen"),
    ],
)
def test_who_was_fenced_stands_back_before_it_takes_its_name_again(error, step):
    script = Script()
    pipeline = filled(script)
    batch = taken(pipeline)
    pipeline.transaction.begin()
    taken_again_s: list[float] = []

    def then(taken: str) -> None:
        if taken == step:
            taken_again_s.append(pipeline.clock.now_s)

    script.then = then
    fenced_s = pipeline.clock.now_s
    pipeline.recovery.recover(error, batch)
    assert len(taken_again_s) == 1
    waited_s = taken_again_s[0] - fenced_s
    assert FenceBudget.STAND_BACK_S <= waited_s < FenceBudget.STAND_BACK_S + 1.0


@pytest.mark.parametrize("between", [FENCED, ABORTED])
def test_a_fence_that_something_comes_between_counts_once_and_leaves_no_dead_producer(between):
    script = Script(attend=[None, between])
    pipeline = filled(script)
    batch = taken(pipeline)
    pipeline.transaction.begin()
    opens = script.steps.count("open")
    pipeline.recovery.recover(ProducerDeadError("fenced", fenced=True), batch)
    assert script.unplayed == {}
    assert script.steps.count("open") == opens + 1
    assert pipeline.told.names().count("producer_died") == 1
    assert [each["cause"] for each in pipeline.told.of("producer_rebuilt")] == ["fenced"]
    pipeline.run_judged(open_first=False)


def test_a_fence_that_explains_itself_costs_no_time():
    pipeline = filled()
    batch = taken(pipeline)
    fenced_s = pipeline.clock.now_s
    pipeline.recovery.recover(MemberFencedError("fenced", explained=True), batch)
    assert pipeline.clock.now_s - fenced_s < HOLD_S


def test_who_is_told_to_stop_does_not_stand_back_any_longer():
    script = Script()
    pipeline = filled(script)
    batch = taken(pipeline)
    pipeline.transaction.begin()

    def then(step: str) -> None:
        if step == "attend":
            pipeline.lifecycle.stop("SIGTERM")

    script.then = then
    fenced_s = pipeline.clock.now_s
    pipeline.recovery.recover(ProducerDeadError("fenced", fenced=True), batch)
    assert pipeline.clock.now_s - fenced_s < FenceBudget.STAND_BACK_S


def test_fences_by_our_own_late_registrations_are_no_twin():
    pipeline = filled(Script(open=[None, DEAD, DEAD, DEAD]))
    batch = taken(pipeline)
    pipeline.recovery.recover(ProducerDeadError("dead"), batch)
    for _ in range(4):  # one for each that got no answer, and the first that is anybody's guess
        pipeline.transaction.begin()
        pipeline.recovery.recover(ProducerDeadError("fenced", fenced=True), batch)
    pipeline.transaction.begin()
    with pytest.raises(DuplicateInstanceError):
        pipeline.recovery.recover(ProducerDeadError("fenced", fenced=True), batch)
