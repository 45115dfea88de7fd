from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.kafka import connection
from hapax.kafka.consume.client import ASK_TIMEOUT_S, LOOK_S, PATIENCE_S
from tests.kit.consumers import FakeConsumer, message, source

AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def asked(monkeypatch):
    """A source whose client is not answered, and the client that would be a new one."""
    kafka, consumer, clock = source(monkeypatch)
    new = FakeConsumer()

    def client(*_values: object, **_named: object) -> Any:
        return new

    monkeypatch.setattr(connection, "AdminClient", client)
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
    consumer.queue = [message(0)]
    kafka.take(10, 0.1)
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
    waited = []

    def list_topics(topic: str, *, timeout: float) -> object:
        waited.append(timeout)
        return FakeConsumer().list_topics(topic)

    consumer.list_topics = list_topics
    kafka._consumer.properties = properties
    clock.wait(LOOK_S)
    assert not kafka.cut_off()
    assert waited == [behind_s + ASK_TIMEOUT_S]


def test_positions_are_gathered_when_a_look_is_due_and_not_each_time_round(asked, monkeypatch):
    kafka, _, _, clock = asked
    gathered = []

    def next_offsets() -> dict[Any, int]:
        gathered.append(1)
        return {}

    monkeypatch.setattr(kafka._states, "next_offsets", next_offsets)
    for _ in range(5):
        assert not kafka.cut_off()
    assert gathered == []
    clock.wait(LOOK_S)
    kafka.cut_off()
    assert gathered == [1]
