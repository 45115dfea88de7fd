"""Offsets for the doctor, on clients made by hand; tests/integration/test_doctor.py has brokers."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, HapaxError, StopError
from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.admin.cluster import Logs
from hapax.kafka.produce import stable_offset as stable_offset_module
from hapax.kafka.produce.stable_offset import stable_offset
from hapax.kafka.read import offsets_client

P0, P1 = ("in", 0), ("in", 1)


class Brokers:
    """Two of them, each leading one partition; ``stable`` are the answers for P0, one by one."""

    def __init__(self) -> None:
        self.stable = [7, 7]
        self.away = False
        self.asked: list[tuple[bool, int, int]] = []

    def client(self, properties: dict[str, Any], *, logger: object) -> "Client":
        return Client(self, committed=properties["isolation.level"] == "read_committed")


class Client:
    def __init__(self, brokers: Brokers, *, committed: bool) -> None:
        self._brokers, self._committed = brokers, committed

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        if self._brokers.away and asked[0].partition == 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [self._answer(one) for one in asked]

    def _answer(self, one: TopicPartition) -> TopicPartition:
        self._brokers.asked.append((self._committed, one.partition, one.offset))
        end = 9
        if self._committed and one.partition == 0:
            end = self._brokers.stable.pop(0)
        known = {-2: 1, -1: end}
        return TopicPartition(one.topic, one.partition, known.get(one.offset, -1))

    def committed(self, asked: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        offsets = {0: 5, 1: -1001}
        return [TopicPartition("in", one.partition, offsets[one.partition]) for one in asked]

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def brokers(monkeypatch):
    brokers = Brokers()
    monkeypatch.setattr(offsets_client, "Consumer", brokers.client)
    return brokers


@pytest.fixture
def logs():
    return lambda: Logs(
        {"group.id": "shop"},
        leaders={P0: 1, P1: 2},
        inputs=[P0, P1],
        ages_ms={"in": (60_000,)},
        pause_s=0.0,
    )


def test_an_open_transaction_is_looked_at_twice(brokers, logs):
    found = logs().look()
    assert found[P0].offsets == LogOffsets(1, 7, 9)
    assert (found[P0].last_stable_later, found[P0].committed) == (7, 5)
    assert found[P1].offsets == LogOffsets(1, 9, 9)
    assert (found[P1].committed, found[P1].since) == (None, {60_000: 9})
    ends = [(committed, at) for committed, number, at in brokers.asked if number == 0]
    # The high watermark before the last stable offset: what is open then was open all the time.
    assert [ends[0], ends[1], ends[2], ends[-1]] == [
        (False, -2),
        (False, -1),
        (True, -1),
        (True, -1),
    ]


def test_without_an_open_transaction_there_is_no_second_look(brokers, logs):
    brokers.stable = [9]
    assert logs().look()[P0].last_stable_later is None


def test_a_broker_that_is_away_hides_its_own_partitions_and_is_named(brokers, logs):
    brokers.away = True
    one = logs()
    found = one.look()
    assert (found[P0].offsets, found[P1].offsets) == (LogOffsets(1, 7, 9), None)
    assert one.untold == {"offsets of broker 2": "_TIMED_OUT: Local: Timed out"}


# -- The answer about a committed offset that something holds back ------------------------

HANGS = "hapax transactions list"


class Member:
    """A group that answers with an offset, or with an error: of the call, or of the partition.

    event  an error that only a poll tells
    """

    def __init__(
        self, offset: int = 0, *, call: int = 0, partition: int = 0, event: int = 0
    ) -> None:
        self.offset, self.call, self.partition, self.event = offset, call, partition, event

    def poll(self, timeout: float) -> Any:
        assert timeout == 0
        return SimpleNamespace(error=lambda: KafkaError(self.event)) if self.event else None

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout > 0
        if self.call:
            raise KafkaException(KafkaError(self.call))
        error = KafkaError(self.partition) if self.partition else None
        return [SimpleNamespace(offset=self.offset, error=error) for _one in wanted]


def ask(member: Any) -> int:
    return int(stable_offset(member, ("out", 0), "the marker").offset)


def refusal(kind: type[HapaxError], **error: int) -> str:
    with pytest.raises(kind, match="the marker") as raised:
        ask(Member(7, **error))
    return str(raised.value)


def test_an_answer_that_comes_is_returned():
    assert ask(Member(7)) == 7


@pytest.mark.parametrize("place", ["call", "partition"])
@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT])
def test_an_answer_that_is_held_back_is_waited_for_and_says_what_shows_the_transaction(code, place):
    assert HANGS in refusal(BatchAbortedError, **{place: code})


@pytest.mark.parametrize("place", ["call", "partition"])
def test_a_coordinator_that_moves_is_waited_for_and_blames_no_transaction(monkeypatch, place):
    monkeypatch.setattr(stable_offset_module, "ANSWER_TIMEOUT_S", 0.01)
    assert HANGS not in refusal(BatchAbortedError, **{place: KafkaError.NOT_COORDINATOR})


@pytest.mark.parametrize("place", ["call", "partition"])
def test_a_missing_right_stops_the_process(place):
    assert "grant" in refusal(StopError, **{place: KafkaError.GROUP_AUTHORIZATION_FAILED})


def test_a_coordinator_that_is_not_told_stops_the_process_with_the_right_that_is_missing():
    said = refusal(
        StopError, call=KafkaError._TIMED_OUT, event=KafkaError.GROUP_AUTHORIZATION_FAILED
    )
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert HANGS not in said


def test_other_events_of_the_client_leave_the_answer_waited_for():
    assert HANGS in refusal(
        BatchAbortedError, call=KafkaError._TIMED_OUT, event=KafkaError._ALL_BROKERS_DOWN
    )
