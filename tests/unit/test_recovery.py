"""What the worker does when a batch did not go through: one reaction for each class of error."""

import pytest

from hapax.core import errors
from hapax.core.record_path import Batch
from hapax.core.records import Record
from hapax.core.results import Failure
from hapax.engines.membership import HOLD_S
from hapax.processing.limits import FenceBudget
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script
from tests.kit.pipeline import Pipeline, opened, taken

ABORTED, DEAD, FENCED = InjectedFault("aborted"), InjectedFault("dead"), InjectedFault("fenced")
P0, P1 = ("in", 0), ("in", 1)
NOTHING = Batch([], {}, {})


def filled(script: Script | None = None, partitions: int = 1) -> Pipeline:
    pipeline = Pipeline(partitions, faults=script)
    pipeline.write(b"a", b"b")
    if partitions > 1:
        pipeline.write(b"c", partition=1)
    return opened(pipeline)


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def pipeline(script):
    return filled(script)


@pytest.fixture
def batch(pipeline):
    return taken(pipeline)


def test_an_aborted_batch_is_taken_again_from_its_first_offset(pipeline, batch):
    pipeline.recovery.recover(errors.BatchAbortedError("aborted"), batch)
    assert pipeline.source.take(500, 0.0) == batch
    assert pipeline.told.of("batch_aborted") == [
        {"reason": "aborted", "records": 2, "attempt": 1, "rewound_to": {P0: 0}}
    ]


def test_an_open_outcome_is_decided_by_what_the_group_has_committed():
    pipeline = filled(partitions=2)
    batch = taken(pipeline)
    pipeline.broker.committed = {P0: 2}
    pipeline.recovery.recover(errors.BatchAbortedError("unknown", resolved=False), batch)
    again = pipeline.source.take(500, 0.0)
    assert again.first == {P1: 0}, "P0 went through; P1 never committed and starts where it did"
    assert pipeline.told.of("batch_aborted")[0]["rewound_to"] == {P0: 2, P1: 0}


def test_without_committed_offset_the_last_settled_place_decides(pipeline, batch):
    pipeline.source.mark_processed({P0: 1})
    pipeline.recovery.recover(errors.BatchAbortedError("unknown", resolved=False), batch)
    assert pipeline.source.take(500, 0.0).first == {P0: 1}


def test_a_dead_producer_is_replaced_and_the_group_says_where_to_go_on(script, pipeline, batch):
    pipeline.recovery.recover(errors.ProducerDeadError("dead"), batch)
    assert script.steps[script.steps.index("take") :] == ["take", "open", "committed", "rewind"]
    assert pipeline.told.of("producer_died") == [{"reason": "dead", "fenced": False}]
    assert pipeline.told.of("producer_rebuilt")[0]["cause"] == "fatal"
    assert pipeline.source.take(500, 0.0) == batch


def test_a_producer_is_rebuilt_for_as_long_as_brokers_are_away():
    pipeline = filled(Script(open=[None, DEAD, DEAD, DEAD]))
    batch = taken(pipeline)
    pipeline.recovery.recover(errors.ProducerDeadError("dead"), batch)
    assert len(pipeline.told.of("producer_init_retried")) == 3
    assert pipeline.told.of("producer_rebuilt")[0]["duration_s"] > 0.5


def test_fenced_once_is_survived_and_fenced_again_means_a_twin(pipeline, batch):
    pipeline.transaction.begin()
    pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)
    assert pipeline.told.of("producer_rebuilt")[0]["cause"] == "fenced"
    pipeline.transaction.begin()
    with pytest.raises(errors.DuplicateInstanceError):
        pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)


def test_a_fence_of_a_transaction_older_than_its_timeout_explains_itself(pipeline, batch):
    for _ in range(6):
        pipeline.transaction.begin()
        pipeline.clock.wait(10.0)
        pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)


def test_a_fence_while_opening_counts_as_well():
    pipeline = filled(Script(open=[None, FENCED]))
    batch = taken(pipeline)
    pipeline.transaction.begin()
    with pytest.raises(errors.DuplicateInstanceError):
        pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)


@pytest.mark.parametrize(
    "script",
    [
        Script(rewind=[ABORTED, ABORTED]),
        Script(rewind=[InjectedFault("aborted", after=True)], committed=[ABORTED]),
        Script(attend=[ABORTED]),
        Script(attend=[InjectedFault("aborted", after=True)], open=[None, DEAD], rewind=[ABORTED]),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        errors.BatchAbortedError("aborted"),
        errors.BatchAbortedError("unknown", resolved=False),
        errors.ProducerDeadError("dead"),
        errors.ProducerDeadError("fenced", fenced=True),
        errors.ClaimsUnavailableError("away"),
    ],
)
def test_what_goes_wrong_while_recovering_is_handled_in_the_same_loop(error, script):
    script = Script(**script.faults)
    pipeline = filled(script)
    batch = taken(pipeline)
    pipeline.recovery.recover(error, batch)
    assert pipeline.source.take(500, 0.0).records == batch.records
    pipeline.source.rewind({P0: 0})
    pipeline.run_judged(open_first=False)


