"""The worker's loop between and behind the records: ends, rebalances, bounded runs."""

import math

import pytest

from hapax.cluster.partition_offsets import HeldBack
from hapax.core.errors import BatchAbortedError, ExitCode, StopError
from hapax.engines.batch_runner import BatchRunner
from hapax.engines.worker import LEAVE_S, Worker
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script
from tests.kit.pipeline import Pipeline

P0, P1 = ("in", 0), ("in", 1)


def test_ends_are_committed_when_idle_and_lag_reaches_zero():
    pipeline = Pipeline(2)
    pipeline.write(b"a")
    pipeline.broker.hide(P0, 3)
    pipeline.broker.hide(P1, 2)
    pipeline.run()
    assert pipeline.committed() == {P0: 4, P1: 2}


def test_ends_that_come_later_are_committed_only_when_nothing_is_in_flight():
    script = Script()
    pipeline = Pipeline(faults=script)
    pipeline.write(b"a")
    hidden: list[float] = []

    def hide() -> None:
        hidden.append(pipeline.clock.now_s)
        pipeline.broker.hide(P0, 3)

    script.once(lambda step: step == "take" and pipeline.committed(), hide)
    pipeline.told.on["transaction_committed"] = lambda: pipeline.broker.hide(P0, 1)
    pipeline.run()
    assert pipeline.committed() == {P0: 5}
    assert pipeline.clock.now_s - hidden[0] > 0.3
    assert pipeline.told.of("idle_offsets_committed") == [{"progress": {P0: 5}}]


@pytest.mark.parametrize("step", ["begin", "send_offsets", "commit"])
@pytest.mark.parametrize("error", ["aborted", "dead"])
@pytest.mark.parametrize("after", [False, True])
def test_ends_are_committed_again_after_a_failed_attempt(step, error, *, after):
    fault: InjectedFault | None = InjectedFault(error, after=after)  # one of three
    script = Script(**{step: [fault]})
    pipeline = Pipeline(faults=script)
    pipeline.broker.hide(P0, 3)
    pipeline.run()
    assert pipeline.committed() == {P0: 3}
    assert not script.unplayed


def test_told_to_stop_with_a_request_in_doubt_the_worker_opens_no_further_transaction():
    script = Script(send_offsets=[InjectedFault("aborted", after=True)])
    pipeline = Pipeline(2, faults=script)
    pipeline.broker.hide(P1, 3)
    pipeline.ends.record_commit({}, pipeline.clock.now_s)  # busy a moment ago: the end has to wait

    def then(step: str) -> None:
        if step == "take" and script.steps.count("take") == 2:
            pipeline.write(b"a", b"b", b"c")
        if step == "send_offsets" and script.steps.count("send_offsets") == 1:
            pipeline.lifecycle.stop("SIGTERM")

    def left() -> None:
        # What the client's "Timed out TxnOffsetCommit in flight" leaves after the abort.
        pipeline.transaction.doubts = ["REQTMOUT: TxnOffsetCommit sent twice"]
        pipeline.broker.send_late(pipeline.transaction._name(), offsets={P0: 3})

    script.then = then
    pipeline.told.on["batch_abandoned"] = left
    pipeline.run()
    assert pipeline.told.names().count("batch_abandoned") == 1
    assert (pipeline.outputs(), pipeline.committed()) == ([], {}), "offsets without their outputs"
    pipeline.broker.group.expel("w")
    pipeline.start("w2")  # the next start gives every record its effect
    pipeline.run_judged()


def test_ends_of_a_partition_that_left_are_not_committed():
    script = Script()
    pipeline = Pipeline(2, faults=script)
    pipeline.broker.hide(P0, 3)
    pipeline.broker.hide(P1, 3)
    pipeline.ends.record_commit({}, pipeline.clock.now_s)  # busy a moment ago
    taken: list[int] = []

    def then(step: str) -> None:
        taken.append(step == "take")
        if sum(taken) == 2 and step == "take":
            pipeline.broker.group.join("a-other")  # sorts first: P0 goes there
        if pipeline.committed():
            pipeline.lifecycle.stop("seen")

    script.then = then
    pipeline.run()
    assert pipeline.committed() == {P1: 3}
    assert pipeline.told.of("partitions_revoked") == [{"partitions": [P0]}]


