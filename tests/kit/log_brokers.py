"""Brokers by hand, for whoever queries offsets by ``OffsetsClient``."""

import math
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.cluster.partition_offsets import LogOffsets

P0, P1, OUT = ("in", 0), ("in", 1), ("out", 0)
AWAY = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Brokers:
    """Two of them lead one input partition each; the first leads the output as well.

    logs       by partition the offsets, and the time of each record in Unix seconds
    away       1: the second one, 2: both; away_times: for so many queries
    committed  of the group, by number of partition
    asked      queries of offsets: whether by a read_committed client, partition, time
    """

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], tuple[LogOffsets, list[float]]] = {
            P0: (LogOffsets(0, 3, 3), [900.0, 950.0, 990.0]),
            P1: (LogOffsets(5, 6, 9), [0.0] * 5 + [980.0] * 4),
            OUT: (LogOffsets(0, 0, 4), [999.0] * 4),
        }
        self.clients: list[dict[str, Any]] = []
        self.away, self.away_times = 0, math.inf
        self.refused: int | None = None
        self.committed = {0: 5, 1: -1001}
        self.asked: list[tuple[bool, int, int]] = []

    def client(self, properties: dict[str, Any], *, logger: object) -> "Client":
        self.clients.append(properties)
        return Client(self, committed_only=properties["isolation.level"] == "read_committed")


class Client:
    def __init__(self, brokers: Brokers, *, committed_only: bool) -> None:
        self._brokers = brokers
        self._committed_only = committed_only

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self._brokers.away > 1:
            raise AWAY
        numbers = {number for name, number in self._brokers.logs if name == topic}
        parts = {number: type("P", (), {"leader": number}) for number in numbers}
        topics = {topic: type("T", (), {"partitions": parts})}
        return type("Metadata", (), {"topics": topics, "brokers": {1: "broker-1:9092"}})

    def offsets_for_times(self, asked: list[Any], timeout: float) -> Iterator[Any]:
        if self._brokers.away and self._brokers.away_times > 0 and asked[0].partition == 1:
            self._brokers.away_times -= 1
            raise AWAY
        return iter([self._answer(one) for one in asked])

    def committed(self, asked: list[Any], _timeout_s: float) -> list[Any]:
        offsets = self._brokers.committed
        return [TopicPartition(one.topic, one.partition, offsets[one.partition]) for one in asked]

    def close(self) -> None:
        """Nothing is open."""

    def _answer(self, one: Any) -> Any:
        self._brokers.asked.append((self._committed_only, one.partition, one.offset))
        if self._brokers.refused is not None:
            error = KafkaError(self._brokers.refused)
            fields = {"topic": one.topic, "partition": one.partition, "offset": -1, "error": error}
            return type("Refused", (), fields)
        offsets, times_s = self._brokers.logs[(one.topic, one.partition)]
        end = offsets.last_stable if self._committed_only else offsets.high_watermark
        later = [
            n
            for n, at_s in enumerate(times_s)
            if n >= offsets.log_start and at_s * 1000 >= one.offset
        ]
        offset = {-2: offsets.log_start, -1: end}.get(one.offset, later[0] if later else -1)
        return TopicPartition(one.topic, one.partition, offset)
