"""The worker's loop on memory adapters: batches, ends, bounded runs, stops."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hapax.core.errors import DeadLetterLimitError
from hapax.core.record_path import Batch
from hapax.core.records import Output, Record
from hapax.engines.idle_offsets import Ends
from hapax.engines.worker import Worker
from hapax.processing.exactly_once import ExactlyOnce
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script
from tests.kit.pipeline import Pipeline

P0 = ("in", 0)
TRANSACTION = ("begin", "send", "send_offsets", "commit")
STEPS = ("take", *TRANSACTION, "committed", "rewind", "attend", "abort")


def calls_in_handlers(pipeline: Pipeline) -> list[str]:
    found: list[str] = []

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: object, **named: object) -> Any:
            if sys.exception() is not None:
                found.append(name)
            return method(*values, **named)

        return call

    for adapter in (pipeline.source, pipeline.transaction):
        for name in ("open", *STEPS):
            if (method := getattr(adapter, name, None)) is not None:
                setattr(adapter, name, noting(name, method))
    return found


@pytest.mark.parametrize("error", ["aborted", "dead", "fenced"])
@pytest.mark.parametrize("step", ["open", "begin", "send", "send_offsets", "commit", "committed"])
def test_no_client_is_called_while_an_exception_is_handled(step, error):
    """It would keep the exception, and with its frames a client that is dead: each outage of the
    brokers left some (tests/contract/test_closing.py).
    """
    faults = {step: [None, InjectedFault(error)]}  # one of three
    if step == "open":
        faults = {"commit": [InjectedFault("dead")], step: [None, InjectedFault("dead")]}
    elif step == "committed":
        faults = {"commit": [InjectedFault("dead")], step: [InjectedFault(error)]}  # one of three
    script = Script(**faults)
    pipeline = Pipeline(2, faults=script, batch_max=3)
    pipeline.write(*[b"%d" % n for n in range(10)])
    found = calls_in_handlers(pipeline)
    pipeline.run_judged()
    assert not script.unplayed
    assert found == []


@pytest.mark.parametrize("doubt", ["send_offsets", "commit", "abort"])
def test_a_request_that_was_sent_twice_does_no_harm_to_the_next_transaction(doubt):
    faults: dict[str, list[InjectedFault | None]] = {
        doubt: [InjectedFault(doubt=True, after=True)],
        "send": [None, InjectedFault("aborted", after=True)],
    }
    if doubt == "abort":
        faults["send"] = [InjectedFault("aborted", after=True)]
    pipeline = Pipeline(faults=Script(**faults), batch_max=2)
    pipeline.write(b"a", b"b", b"c", b"d")
    pipeline.run_judged()
    assert pipeline.told.names().count("in_doubt_fenced") == 1


def test_a_dead_letter_that_is_refused_too_is_cut_until_it_fits():
    pipeline = Pipeline()
    pipeline.broker.bytes_max = 400
    pipeline.write(b"a", b"b")
    pipeline.broker.write("in", b"x" * 500, key=b"key", headers=(("id", b"x"),))
    headers = (("id", b"c"), ("large", b"y" * 500))
    pipeline.broker.write("in", b"c", key=b"k" * 10, headers=headers, timestamp_ms=7)
    pipeline.run()
    assert pipeline.outputs() == [b"A", b"B"]
    without_value, without_all = pipeline.broker.records("dead")
    assert (without_value.key, without_value.value) == (b"key", None)
    assert dict(without_value.headers)["hapax-truncated"] == b"value=500"
    assert (without_all.key, without_all.value) == (b"in/0/3", None)
    told = dict(without_all.headers)
    assert told["hapax-truncated"] == b"value=1,key=10,headers=508,timestamp=7"
    assert told["hapax-source"] == b"in/0/3"
    assert told["hapax-error"] == b"Refused: MSG_SIZE_TOO_LARGE"


def test_a_dead_letter_that_brokers_refuse_without_naming_it_is_cut_too():
    pipeline = Pipeline()
    pipeline.broker.rejects = lambda message: (message.value or b"").lower() == b"bad"
    pipeline.write(b"a", b"bad")
    pipeline.run()
    (dead,) = pipeline.broker.records("dead")
    assert (dead.value, dict(dead.headers)["hapax-truncated"]) == (None, b"value=3")
    assert pipeline.outputs() == [b"A"]


def test_a_dead_letter_topic_that_refuses_everything_stops_the_service():
    pipeline = Pipeline()
    pipeline.broker.rejects = lambda message: message.topic == "dead"
    pipeline.write(b"a", b"boom")
    with pytest.raises(DeadLetterLimitError, match="record in/0/1 is refused even without"):
        pipeline.run()
    assert pipeline.outputs() == [b"A"]


def test_told_to_stop_in_the_middle_of_a_batch_the_finished_part_is_committed():
    def stopping(record: Record) -> Output:
        if record.value == b"b":
            pipeline.lifecycle.stop("SIGTERM")
        return Output(record.value)

    pipeline = Pipeline(transform=stopping)
    pipeline.write(b"a", b"b", b"c")
    pipeline.run()
    assert pipeline.committed() == {P0: 2}
    assert pipeline.outputs() == [b"a", b"b"]


@pytest.mark.parametrize("step", STEPS)
def test_told_to_stop_at_any_step_the_worker_leaves_and_its_successor_finishes(step):
    faults: dict[str, list[InjectedFault | None]] = {
        "send": [None, InjectedFault("aborted")],
        "commit": [None],
    }
    if step == "committed":
        faults = {"commit": [None, InjectedFault("aborted", after=True)]}
    script = Script(**faults)
    pipeline = Pipeline(faults=script, batch_max=2)
    pipeline.write(*[b"%d" % n for n in range(6)])

    script.once(lambda reached: reached == step, lambda: pipeline.lifecycle.stop("SIGTERM"))
    pipeline.run()
    assert step in script.steps
    pipeline.source.close()
    pipeline.start("w2")
    pipeline.run_judged()


@pytest.mark.parametrize("kind", ["fenced", "aborted"])
def test_a_batch_too_large_for_its_transactions_time_shrinks_until_it_fits(kind, monkeypatch):
    script = Script()
    pipeline, sizes, real = Pipeline(faults=script), [], ExactlyOnce.run

    def run(self: ExactlyOnce, batch: Batch, *rest: Any) -> Any:
        sizes.append(len(batch.records))
        # More than 100 records outlive the timeout of their transaction.
        late = len(batch.records) > 100
        script.then = lambda step: pipeline.clock.wait(11.0 if late and step == "commit" else 0.0)
        script.faults["commit"] = [InjectedFault(kind)] if late else []  # one of two
        return real(self, batch, *rest)

    monkeypatch.setattr(ExactlyOnce, "run", run)
    pipeline.write(*[b"r%d" % number for number in range(400)])
    pipeline.run_judged()
    assert len(pipeline.outputs()) == 400
    assert sizes[:3] == [400, 200, 100]
    assert len([size for size in sizes if size > 100]) == 2
    assert [facts["records_max"] for facts in pipeline.told.of("batch_halved")][:2] == [200, 100]


@pytest.mark.parametrize("step", TRANSACTION)
def test_after_an_abort_no_record_is_called_a_second_time(step):
    called: list[bytes] = []

    def counting(record: Record) -> Output:
        called.append(record.value or b"")
        return Output((record.value or b"").upper())

    faults: list[InjectedFault | None] = [InjectedFault("aborted")] * 3
    pipeline = Pipeline(faults=Script(**{step: [None, *faults]}), transform=counting, batch_max=4)
    pipeline.write(*[b"%d" % n for n in range(12)])
    pipeline.run_judged()
    assert sorted(called) == sorted(b"%d" % n for n in range(12))


@pytest.mark.parametrize(
    ("stopping", "paused", "more"),
    [(False, False, True), (True, False, False), (False, True, False), (True, True, False)],
)
def test_who_stops_or_is_paused_ends_what_is_in_work_and_takes_no_more(stopping, paused, more):
    asked: list[bool] = []

    def take(_wait_s: float, *, more: bool) -> Batch:
        asked.append(more)
        return Batch([], {}, {})

    nothing = SimpleNamespace
    worker: Any = nothing(
        _runner=nothing(drop=bool, waiting=True, busy=False, take=take),
        _recovery=nothing(check_clients=bool, fence_doubt=bool, claims=nothing(look=bool)),
        _clock=nothing(monotonic=float),
        _holds=(),
        _lifecycle=nothing(stopping=stopping, paused=paused),
        _events=nothing(loop_moved=bool),
        _observe=bool,
        _gave_up=lambda _batch, _changes: True,
    )
    Worker._turn(worker)
    assert asked == [more]


FIRST, SECOND = ("in", 0), ("in", 1)


@pytest.fixture
def known():
    return Ends(idle_s=0.3, interval_s=1.0)


def test_an_end_is_due_when_nothing_was_in_flight_for_a_while(known):
    known.record_commit({FIRST: 3}, 100.0)
    known.note({FIRST: 5})
    assert known.due(100.2) == []
    assert known.due(100.4) == [FIRST]


def test_ends_are_due_no_more_often_than_the_interval(known):
    known.note({FIRST: 5})
    known.moved({}, 100.0)
    assert known.due(100.9) == []
    assert known.due(101.0) == [FIRST]


@pytest.mark.parametrize(
    ("noted", "group", "moved"),
    [
        ({FIRST: 5, SECOND: 7}, {FIRST: 5, SECOND: 6}, {SECOND: 7}),
        ({FIRST: 5}, {FIRST: None, SECOND: 3}, {FIRST: 5}),  # without an offset: the first end
        ({FIRST: 5}, {FIRST: 9}, {}),  # never back
    ],
)
def test_only_ends_behind_what_the_group_knows_have_moved(known, noted, group, moved):
    known.note(noted)
    assert known.moved(group, 100.0) == moved
    assert known.pending() == []


def test_what_the_group_knows_or_a_batch_committed_is_not_pending_again(known):
    known.note({FIRST: 5})
    known.moved({FIRST: 5}, 100.0)
    known.note({FIRST: 5})
    assert known.pending() == []
    known.note({FIRST: 6, SECOND: 1})
    assert known.pending() == [FIRST, SECOND]
    known.record_commit({FIRST: 7}, 100.0)
    assert known.pending() == [SECOND]
    known.note({FIRST: 7})
    assert known.pending() == [SECOND]


def test_partitions_that_left_are_forgotten_and_all_when_everything_is_read_again(known):
    known.record_commit({FIRST: 5, SECOND: 5}, 100.0)
    known.note({FIRST: 6, SECOND: 6})
    known.forget([FIRST])
    assert known.pending() == [SECOND]
    known.note({FIRST: 5})
    assert known.pending() == [SECOND, FIRST]
    known.forget()
    assert known.pending() == []
    known.note({FIRST: 5})
    assert known.pending() == [FIRST]
