"""A log line of a client that is not UTF-8: the call that serves it raises, and nothing ends."""

import time
from contextlib import nullcontext
from typing import Any, cast
from unittest.mock import Mock

import pytest

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.record_path import Outputs
from hapax.kafka.errors import LINE_IS_NO_TEXT
from hapax.kafka.produce import producer as kafka_producer
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.micro_batch import stable_offset
from hapax.kafka.produce.producer import ClientLog
from hapax.kafka.produce.weaker import KafkaAtLeastOnce
from tests.kit.consumers import FakeConsumer
from tests.kit.producers import FakeProducer, commit_of, failing, message, transaction

LINE = UnicodeDecodeError("utf-8", b"Topic \xff", 6, 7, "invalid start byte")


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_records_that_came_with_it_are_read_again_from_what_is_committed(kafka, consumer, call):
    consumer.queue = [object()]
    consumer.fail[call] = [LINE]
    with pytest.raises(BatchAbortedError, match=LINE_IS_NO_TEXT) as caught:
        kafka.take(10, 0.1)
    assert not caught.value.resolved


def test_a_consumer_leaves_its_group_all_the_same(kafka, consumer):
    consumer.fail["poll"] = [LINE]
    consumer.close = Mock(side_effect=LINE)
    kafka.close()
    consumer.close.assert_called_once_with()


def test_what_a_producer_serves_is_a_doubt_for_it_may_have_told_of_a_lost_connection(monkeypatch):
    kafka, _, _ = transaction(monkeypatch)
    kafka.begin()
    kafka.send(Outputs([message()]))
    kafka.send_offsets(commit_of({("in", 0): 5}))
    FakeProducer.fail["poll"] = [LINE]
    kafka.commit()
    assert kafka.doubts == [LINE_IS_NO_TEXT]
    FakeProducer.fail["flush"] = [LINE]
    kafka.open()
    kafka.begin()
    kafka.abort()
    assert kafka.doubts == [LINE_IS_NO_TEXT]


@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction"])
def test_inside_of_a_transactional_call_it_costs_the_producer(monkeypatch, call):
    kafka, _, _ = transaction(monkeypatch)
    FakeProducer.fail[call] = [LINE]

    def whole() -> None:
        kafka.open()
        kafka.begin()
        kafka.commit()

    with pytest.raises(ProducerDeadError):
        whole()


def test_without_transactions_the_outputs_are_sent_again(monkeypatch):
    FakeProducer.fail = {"flush": [LINE]}
    monkeypatch.setattr(kafka_producer, "Producer", FakeProducer)
    around: dict[str, Any] = {
        "clock": time,
        "forward": lambda *_line: None,
        "watch": lambda _call: nullcontext(),
    }
    kafka = KafkaAtLeastOnce(
        ProducerConfig(properties={}, deadline_s=1.0, required_topics=frozenset({"out"})),
        commit_offsets=lambda _commit: None,
        **around,
    )
    kafka.open()
    kafka.begin()
    kafka.send(Outputs([message()]))
    with pytest.raises(ProducerDeadError, match=LINE_IS_NO_TEXT):
        kafka.commit()


def test_a_marker_is_read_again():
    member = FakeConsumer()
    member.fail = {"committed": [failing(-185)], "poll": [LINE]}
    with pytest.raises(BatchAbortedError, match="the marker is not known"):
        stable_offset(cast("Any", member), ("out", 0), "the marker")


@pytest.mark.parametrize("text", [b"\xff\xfe", "\udcff", "broken"])
def test_what_takes_a_line_may_fail_and_the_doubt_stays(text):
    fails = UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")
    log = ClientLog("producer", Mock(side_effect=fails))
    log.log(4, "%s [%s] %s", "REQTMOUT", "rdkafka#producer-1", text)
    assert len(log.doubts) == 1