def test_partitions_that_were_lost_are_told_and_taken_again_from_the_committed_offset():
    script = Script()
    pipeline = Pipeline(faults=script, batch_max=2)
    pipeline.write(*[b"%d" % n for n in range(6)])

    script.at("send", 2, lambda: pipeline.broker.group.expel("w"))
    pipeline.run_judged()
    assert pipeline.told.of("partitions_lost") == [{"partitions": [P0]}]


def test_errors_and_repeats_of_the_client_are_told():
    pipeline = Pipeline()
    pipeline.write(b"a")
    pipeline.source._changes.errors.append("_TRANSPORT: gone")
    pipeline.source._changes.passing.append("COORDINATOR_LOAD_IN_PROGRESS: loading")
    pipeline.source._changes.repeated[P0] = 3
    pipeline.run()
    told = pipeline.told.of("librdkafka_logged")
    assert [(line["level"], line["text"]) for line in told] == [
        (30, "_TRANSPORT: gone"),
        (20, "COORDINATOR_LOAD_IN_PROGRESS: loading"),
    ]
    assert pipeline.told.of("records_redelivered") == [{"count": 3, "partition": P0}]


def test_a_run_bounded_by_records_ends_after_exactly_so_many():
    pipeline = Pipeline(records_max=5, batch_max=3)
    pipeline.write(*[b"%d" % n for n in range(9)])
    pipeline.run()
    assert pipeline.committed() == {P0: 5}
    assert pipeline.lifecycle.end(bounded=True) == "drained"


def test_a_stop_says_what_it_waits_for_and_what_it_leaves_to_the_next_process(monkeypatch):
    pipeline = Pipeline(records_max=5, shutdown_s=LEAVE_S)
    monkeypatch.setattr(BatchRunner, "busy", 3)  # calls that do not end
    pipeline.lifecycle.stop("SIGTERM")
    pipeline.run()
    assert pipeline.told.of("service_draining") == [{"reason": "SIGTERM", "in_flight": 3}]
    assert pipeline.lifecycle.end(bounded=True).split("; ") == [
        "drained",
        "SIGTERM came before the end of this bounded run",
        "records that the next process calls again: 3",
    ]


def test_a_run_to_the_ends_ends_there_and_leaves_what_came_later():
    script = Script()
    pipeline = Pipeline(2, faults=script, at_end=True, batch_max=3)
    pipeline.write(*[b"%d" % n for n in range(9)])
    pipeline.broker.hide(P0, 2)

    script.at("commit", 2, lambda: pipeline.broker.hide(P1, 1))
    pipeline.run()
    assert pipeline.committed()[P0] == 11


def test_a_run_to_the_ends_waits_for_the_partitions_of_others():
    script = Script()
    pipeline = Pipeline(2, faults=script, at_end=True)
    pipeline.broker.group.join("a-other")  # sorts first: P0 is its
    pipeline.broker.group.join("w")
    pipeline.broker.shift("a-other", frozenset())
    pipeline.write(b"a", partition=1)
    pipeline.write(b"b")
    script.at("committed", 6, lambda: pipeline.broker.committed.update({P0: 1}))
    pipeline.run()
    assert pipeline.outputs() == [b"A"]
    assert pipeline.committed() == {P0: 1, P1: 1}
    assert script.steps.count("committed") >= 6


def open_input(open_timeout_s: float | None = math.inf) -> tuple[Pipeline, Script]:
    """Return a run to the end whose input has a record, three of an open transaction, and one."""
    script = Script()
    pipeline = Pipeline(2, faults=script, at_end=True, open_timeout_s=open_timeout_s)
    log = pipeline.broker.logs[P0]
    pipeline.write(b"a")
    for _ in range(3):
        log.append(b"open", key=None, headers=(), timestamp_ms=0, producer="t")
    pipeline.write(b"b")
    pipeline.write(b"c", partition=1)
    return pipeline, script


HELD = {"held": {P0: HeldBack(1, 5)}}


@pytest.mark.parametrize("commit", [True, False])
def test_a_run_to_the_ends_waits_for_what_was_open_at_its_start(commit):
    pipeline, script = open_input()
    script.once(
        lambda step: step == "take" and pipeline.told.of("open_transactions_awaited") == [HELD],
        lambda: pipeline.broker.logs[P0].mark("t", commit=commit),
    )
    pipeline.run()
    assert pipeline.outputs() == sorted([b"A", b"B", b"C", *[b"OPEN"] * (3 if commit else 0)])
    assert pipeline.committed() == {P0: 6, P1: 1}
    told = pipeline.told.of("open_transactions_awaited")
    assert told == [HELD, {"held": {}}], "once, and that it is over"


