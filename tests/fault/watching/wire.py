"""Requests of Kafka's protocol as plain frames, for what the client cannot do.

AlterPartitionReassignments is not among its calls. ListOffsets is, but while leaders die the
client's own form stays with a dead leader, and was seen to end the whole process (librdkafka 2.16:
assertion ``eonce->refcnt > 0``).
"""

import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

LATEST = -1
COMMITTED, UNCOMMITTED = 1, 0
Place = tuple[str, int]


class Line:
    """A connection to one broker that is made when it is needed, and made again when it broke."""

    def __init__(self, port: int, timeout_s: float, client_id: str = "wire") -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._socket: socket.socket | None = None

    def ask(self, request: Any, answer: Any, version: int) -> Any:
        """Send a request in this version and return its answer, which is of a class.

        Raises OSError when no answer comes within the timeout.
        """
        request.API_VERSION = version
        request.with_header(client_id=self._client_id)
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), self._timeout_s)
            self._socket.sendall(request.encode(header=True, framed=True))
            size = int.from_bytes(self._read(4))
            return answer.decode(self._read(size), version=version, header=True)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        found = b""
        while len(found) < size:
            block = self._socket.recv(size - len(found))
            if not block:
                raise ConnectionResetError("the broker has closed the connection")
            found += block
        return found


def ends(line: Line, places: Iterable[Place], isolation: int) -> dict[Place, int]:
    """Return the ends of those partitions that this broker leads."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    asked = ListOffsetsRequest.ListOffsetsTopic
    one = asked.ListOffsetsPartition
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            asked(
                name=name,
                partitions=[one(partition_index=each, timestamp=LATEST) for each in partitions],
            )
            for name, partitions in topics.items()
        ],
    )
    answer = line.ask(request, ListOffsetsResponse, 2)
    return {
        (topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == 0 and each.offset >= 0  # else it does not lead the partition
    }


def reassign(line: Line, replicas: Mapping[Place, Sequence[int]], timeout_ms: int) -> None:
    """Set the replicas of partitions, the preferred leader first.

    Raises AssertionError when it is refused.
    """
    topics: dict[str, list[tuple[int, Sequence[int]]]] = {}
    for (topic, partition), nodes in replicas.items():
        topics.setdefault(topic, []).append((partition, nodes))
    asked = AlterPartitionReassignmentsRequest.ReassignableTopic
    one = asked.ReassignablePartition
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[
            asked(
                name=name,
                partitions=[
                    one(partition_index=each, replicas=list(nodes)) for each, nodes in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
    )
    answer = line.ask(request, AlterPartitionReassignmentsResponse, 0)
    assert answer.error_code == 0, f"reassignment refused with {answer.error_code}"
