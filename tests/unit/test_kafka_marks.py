"""Offsets of partitions between two leaders, of those that may not be read, and without brokers."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, MemberFencedError, PreflightError, StopError
from hapax.kafka.consume.member_metadata import parse_metadata
from hapax.kafka.read import offsets_client as kafka_marks
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.settings import load_settings
from tests.kit.consumers import event, metadata, source
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

    def close(self) -> None:
        """Nothing is open."""


def _answered(one: TopicPartition, answer: int | None) -> Any:
    if answer is not None and answer >= 0:
        return TopicPartition(one.topic, one.partition, answer)
    error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE if answer is None else -answer)
    return type("Refused", (), {"topic": one.topic, "partition": one.partition, "error": error})


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(kafka_marks, "_REST_S", 0.0)
    return BlockingOffsets(load_settings(REQUIRED))


def test_only_partitions_without_a_leader_are_asked_again(client):
    consumer = Answering({0: 5, 1: None}, {1: None}, {1: 7})
    client.read_committed = consumer
    assert client.log_starts([("in", 0), ("in", 1)]) == {("in", 0): 5, ("in", 1): 7}
    assert consumer.asked == [[(0, -2), (1, -2)], [(1, -2)], [(1, -2)]]


def test_a_partition_that_stays_without_a_leader_is_named(client, monkeypatch):
    monkeypatch.setattr(kafka_marks, "BROKERS_TIMEOUT_S", -1.0)
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
def test_what_no_patience_mends_is_refused_at_once(client, answer):
    consumer = Answering(answer)
    client.read_committed = consumer
    with pytest.raises(PreflightError, match="in/0"):
        client.log_starts([("in", 0)])
    assert len(consumer.asked) == 1


def test_no_time_lies_before_the_first(client):
    consumer = Answering({0: 5})
    client.read_committed = consumer
    assert client.at_time([("in", 0)], -7) == {("in", 0): 5}
    assert consumer.asked == [[(0, 0)]]


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

    def close(self) -> None:
        """Nothing is open."""


def test_a_coordinator_that_has_just_started_is_asked_again(client):
    consumer = _Loading(KafkaError.NOT_COORDINATOR)
    client.read_committed = consumer
    assert client.committed([("in", 0)]) == {("in", 0): 7}
    assert consumer.asked == 3
    assert client.beside([("in", 0)])["in", 0].topic_id == "abc"


def test_a_right_that_is_missing_is_not_asked_for_again(client):
    consumer = _Loading(KafkaError.GROUP_AUTHORIZATION_FAILED)
    client.read_committed = consumer
    with pytest.raises(PreflightError, match="GROUP_AUTHORIZATION_FAILED"):
        client.committed([("in", 0)])
    assert consumer.asked == 1


# -- The consumer's adapter as a member of its group: fences, rights, metadata ------------

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