def test_an_error_that_no_reaction_knows_is_raised():
    pipeline = filled()
    with pytest.raises(ZeroDivisionError):
        pipeline.recovery.recover(ZeroDivisionError(), NOTHING)


def refused_at(pipeline: Pipeline, **facts: object) -> errors.BatchAbortedError:
    return errors.BatchAbortedError("refused", content=True, **facts)  # type: ignore[arg-type] # test data


def test_refused_content_is_tried_three_times_then_halved_until_the_culprit_is_condemned(
    pipeline, batch
):
    for _ in range(3):
        assert pipeline.retry.limit(500) == 500
        pipeline.recovery.recover(refused_at(pipeline), batch)
    assert pipeline.told.of("batch_halved") == [{"records_max": 1, "reason": "refused"}]
    single = pipeline.source.take(1, 0.0)
    for _ in range(3):
        assert pipeline.retry.rejected == {}
        pipeline.recovery.recover(refused_at(pipeline), single)
    culprit = Failure("Refused", "refused", 1)
    assert pipeline.retry.rejected == {single.records[0].coordinates: culprit}
    pipeline.recovery.record_success({P1: 1})
    assert pipeline.retry.rejected, "its record is still to come"
    pipeline.recovery.record_success({P0: 1})
    assert pipeline.retry.rejected == {}


def test_a_culprit_that_is_known_by_name_is_condemned_at_once(pipeline, batch):
    error = refused_at(pipeline)
    error.culprits = {batch.records[1].coordinates: Failure("Refused", "too large", 1)}
    pipeline.recovery.recover(error, batch)
    assert pipeline.retry.rejected == error.culprits
    assert pipeline.told.of("batch_halved") == []


def test_repeated_aborts_back_off_up_to_a_second(pipeline, batch):
    waits = []
    for _ in range(9):
        before_s = pipeline.clock.now_s
        pipeline.recovery.recover(errors.BatchAbortedError("aborted"), batch)
        waits.append(round(pipeline.clock.now_s - before_s, 2))
    assert waits == [0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 1.0]
    pipeline.recovery.record_success({})
    pipeline.recovery.recover(errors.BatchAbortedError("aborted"), batch)
    assert pipeline.told.of("batch_aborted")[-1]["attempt"] == 1


def test_doubts_of_a_committed_transaction_are_fenced_off_before_the_next():
    script = Script()
    pipeline = filled(script)
    taken(pipeline)
    pipeline.recovery.record_success({})
    assert pipeline.told.events == [], "without doubts nothing is rebuilt"
    pipeline.transaction.doubts = ["commit: sent twice"]
    pipeline.recovery.record_success({})
    assert script.steps[-1] == "open"
    assert pipeline.told.of("in_doubt_fenced") == [{"evidence": "commit: sent twice"}]
    assert pipeline.told.of("producer_rebuilt")[0]["cause"] == "doubt"


def test_doubts_of_an_aborted_transaction_are_fenced_off_too(script, pipeline, batch):
    pipeline.transaction.doubts = ["abort: sent twice"]
    pipeline.recovery.recover(errors.BatchAbortedError("aborted"), batch)
    assert script.steps[-1] == "open"


def never_begun_in_doubt(pipeline: Pipeline, script: Script) -> None:
    def then(step: str) -> None:
        assert step != "begin" or not pipeline.transaction.doubts, "begun with a doubt"

    script.then = then
    pipeline.run(open_first=False)
    assert not script.unplayed


@pytest.mark.parametrize("step", ["rewind", "attend"])
def test_doubts_of_an_abort_outlast_a_member_that_is_fenced_meanwhile(step):
    script = Script(abort=[InjectedFault(doubt=True, after=True)], send=[ABORTED])
    script.faults[step] = [FENCED]
    pipeline = filled(script)
    never_begun_in_doubt(pipeline, script)
    pipeline.judge()


def test_doubts_of_a_commit_outlast_a_failed_rewind_of_the_rest():
    script = Script(rewind=[FENCED], commit=[InjectedFault(doubt=True, after=True)])

    def cutting(_record: Record) -> None:
        cut_short.interrupt.due = True

    cut_short = opened(Pipeline(faults=script, transform=cutting))
    cut_short.write(b"a", b"b")
    never_begun_in_doubt(cut_short, script)
    assert cut_short.drained()


