"""Offsets for the doctor, on clients made by hand; tests/integration/test_doctor.py has brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.read import offset_queries
from hapax.kafka.read.log_offsets import Logs

if TYPE_CHECKING:
    from collections.abc import Callable

P0, P1 = ("in", 0), ("in", 1)


class Brokers:
    """Two of them, each leading one partition; ``stable`` are the answers for P0, one by one."""

    def __init__(self) -> None:
        self.stable = [7, 7]
        self.away = False
        self.asked: list[tuple[bool, int, int]] = []

    def client(self, properties: dict[str, Any], *, logger: object) -> Client:
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
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(offset_queries, "Consumer", brokers.client)
    return brokers


@pytest.fixture
def logs() -> Callable[[], Logs]:
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
