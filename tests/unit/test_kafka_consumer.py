from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.core.errors import BatchAbortedError, MemberFencedError, PreflightError, StopError
from hapax.kafka import connection
from hapax.kafka.consume.client import ASK_TIMEOUT_S, LOOK_S, PATIENCE_S, parse_metadata
from tests.kit.consumers import FakeConsumer, event, message, metadata, source, take

AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def asked(monkeypatch):
    """A source whose client is not answered, and the client that would be a new one."""
    kafka, consumer, clock = source(monkeypatch)
    new = FakeConsumer()

    monkeypatch.setattr(connection, "AdminClient", lambda *_, **__: new)
    consumer.fail["list_topics"] = [AWAY] * 100
    return kafka, consumer, new, clock


def looks(kafka, clock) -> list[bool]:
    clock.wait(LOOK_S)
    found = []
    for _ in range(int(PATIENCE_S / ASK_TIMEOUT_S) + 2):
        found.append(kafka.cut_off())
        clock.wait(ASK_TIMEOUT_S)
    return found


def test_a_client_is_cut_off_when_new_ones_are_answered_for_a_while_and_it_is_not(asked):
    kafka, _, _, clock = asked
    found = looks(kafka, clock)
    assert (found[0], found[-1], kafka.answered) == (False, True, False)


def test_an_answer_that_names_no_broker_is_none(asked):
    kafka, consumer, new, clock = asked
    consumer.fail.clear()
    consumer.brokers = {}
    assert looks(kafka, clock)[-1]
    new.brokers = {}
    kafka._consumer.renew()
    assert not any(looks(kafka, clock))


def test_in_an_outage_no_client_is_cut_off(asked):
    kafka, _, new, clock = asked
    new.fail["list_topics"] = [AWAY] * 100
    assert not any(looks(kafka, clock))
    assert not kafka.answered


def test_who_reads_records_or_is_answered_is_not_asked_in_vain(asked):
    kafka, consumer, _, clock = asked
    clock.wait(LOOK_S)
    take(kafka, message(0))
    assert not kafka.cut_off()
    assert (kafka.answered, consumer.calls.count("list_topics")) == (True, 0)
    consumer.fail.clear()
    assert not any(looks(kafka, clock))


def test_a_new_client_begins_again(asked):
    kafka, _, _, clock = asked
    looks(kafka, clock)
    kafka._consumer.renew()
    assert (kafka.answered, kafka.cut_off()) == (True, False)


LONG_FETCHES = {"fetch.wait.max.ms": "3000"}


@pytest.mark.parametrize(("properties", "behind_s"), [(LONG_FETCHES, 3), ({}, 0.5)])
def test_an_answer_may_come_behind_the_longest_fetch(asked, properties, behind_s):
    kafka, consumer, _, clock = asked
    consumer.list_topics = Mock(side_effect=FakeConsumer().list_topics)
    kafka._consumer.properties = properties
    clock.wait(LOOK_S)
    assert not kafka.cut_off()
    consumer.list_topics.assert_called_once_with("in", timeout=behind_s + ASK_TIMEOUT_S)


def test_positions_are_gathered_when_a_look_is_due_and_not_each_time_round(asked, monkeypatch):
    kafka, _, _, clock = asked
    gathered = Mock(return_value={})
    monkeypatch.setattr(kafka._states, "next_offsets", gathered)
    for _ in range(5):
        assert not kafka.cut_off()
    assert gathered.call_count == 0
    clock.wait(LOOK_S)
    kafka.cut_off()
    assert gathered.call_count == 1


def test_a_fenced_member_and_a_dead_consumer_are_told_apart(kafka):
    with pytest.raises(MemberFencedError) as caught:
        take(kafka, event(KafkaError.FENCED_INSTANCE_ID, fatal=True))
    assert not caught.value.explained
    with pytest.raises(StopError, match="the consumer is dead"):
        take(kafka, event(KafkaError._FATAL, fatal=True))


def test_a_group_of_the_classic_protocol_is_refused_with_what_to_do(kafka):
    with pytest.raises(PreflightError, match="Stop them all"):
        take(kafka, event(KafkaError.GROUP_ID_NOT_FOUND, fatal=True))


def test_missing_rights_stop_and_transport_trouble_is_only_told(kafka, consumer):
    consumer.queue = [event(KafkaError._TRANSPORT)]
    kafka.attend(0.0)
    assert len(kafka.changes().errors) == 1
    with pytest.raises(StopError, match="not allowed to read"):
        take(kafka, event(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_only_a_live_member_sends_its_metadata(kafka, consumer):
    assert kafka.member() == metadata(3, "member-1")
    for dead in (metadata(-1, ""), metadata(5, ""), metadata(-1, "member-1")):
        consumer.metadata = dead
        with pytest.raises(BatchAbortedError, match="no live member"):
            kafka.member()


def test_the_metadata_is_that_of_now_and_not_of_the_subscription(kafka, consumer):
    consumer.metadata = metadata(-1, "")
    kafka.subscribe()
    consumer.metadata = metadata(4, "member-1")
    assert kafka.member() == metadata(4, "member-1")


def test_group_metadata_of_another_layout_is_refused():
    assert parse_metadata(metadata(7, "m")) == (7, "m")
    with pytest.raises(BatchAbortedError, match="unknown layout"):
        parse_metadata(b"CGMDv3:" + metadata(7, "m")[7:])


@pytest.mark.parametrize("back", ["before the end of the pause", "after it"])
def test_a_partition_that_left_while_it_was_paused_is_delivered_once_it_is_back(
    kafka, consumer, back
):
    both, consumer.ours = consumer.ours, consumer.ours[:1]
    kafka.pause("operator")
    consumer.ours = []
    if back == "after it":
        kafka.resume("operator")
    consumer.ours = both
    kafka.attend(0.0)
    if back != "after it":
        assert consumer.paused == {("in", 0)}
        kafka.resume("operator")
    kafka.take(10, 0.1)
    assert consumer.paused == set()
