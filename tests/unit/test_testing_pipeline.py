"""``hapax.testing``: what a test of a transform sees is what the service would do."""

import asyncio
import json
import sys
import threading
import time

import pytest

from hapax import Output, Poison, Record, RetryLater
from hapax.core.errors import ConfigurationError, DeadLetterLimitError
from hapax.testing import Pipeline
from hapax.testing.pipeline import _CallWatch
from tests.kit.commands import output_of

BY_ID = {"HAPAX_DEDUP__ID": "json:/id"}


def order(event: str, total: int = 1) -> bytes:
    return json.dumps({"id": event, "total": total}).encode()


def route(record: Record) -> list[Output] | None:
    """Refuse what is no order, filter the empty ones, copy the large ones to a topic of theirs."""
    total = json.loads(record.value or b"")["total"]
    if total < 0:
        raise Poison("a total is never negative")
    if not total:
        return None
    outputs = [Output(record.value)]
    if total > 100:
        outputs.append(Output(record.value, topic="large", key=b"large"))
    return outputs


def test_outputs_filtered_dead_letters_and_duplicates_are_separate():
    pipeline = Pipeline(route, BY_ID)
    result = pipeline.run(order("a"), order("b", 0), order("x", -1), order("a"), order("c", 500))
    assert result.records == 5
    assert result.values("output") == [order("a"), order("c", 500)]
    assert result.values("large") == [order("c", 500)]
    assert [at.offset for at in result.filtered] == [1]
    assert [at.offset for at in result.duplicates] == [3]
    [letter] = result.dead_letters
    assert (letter.error, letter.attempts, letter.source.offset) == (
        "Poison: a total is never negative", 1, 2,
    )  # fmt: skip
    assert result.retries == 0


def test_an_output_has_the_headers_that_a_reader_of_the_topic_finds():
    pipeline = Pipeline(route, BY_ID)
    pipeline.send(order("a", 500), key=b"k", headers=[("origin", b"desk")], partition=3)
    result = pipeline.run()
    headers = [dict(one.headers) for one in result.outputs]
    assert [(one.topic, one.key) for one in result.outputs] == [
        ("large", b"large"),
        ("output", b"k"),
    ]
    assert {one["origin"] for one in headers} == {b"desk"}
    assert {one["hapax-source"] for one in headers} == {b"input/3/0"}
    assert [one["hapax-part"] for one in headers] == [b"2/2", b"1/2"]


def test_a_call_that_fails_at_first_is_tried_again_and_counted():
    failing = iter([ConnectionError("away"), None])

    def flaky(record: Record) -> Output:
        if error := next(failing, None):
            raise error
        return Output(record.value)

    result = Pipeline(flaky).run(b"one")
    assert (result.values(), result.retries, result.dead_letters) == ([b"one"], 1, [])


def test_records_of_an_aborted_transaction_are_not_called_again_and_leave_one_effect():
    pipeline = Pipeline(route, BY_ID)
    pipeline.abort_next()
    result = pipeline.run(order("a"), order("b"), order("a"))
    assert result.values() == [order("a"), order("b")]
    assert [at.offset for at in result.duplicates] == [2]
    assert set(result.calls.values()) == {1}


def test_an_event_is_remembered_from_run_to_run_for_as_long_as_its_time_to_live():
    pipeline = Pipeline(route, {**BY_ID, "HAPAX_DEDUP__TTL": "1h"})
    assert len(pipeline.run(order("a")).outputs) == 1
    pipeline.wait(3000)
    assert len(pipeline.run(order("a")).duplicates) == 1
    pipeline.wait(2401)
    assert len(pipeline.run(order("a")).outputs) == 1
    assert len(Pipeline(route, BY_ID, claims=False).run(order("a"), order("a")).outputs) == 2


def test_a_record_whose_id_cannot_be_read_is_a_dead_letter_and_what_would_stop_is_raised():
    result = Pipeline(route, BY_ID).run(b"no json")
    assert [one.reason for one in result.dead_letters] == ["Poison"]
    assert result.calls == {}
    pipeline = Pipeline(route, {"HAPAX_DEAD_LETTER__TOPIC": ""})
    with pytest.raises(DeadLetterLimitError, match="no dead-letter topic"):
        pipeline.run(order("a", -1))


async def later(record: Record) -> Output:
    await asyncio.sleep(0)
    return Output(record.value)


def together(records: list[Record]) -> list[Output | None]:
    return [Output(record.value) if record.value else None for record in records]


class Lookup:
    """A transform with something to open and to close."""

    def __init__(self) -> None:
        self.open = False

    def setup(self) -> None:
        self.open = True

    def __call__(self, record: Record) -> Output:
        assert self.open
        return Output(record.value)


def one_too_many(records: list[Record]) -> list[Output]:
    return [Output(record.value) for record in (*records, records[0])]


def test_a_list_of_another_length_is_a_dead_letter_that_says_so():
    with Pipeline(one_too_many, {"HAPAX_DEAD_LETTER__RATE_MAX": "1"}) as pipeline:
        result = pipeline.run(b"one", b"two")
    assert {one.error for one in result.dead_letters} == {
        "Poison: a function of 1 records returns a list of as many answers, not 2"
    }
    assert len(result.dead_letters) == 2