def test_a_transaction_that_ends_soon_needs_no_line():
    pipeline, script = open_input()
    began_s = pipeline.clock.now_s

    def late(step: str) -> bool:
        is_late = pipeline.clock.now_s > began_s + 1.5 and P0 in pipeline.committed()
        return step == "take" and is_late

    script.once(late, lambda: pipeline.broker.logs[P0].mark("t", commit=True))
    pipeline.run()
    assert pipeline.committed() == {P0: 6, P1: 1}
    assert pipeline.told.of("open_transactions_awaited") == []


def test_a_run_that_may_leave_ends_before_what_is_open_and_says_how_much():
    pipeline, _ = open_input(None)
    pipeline.run()
    assert pipeline.outputs() == [b"A", b"C"]
    assert pipeline.committed() == {P0: 1, P1: 1}
    assert pipeline.told.of("open_transactions_left") == [HELD]


def test_a_wait_that_is_too_long_says_where_and_what_to_do():
    pipeline, _ = open_input(60.0)
    began_s = pipeline.clock.now_s
    with pytest.raises(StopError, match=r"4 offsets wait for .* \(in/0 from 1 to 5\)") as raised:
        pipeline.run()
    assert raised.value.exit_code == ExitCode.UNEXPECTED
    assert "hapax transactions list" in str(raised.value)
    assert 60 < pipeline.clock.now_s - began_s < 65
    assert pipeline.committed() == {P0: 1, P1: 1}


def test_a_wait_counts_from_the_last_move_of_an_open_transaction():
    pipeline, script = open_input(60.0)
    pipeline.broker.logs[P0].append(b"next", key=None, headers=(), timestamp_ms=0, producer="u")
    began_s = pipeline.clock.now_s
    script.once(
        lambda step: step == "take" and pipeline.clock.now_s - began_s > 40,
        lambda: pipeline.broker.logs[P0].mark("t", commit=True),  # the other one stays
    )
    with pytest.raises(StopError, match="from 5 to 6"):
        pipeline.run()
    assert pipeline.clock.now_s - began_s > 100


def test_what_fails_behind_a_committed_batch_never_puts_that_batch_back(monkeypatch):
    pipeline = Pipeline(at_end=True)
    pipeline.write(b"a")
    done = Worker._done
    failed: list[bool] = []

    def fail_once(self: Worker) -> bool:
        if pipeline.outputs() and not failed:
            failed.append(True)
            raise BatchAbortedError("the ends of another partition were not committed")
        return done(self)

    monkeypatch.setattr(Worker, "_done", fail_once)
    pipeline.run()
    assert failed
    assert pipeline.outputs() == [b"A"]


@pytest.mark.parametrize("committed", [0, 1])
def test_a_run_to_the_ends_of_an_empty_topic_or_where_all_is_committed_ends_at_once(committed):
    pipeline = Pipeline(at_end=True)
    pipeline.write(*[b"a"] * committed)
    pipeline.broker.committed = {P0: committed} if committed else {}
    pipeline.run()
    assert pipeline.turns < 10


@pytest.mark.parametrize(("unknown", "at_s"), [(0, [5]), (2, [5, 10, 15])])
def test_partitions_that_belong_to_nobody_are_looked_for_soon_after_an_assignment(
    monkeypatch, unknown, at_s
):
    pipeline = Pipeline()
    pipeline.broker.hide(P0, 1)
    pipeline.ends.record_commit({}, pipeline.clock.now_s + 25.0)  # busy until then
    looked: list[float] = []

    def adopt() -> list[tuple[str, int]] | None:
        looked.append(pipeline.clock.now_s - 1000.0)
        return [P1] if len(looked) > unknown else None

    monkeypatch.setattr(pipeline.source, "adopt_orphans", adopt)
    pipeline.run()
    assert [int(looked_s) for looked_s in looked] == at_s, "and not again within a minute"
    assert pipeline.told.of("partitions_unowned") == [{"partitions": [P1]}]
