"""Ends of partitions, on a client made by hand; tests/contract/test_spark_member.py has brokers."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import StopError
from hapax.kafka.read import offsets_client as kafka_ends
from hapax.kafka.read.offsets_client import BackgroundEnds
from tests.kit.waiting import await_

P0, P1 = ("in", 0), ("in", 1)
AWAY = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Brokers:
    """Two of them, each leading one partition. ``away``: so many times broker 1 says nothing."""

    def __init__(self) -> None:
        self.clients: list[dict[str, Any]] = []
        self.away = 0
        self.refused: int | None = None
        self.offsets = {P0: 3, P1: 7}

    def client(self, properties: dict[str, Any], *, logger: object) -> "Brokers":
        self.clients.append(properties)
        return self

    def list_topics(self, topic: str, timeout: float) -> Any:
        parts = {n: type("P", (), {"leader": n}) for n in (0, 1)}
        return type("Metadata", (), {"topics": {topic: type("T", (), {"partitions": parts})}})

    def offsets_for_times(self, asked: list[Any], timeout: float) -> Iterator[Any]:
        if self.away and asked[0].partition == 1:
            self.away -= 1
            raise AWAY
        found = []
        for one in asked:
            where = (one.topic, one.partition)
            answer: Any = TopicPartition(*where, self.offsets[where])
            if self.refused is not None:
                error = KafkaError(self.refused)
                fields = {"topic": "in", "partition": 0, "offset": -1, "error": error}
                answer = type("Refused", (), fields)
            found.append(answer)
        return iter(found)


@pytest.fixture
def brokers(monkeypatch):
    brokers = Brokers()
    monkeypatch.setattr(kafka_ends, "Consumer", brokers.client)
    return brokers


def test_the_ends_are_those_of_committed_records(brokers):
    ends = BackgroundEnds({"bootstrap.servers": "b"}, None)
    await_(lambda: ends.of([P0, P1]) == {P0: 3, P1: 7}, 10, lambda: str(ends.errors))
    assert brokers.clients[0]["isolation.level"] == "read_committed"
    brokers.offsets[P0] = 4
    await_(lambda: ends.of([P0]) == {P0: 4}, 10, lambda: str(ends.errors))
    assert len(brokers.clients) == 1
    assert ends.errors == []


def test_a_broker_that_is_away_hides_only_its_own_ends_and_the_client_is_replaced(brokers):
    brokers.away = 1
    ends = BackgroundEnds({}, None)
    await_(lambda: ends.of([P0, P1]) == {P0: 3}, 10, lambda: str(ends.errors))
    await_(lambda: ends.of([P0, P1]) == {P0: 3, P1: 7}, 10, lambda: str(ends.errors))
    assert len(brokers.clients) == 2
    assert ends.errors == ["ends: _TIMED_OUT: Local: Timed out"]


def test_ends_that_may_not_be_read_stop_the_service(brokers):
    brokers.refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    ends = BackgroundEnds({}, None)
    with pytest.raises(StopError, match="grant the right"):
        await_(lambda: ends.of([P0]) != {}, 10, lambda: "no answer")


def test_of_nothing_nothing_is_asked(brokers):
    assert BackgroundEnds({}, None).of([]) == {}
    assert brokers.clients == []


def test_whatever_fails_on_the_thread_is_raised_where_the_ends_are_asked_for(brokers, monkeypatch):
    def fail(asked: list[Any], timeout: float) -> Iterator[Any]:
        raise ValueError("unforeseen")

    monkeypatch.setattr(brokers, "offsets_for_times", fail)
    ends = BackgroundEnds({}, None)
    with pytest.raises(ValueError, match="unforeseen"):
        await_(lambda: bool(ends.of([P0])), 10, lambda: str(ends.errors))
    monkeypatch.undo()
    monkeypatch.setattr(kafka_ends, "Consumer", brokers.client)
    await_(lambda: ends.of([P0]) == {P0: 3}, 10, lambda: str(ends.errors))