def test_a_coroutine_that_blocks_the_loop_is_named_in_a_warning(monkeypatch):
    named, note = threading.Event(), _CallWatch.note

    def noting(watch: _CallWatch, record: Record | None) -> None:
        note(watch, record)
        named.set()

    async def blocks(record: Record) -> Output:
        if record.value == b"two":
            named.wait(20)  # what it must not do
        return Output(record.value)

    monkeypatch.setattr(_CallWatch, "note", noting)
    with (
        Pipeline(blocks) as pipeline,
        pytest.warns(RuntimeWarning, match="coroutine of input/0/1 has held the event loop"),
    ):
        pipeline.run(b"one", b"two", b"three")


def test_a_coroutine_past_its_time_is_cancelled_and_a_dead_letter():
    async def long(record: Record) -> Output:
        await asyncio.sleep(60 if record.value == b"two" else 0)
        return Output(record.value)

    with Pipeline(long, {"HAPAX_CALL__TIMEOUT": "0.2s"}) as pipeline:
        result = pipeline.run(b"one", b"two")
    assert [(one.reason, one.source.offset) for one in result.dead_letters] == [("timeout", 1)]
    assert result.values() == [b"one"]


@pytest.mark.parametrize("transform", [later, together, Lookup], ids=lambda form: form.__name__)
def test_every_form_of_a_transform_runs_and_its_calls_are_counted(transform):
    with Pipeline(transform) as pipeline:
        result = pipeline.run(b"one", b"two")
    assert result.values() == [b"one", b"two"]
    assert sorted(result.calls.values()) == [1, 1]


def test_settings_and_functions_that_the_service_refuses_are_refused():
    with pytest.raises(ConfigurationError, match="HAPAX_DEDUP__IDS is read by nothing"):
        Pipeline(route, {"HAPAX_DEDUP__IDS": "key"})
    with pytest.raises(ConfigurationError, match="a transform takes one record"):
        Pipeline(lambda _one, _two: None)


def test_a_thousand_records_take_milliseconds():
    values = [order(str(number)) for number in range(1000)]
    pipeline = Pipeline(route, BY_ID)
    began_s = time.process_time()  # others of a busy machine do not count
    assert len(pipeline.run(*values).outputs) == 1000
    assert time.process_time() - began_s < 1.0  # about 20 ms


def test_the_fixture_takes_settings_and_transform_of_the_project(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "settings.env").write_text(
        "# of the pipeline\nHAPAX_APP=orders\nexport HAPAX_TRANSFORM='rule_of_fixture:transform'\n"
        "HAPAX_DEDUP__ID=json:/id\n"
    )
    (tmp_path / "rule_of_fixture.py").write_text(
        "from hapax import Output\n\n\ndef transform(record):\n    return Output(record.value)\n"
    )
    (tmp_path / "test_rule.py").write_text(
        "def test_a_twin(hapax_pipeline):\n"
        "    result = hapax_pipeline.run(b'{\"id\": 1}', b'{\"id\": 1}')\n"
        "    assert len(result.outputs) == len(result.duplicates) == 1\n"
        "    assert hapax_pipeline.settings.app == 'orders'\n"
    )
    output_of([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=tmp_path)


LATER = {"HAPAX_RETRY__TOPIC": "again", "HAPAX_RETRY__LATER": "TimeoutError"}


def test_a_record_that_asks_for_a_later_try_waits_and_is_called_when_it_is_due():
    ready: list[bytes] = []

    def transform(record: Record) -> Output:
        if not ready:
            raise RetryLater(after="90s")
        return Output(record.value, key=str(record.coordinates).encode())

    pipeline = Pipeline(transform, BY_ID | LATER)
    at = pipeline.send(order("1"), partition=3)
    first = pipeline.run()
    assert first.waiting == {at: 90.0}
    assert (first.outputs, first.dead_letters, first.calls) == ([], [], {at: 1})
    pipeline.wait(60)
    early = pipeline.run()
    assert (early.waiting, early.calls, early.records) == ({at: 30.0}, {}, 0)
    ready.append(b"now")
    pipeline.abort_next()
    pipeline.wait(30)
    late = pipeline.run()
    assert late.values() == [order("1")]
    assert late.outputs[0].key == str(at).encode()
    assert (late.waiting, late.calls, late.records) == ({}, {at: 1}, 1)
    assert len(pipeline.run(order("1")).duplicates) == 1, "its claim is inherited"


async def away(_record: Record) -> None:
    raise TimeoutError("the model is away")


def away_at_once(_record: Record) -> None:
    raise TimeoutError("the model is away")


@pytest.mark.parametrize("transform", [away, away_at_once])
def test_the_policy_of_later_tries_ends_in_a_dead_letter_after_the_last(transform):
    more = {"HAPAX_RETRY__LATER_ATTEMPTS": "2", "HAPAX_RETRY__DELAY": "10s"}
    with Pipeline(transform, LATER | more) as pipeline:
        result = pipeline.run(b"v")
        (at,) = result.waiting
        delays = []
        while result.waiting:
            delays.append(result.waiting[at])
            assert result.calls == {at: 3}
            pipeline.wait(result.waiting[at])
            result = pipeline.run()
    assert [10 <= delays[0] <= 11, 20 <= delays[1] <= 22] == [True, True]
    (letter,) = result.dead_letters
    assert (letter.source, letter.attempts, letter.reason) == (at, 9, "TimeoutError")
