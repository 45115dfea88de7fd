"""Outputs of native records at the brokers, and what a producer does not take."""

import gc
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import Outputs
from hapax.core.records import Message, Output
from hapax.kafka.errors import client_headers
from hapax.kafka.produce.producer import Outbox
from tests.kit.native import PATIENCE_S, Raw, Stage, few, path, plain, prepared

AWAY = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 200}


def outbox_of(stage: Stage, **properties: Any) -> Outbox:
    given = {"bootstrap.servers": stage.bootstrap, "linger.ms": 1, "message.max.bytes": 300_000}
    native = path("header:id")
    return Outbox(given | properties, lambda *_line: None, round_robin=False, native=native)


@pytest.fixture
def outbox(stage: Stage) -> Outbox:
    return outbox_of(stage)


def fields(message: Any) -> tuple[Any, ...]:
    headers = client_headers(message) or []
    return message.value(), message.key(), message.timestamp()[1], headers


def expected(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [(each.value, each.key, each.timestamp_ms, each.headers) for each in messages]


def sorted_by_source(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda each: dict(each[3])["hapax-source"])


@given(records=plain)
@settings(max_examples=few(40), deadline=None)
def test_what_arrives_is_what_the_reference_would_send(stage, records):
    outbox = outbox_of(stage)
    kept = [raw._replace(timestamp_ms=max(1, raw.timestamp_ms)) for raw in records]
    sent: list[tuple[Any, ...]] = []
    topic = f"out-{uuid.uuid4().hex}"
    for native, batch in stage.play(kept, ["header:id"]):
        messages = prepared(native, [(Output(r.value),) for r in batch.records], topic)
        sent += expected(list(messages))
        outbox.send(messages, reports=False)
    outbox.producer.flush(PATIENCE_S)
    arrived = [fields(message) for message in stage.read_new(topic, len(sent))]
    assert sorted_by_source(arrived) == sorted_by_source(sent)


def test_a_full_queue_in_mid_batch_loses_and_doubles_nothing(stage):
    topic = f"out-{uuid.uuid4().hex}"
    tiny = outbox_of(stage, **{"queue.buffering.max.messages": 7})
    raws = [Raw(b"k%d" % n, b"v%d" % n, ((b"id", b"%d" % n), (b"h", b"x"))) for n in range(100)]
    sent: list[tuple[Any, ...]] = []
    served: list[float] = []
    serve = tiny.serve

    def counted(wait_s: float = 0.0) -> None:
        served.append(wait_s)
        serve(wait_s)

    tiny.serve = counted  # type: ignore[method-assign]
    for native, _batch in stage.play(raws, ["header:id"]):
        messages = prepared(native, [(Output(b"new"),)] * len(native), topic)
        sent += expected(list(messages))
        tiny.send(messages, reports=False)
    assert served, "the queue was never full"
    tiny.producer.flush(PATIENCE_S)
    arrived = [fields(message) for message in stage.read_new(topic, len(sent))]
    assert sorted_by_source(arrived) == sorted_by_source(sent)


def test_a_message_too_large_names_its_record_and_nothing_after_it_is_handed_over(stage, outbox):
    ((native, batch),) = stage.play([Raw(b"k", b"v")] * 5, ["header:id"])
    results = [(Output(b"x"),), (), (Output(b"x" * 400_000),), (Output(b"y"),), None]
    with pytest.raises(BatchAbortedError) as caught:
        outbox.send(prepared(native, results, "out-large"), reports=False)
    assert caught.value.content
    assert set(caught.value.refused) == {2}
    assert batch.records[2].coordinates == (*native.coordinates(2),)


def test_what_was_handed_over_is_not_read_or_sent_again(stage, outbox):
    ((native, _batch),) = stage.play([Raw(b"k", b"v", ((b"id", b"1"),))] * 3, ["header:id"])
    messages = prepared(native, [(Output(b"x"),)] * 3, "out-again")
    outbox.send(messages, reports=False)
    assert native.facts(3)[3] == 3
    for use in (
        lambda: native[0],
        lambda: native.ids[0],
        lambda: native.claims.digests(bytes(16)),
        lambda: list(messages),
        lambda: outbox.send(messages, reports=False),
        lambda: stage.path.module.preview(native, [()], 0),
    ):
        with pytest.raises(RuntimeError, match="handed to the producer"):
            use()


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize(("away", "codes"), [({}, set()), (AWAY, {KafkaError._MSG_TIMED_OUT})])
def test_what_was_not_delivered_is_known_once_flush_returns_though_nothing_asked_for_a_report(
    stage, is_native, away, codes
):
    outbox = outbox_of(stage, **away)
    ((native, _batch),) = stage.play([Raw(b"k", b"v", ((b"id", b"1"),))] * 3, ["header:id"])
    messages = prepared(native, [(Output(b"x"),)] * 3, "out-undelivered")
    outbox.begin()
    outbox.send(messages if is_native else Outputs(list(messages)), reports=False)
    assert outbox.flush(PATIENCE_S) == 0
    assert outbox.failures == codes
    outbox.begin()
    assert outbox.flush(PATIENCE_S) == 0
    assert outbox.failures == set()


def test_with_reports_or_turns_the_reference_sends(stage, outbox):
    topic = f"out-{uuid.uuid4().hex}"
    ((native, _batch),) = stage.play([Raw(b"k", b"v", ((b"id", b"1"),))], ["header:id"])
    messages = prepared(native, [(Output(b"x"),)], topic)
    outbox.send(messages, reports=True)
    outbox.producer.flush(PATIENCE_S)
    (arrived,) = stage.read_new(topic, 1)
    assert fields(arrived) == expected(list(messages))[0]


def test_a_producer_that_has_ended_takes_nothing(stage):
    ((native, _batch),) = stage.play([Raw(b"k", b"v")], [])
    producer, client = stage.native_producer()
    del producer
    gc.collect()
    with pytest.raises(RuntimeError, match="has ended"):
        stage.path.module.send(client, "out", native, [(Output(b"x"),)], 0)


def test_batches_that_are_taken_sent_or_dropped_leave_nothing(stage):
    """Neither messages nor headers that met a full queue."""
    held = stage.path.module.held
    gc.collect()  # of earlier tests: exceptions keep what their frames had
    before = held()
    ((native, _batch),) = stage.play([Raw(b"k", b"v")], [])
    assert held() == before + 1, "the counter counts"
    native.close()
    assert held() == before
    del native, _batch
    properties = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 3}
    deaf, client = stage.native_producer(**properties, log_level=0)
    raws = [Raw(b"k", b"v" * 10_000, ((b"id", b"1"), (b"h", b"z" * 10_000)))] * 50
    met: list[int] = []
    for _ in range(30):
        for native, _batch in stage.play(raws, ["header:id"]):
            results = [(Output(b"x"),)] * len(native)
            met.append(stage.path.module.send(client, "out", native, results, 0)[1])
        del native, _batch
        deaf.purge()
        deaf.poll(0)
    assert KafkaError._QUEUE_FULL in met
    assert held() == before