# -- While something is away: claim store, brokers, group; and told to stop meanwhile -------


def test_while_claims_are_away_partitions_are_held_and_membership_is_kept(script, pipeline, batch):
    def answer() -> None:
        pipeline.claims.outage = None

    pipeline.claims.outage = "away"
    script.at("attend", 4, answer)
    pipeline.recovery.recover(errors.ClaimsUnavailableError("away"), batch)
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
    pipeline.claims.outage = "away"
    held: list[frozenset[tuple[str, int]]] = []

    def then(step: str) -> None:
        if step == "attend":
            pipeline.broker.group.expel("other")
            held.append(pipeline.source.paused)
            if len(held) == 3:
                pipeline.claims.outage = None

    script.then = then
    pipeline.recovery.recover(errors.ClaimsUnavailableError("away"), batch)
    assert held == [{P1}, {P0, P1}, {P0, P1}]


def test_told_to_stop_while_claims_are_away_the_worker_leaves_in_order(script, pipeline, batch):
    pipeline.claims.outage = "away"
    script.at("attend", 1, lambda: pipeline.lifecycle.stop("SIGTERM"))
    pipeline.recovery.recover(errors.ClaimsUnavailableError("away"), batch)
    assert "claims_recovered" not in pipeline.told.names()
    assert pipeline.source.paused == frozenset()


@pytest.mark.parametrize("error", [errors.BatchAbortedError("x"), errors.ProducerDeadError("x")])
def test_told_to_stop_before_recovery_begins_the_rest_is_left_to_the_successor(
    error, script, pipeline, batch
):
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
    with pytest.raises(errors.StopError, match="the next start resolves it"):
        pipeline.recovery.recover(errors.ProducerDeadError("dead"), batch)


def test_while_the_group_gives_no_answer_the_loop_still_moves():
    pipeline = filled(Script(committed=[ABORTED] * 20))
    batch = taken(pipeline)
    pipeline.recovery.recover(errors.BatchAbortedError("unknown", resolved=False), batch)
    assert pipeline.told.names().count("loop_moved") >= 10


def test_without_a_claim_store_an_outage_of_it_is_over_at_once():
    pipeline = Pipeline(claims=False)
    pipeline.recovery.recover(errors.ClaimsUnavailableError("away"), NOTHING)
    assert "claims_recovered" in pipeline.told.names()


def test_a_fenced_member_joins_again_and_one_fenced_again_without_progress_has_a_twin():
    pipeline = filled(Script(take=[None, FENCED]))
    pipeline.run_judged(open_first=False)
    pipeline = filled(Script(take=[FENCED, FENCED]))
    with pytest.raises(errors.DuplicateInstanceError):
        pipeline.run(open_first=False)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (errors.ProducerDeadError("fenced", fenced=True), "open"),
        (errors.MemberFencedError("fenced", explained=False), "reopen"),
    ],
)
def test_who_was_fenced_stands_back_before_it_takes_its_name_again(
    error, step, script, pipeline, batch
):
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
    pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)
    assert script.unplayed == {}
    assert script.steps.count("open") == opens + 1
    assert pipeline.told.names().count("producer_died") == 1
    assert [each["cause"] for each in pipeline.told.of("producer_rebuilt")] == ["fenced"]
    pipeline.run_judged(open_first=False)


def test_a_fence_that_explains_itself_costs_no_time(pipeline, batch):
    fenced_s = pipeline.clock.now_s
    pipeline.recovery.recover(errors.MemberFencedError("fenced", explained=True), batch)
    assert pipeline.clock.now_s - fenced_s < HOLD_S


def test_who_is_told_to_stop_does_not_stand_back_any_longer(script, pipeline, batch):
    pipeline.transaction.begin()

    script.at("attend", 1, lambda: pipeline.lifecycle.stop("SIGTERM"))
    fenced_s = pipeline.clock.now_s
    pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)
    assert pipeline.clock.now_s - fenced_s < FenceBudget.STAND_BACK_S


def test_fences_by_our_own_late_registrations_are_no_twin():
    pipeline = filled(Script(open=[None, DEAD, DEAD, DEAD]))
    batch = taken(pipeline)
    pipeline.recovery.recover(errors.ProducerDeadError("dead"), batch)
    for _ in range(4):  # one for each that got no answer, and the first that is anybody's guess
        pipeline.transaction.begin()
        pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)
    pipeline.transaction.begin()
    with pytest.raises(errors.DuplicateInstanceError):
        pipeline.recovery.recover(errors.ProducerDeadError("fenced", fenced=True), batch)
