"""The consumer's adapter as a member of its group: fences, rights, metadata."""

import pytest
from confluent_kafka import KafkaError

from hapax.core.errors import BatchAbortedError, MemberFencedError, PreflightError, StopError
from hapax.kafka.consume.client import parse_metadata
from tests.kit.consumers import event, metadata, source

Patch = pytest.MonkeyPatch


def test_a_fenced_member_and_a_dead_consumer_are_told_apart(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.queue = [event(KafkaError.FENCED_INSTANCE_ID, fatal=True)]
    with pytest.raises(MemberFencedError) as caught:
        kafka.take(10, 0.1)
    assert not caught.value.explained
    consumer.queue = [event(KafkaError._FATAL, fatal=True)]
    with pytest.raises(StopError, match="the consumer is dead"):
        kafka.take(10, 0.1)


def test_a_group_of_the_classic_protocol_is_refused_with_what_to_do(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.queue = [event(KafkaError.GROUP_ID_NOT_FOUND, fatal=True)]
    with pytest.raises(PreflightError, match="Stop them all"):
        kafka.take(10, 0.1)


def test_missing_rights_stop_and_transport_trouble_is_only_told(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.queue = [event(KafkaError._TRANSPORT)]
    kafka.attend(0.0)
    assert len(kafka.changes().errors) == 1
    consumer.queue = [event(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(StopError, match="not allowed to read"):
        kafka.take(10, 0.1)


def test_only_a_live_member_sends_its_metadata(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    assert kafka.member() == metadata(3, "member-1")
    for dead in (metadata(-1, ""), metadata(5, ""), metadata(-1, "member-1")):
        consumer.metadata = dead
        with pytest.raises(BatchAbortedError, match="no live member"):
            kafka.member()


def test_the_metadata_is_that_of_now_and_not_of_the_subscription(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.metadata = metadata(-1, "")
    kafka.subscribe()
    consumer.metadata = metadata(4, "member-1")
    assert kafka.member() == metadata(4, "member-1")


def test_group_metadata_of_another_layout_is_refused():
    assert parse_metadata(metadata(7, "m")) == (7, "m")
    with pytest.raises(BatchAbortedError, match="unknown layout"):
        parse_metadata(b"CGMDv3:" + metadata(7, "m")[7:])


@pytest.mark.parametrize("back", ["before the end of the pause", "after it"])
def test_a_partition_that_left_while_it_was_paused_is_delivered_once_it_is_back(monkeypatch, back):
    kafka, consumer, _ = source(monkeypatch)
    both, consumer.ours = consumer.ours, consumer.ours[:1]
    kafka.pause()
    consumer.ours = []
    if back == "after it":
        kafka.resume()
    consumer.ours = both
    kafka.attend(0.0)
    if back != "after it":
        assert consumer.paused == {("in", 0)}
        kafka.resume()
    kafka.take(10, 0.1)
    assert consumer.paused == set()
