"""Queries for offsets: blocking, in the background, and those of the doctor; by hand.

tests/contract/test_spark_member.py and tests/integration/test_doctor.py have brokers.
"""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.cluster.partition_offsets import LogOffsets
from hapax.core.errors import PreflightError, StopError
from hapax.kafka.admin import cluster
from hapax.kafka.admin.cluster import Logs
from hapax.kafka.read import offsets_client
from hapax.kafka.read.offsets_client import BackgroundEnds, BlockingOffsets
from hapax.settings import load_settings
from tests.kit.log_brokers import P0, P1, Brokers, Client
from tests.kit.waiting import await_
from tests.unit.test_settings import REQUIRED


class Answering:
    """A consumer whose answers are said beforehand: an offset, an error code, or an exception."""

    def __init__(self, *answers: dict[int, int | None] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[list[tuple[int, int]]] = []

    def offsets_for_times(
        self, asked: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        self.asked.append([(one.partition, one.offset) for one in asked])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [_answered(one, answer[one.partition]) for one in asked]


def _answered(one: TopicPartition, answer: int | None) -> Any:
    if answer is not None and answer >= 0:
        return TopicPartition(one.topic, one.partition, answer)
    error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE if answer is None else -answer)
    return type("Refused", (), {"topic": one.topic, "partition": one.partition, "error": error})


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(offsets_client, "_REST_S", 0.0)
    return BlockingOffsets(load_settings(REQUIRED))


def test_only_partitions_without_a_leader_are_asked_again(client):
    consumer = Answering({0: 5, 1: None}, {1: None}, {1: 7})
    client.read_committed = consumer
    assert client.log_starts([("in", 0), ("in", 1)]) == {("in", 0): 5, ("in", 1): 7}
    assert consumer.asked == [[(0, -2), (1, -2)], [(1, -2)], [(1, -2)]]


def test_a_partition_that_stays_without_a_leader_is_named(client, monkeypatch):
    monkeypatch.setattr(offsets_client, "BROKERS_TIMEOUT_S", -1.0)
    client.read_committed = Answering({0: 5, 1: None})
    with pytest.raises(PreflightError, match="in/1: its offsets cannot be read: LEADER_NOT_AV"):
        client.last_stable([("in", 0), ("in", 1)])


@pytest.mark.parametrize(
    "answer",
    [
        {0: -KafkaError.TOPIC_AUTHORIZATION_FAILED},
        {0: -KafkaError.UNKNOWN_TOPIC_OR_PART},
        KafkaException(KafkaError(KafkaError._TIMED_OUT)),
    ],
)
def test_what_no_patience_heals_is_refused_at_once_and_no_time_is_before_the_first(client, answer):
    consumer = Answering({0: 5}, answer)
    client.read_committed = consumer
    assert client.at_time([("in", 0)], -7) == {("in", 0): 5}
    assert consumer.asked == [[(0, 0)]]
    with pytest.raises(PreflightError, match="in/0"):
        client.log_starts([("in", 0)])
    assert len(consumer.asked) == 2


class _Loading:
    """A coordinator that has just started: it answers the third time."""

    def __init__(self, code: int) -> None:
        self.asked = 0
        self._code = code

    def committed(self, asked: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        self.asked += 1
        if self.asked < 3:
            raise KafkaException(KafkaError(self._code))
        return [TopicPartition(one.topic, one.partition, 7, "hapax topic=abc") for one in asked]

    def consume(self, _most: int, _timeout_s: float) -> list[object]:
        """Return the events that came meanwhile: none."""
        return []


@pytest.mark.parametrize("missing", [False, True])
def test_a_coordinator_that_has_just_started_is_asked_again_and_for_a_missing_right_is_not(
    client, missing
):
    code = KafkaError.GROUP_AUTHORIZATION_FAILED if missing else KafkaError.NOT_COORDINATOR
    consumer = client.read_committed = _Loading(code)
    if missing:
        with pytest.raises(PreflightError, match="GROUP_AUTHORIZATION_FAILED"):
            client.committed([("in", 0)])
    else:
        assert client.committed([("in", 0)]) == {("in", 0): 7}
        assert client.beside([("in", 0)])["in", 0].topic_id == "abc"
    assert consumer.asked == (1 if missing else 4)


@pytest.fixture
def brokers(monkeypatch):
    brokers = Brokers()
    monkeypatch.setattr(offsets_client, "Consumer", brokers.client)
    return brokers


def test_the_ends_are_those_of_committed_records_and_of_nothing_nothing_is_asked(brokers):
    ends = BackgroundEnds({"bootstrap.servers": "b"}, None)
    assert ends.of([]) == {}
    assert brokers.clients == []
    await_(lambda: ends.of([P0, P1]) == {P0: 3, P1: 6}, 10, lambda: str(ends.errors))
    assert brokers.clients[0]["isolation.level"] == "read_committed"
    brokers.logs[P0] = (LogOffsets(0, 4, 4), [])
    await_(lambda: ends.of([P0]) == {P0: 4}, 10, lambda: str(ends.errors))
    assert len(brokers.clients) == 1
    assert ends.errors == []


def test_a_broker_that_is_away_hides_only_its_own_ends_and_the_client_is_replaced(brokers):
    brokers.away, brokers.away_times = 1, 1
    ends = BackgroundEnds({}, None)
    await_(lambda: ends.of([P0, P1]) == {P0: 3}, 10, lambda: str(ends.errors))
    await_(lambda: ends.of([P0, P1]) == {P0: 3, P1: 6}, 10, lambda: str(ends.errors))
    assert len(brokers.clients) == 2
    assert ends.errors == ["ends: _TIMED_OUT: Local: Timed out"]


def test_ends_that_may_not_be_read_stop_the_service(brokers):
    brokers.refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    ends = BackgroundEnds({}, None)
    with pytest.raises(StopError, match="grant the right"):
        await_(lambda: ends.of([P0]) != {}, 10, lambda: "no answer")


def test_whatever_fails_on_the_thread_is_raised_where_the_ends_are_asked_for(brokers, monkeypatch):
    def fail(_client: Client, asked: list[Any], timeout: float) -> list[Any]:
        raise ValueError("unforeseen")

    answer = Client.offsets_for_times
    monkeypatch.setattr(Client, "offsets_for_times", fail)
    ends = BackgroundEnds({}, None)
    with pytest.raises(ValueError, match="unforeseen"):
        await_(lambda: bool(ends.of([P0])), 10, lambda: str(ends.errors))
    monkeypatch.setattr(Client, "offsets_for_times", answer)
    await_(lambda: ends.of([P0]) == {P0: 3}, 10, lambda: str(ends.errors))


@pytest.fixture
def logs(brokers, monkeypatch):
    monkeypatch.setattr(cluster, "PAUSE_S", 0.0)
    brokers.logs = {P0: (LogOffsets(1, 7, 9), []), P1: (LogOffsets(1, 9, 9), [])}
    return lambda: Logs(
        {"group.id": "shop"}, leaders={P0: 1, P1: 2}, inputs=[P0, P1], ages_ms={"in": (60_000,)}
    )


def test_an_open_transaction_is_looked_at_twice_and_without_one_there_is_one_look(brokers, logs):
    found = logs().look()
    assert found[P0].offsets == LogOffsets(1, 7, 9)
    assert (found[P0].last_stable_later, found[P0].committed) == (7, 5)
    assert found[P1].offsets == LogOffsets(1, 9, 9)
    assert (found[P1].committed, found[P1].since) == (None, {60_000: 9})
    ends = [(committed, at) for committed, number, at in brokers.asked if number == 0]
    # The high watermark before the last stable offset: what is open then was open all the time.
    stable, end = (True, -1), (False, -1)
    assert [*ends[:3], ends[-1]] == [(False, -2), end, stable, stable]
    brokers.logs[P0] = brokers.logs[P1]
    assert logs().look()[P0].last_stable_later is None


def test_a_broker_that_is_away_hides_its_own_partitions_and_is_named(brokers, logs):
    brokers.away = 1
    one = logs()
    found = one.look()
    assert (found[P0].offsets, found[P1].offsets) == (LogOffsets(1, 7, 9), None)
    assert one.untold == {"offsets of broker 2": "_TIMED_OUT: Local: Timed out"}
