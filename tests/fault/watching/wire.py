"""Three requests of Kafka's protocol as plain frames, for what the client cannot do.

AlterPartitionReassignments is not among its calls. ListOffsets is, but while leaders die the
client's own form stays with a dead leader, and was seen to end the whole process (librdkafka 2.16:
assertion ``eonce->refcnt > 0``).
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Sized

LATEST = -1
LIST_OFFSETS, REASSIGN = 2, 45
COMMITTED, UNCOMMITTED = 1, 0
Place = tuple[str, int]


class Line:
    """A connection to one broker that is made when it is needed, and made again when it broke."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def ask(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        """Send a request and return what stands behind the head of the answer.

        Raises OSError when no answer comes within the timeout.
        """
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), self._timeout_s)
            tags = b"\0" if flexible else b""
            frame = struct.pack(">hhih", key, version, 0, -1) + tags + body
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._read(4))
            return self._read(size)[4 + len(tags) :]
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


class End(NamedTuple):
    """What a broker says of a partition; ``error`` is not 0 where it does not lead it."""

    place: Place
    error: int
    offset: int


def ends(line: Line, places: Iterable[Place], isolation: int) -> dict[Place, int]:
    """Return the ends of those partitions that this broker leads (ListOffsets v2)."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    body = struct.pack(">ibi", -1, isolation, len(topics))
    for topic, partitions in topics.items():
        body += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">iq", partition, LATEST) for partition in partitions)
    answer = _read_ends(line.ask(LIST_OFFSETS, 2, body))
    return {end.place: end.offset for end in answer if end.error == 0 and end.offset >= 0}


def _read_ends(answer: bytes) -> list[End]:
    found = []
    (topics,) = struct.unpack_from(">i", answer, 4)  # behind the throttle time
    at = 8
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, at)
        topic = answer[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (partitions,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(partitions):
            partition, error, _timestamp, offset = struct.unpack_from(">ihqq", answer, at)
            at += 4 + 2 + 8 + 8
            found.append(End((topic, partition), error, offset))
    return found


def reassign(line: Line, replicas: Mapping[Place, Sequence[int]], timeout_ms: int) -> None:
    """Set the replicas of partitions, the preferred leader first.

    AlterPartitionReassignments v0. Raises AssertionError when it is refused.
    """
    topics: dict[str, list[tuple[int, Sequence[int]]]] = {}
    for (topic, partition), nodes in replicas.items():
        topics.setdefault(topic, []).append((partition, nodes))
    body = struct.pack(">i", timeout_ms) + _count(topics)
    for topic, partitions in topics.items():
        body += _count(topic) + topic.encode() + _count(partitions)
        for partition, nodes in partitions:
            body += struct.pack(">i", partition) + _count(nodes)
            body += struct.pack(f">{len(nodes)}i", *nodes) + b"\0"
        body += b"\0"
    answer = line.ask(REASSIGN, 0, body + b"\0", flexible=True)
    (code,) = struct.unpack_from(">h", answer, 4)  # behind the throttle time
    assert code == 0, f"reassignment refused with {code}"


def _count(found: Sized) -> bytes:
    assert len(found) < 127, "one byte holds the length"
    return bytes([len(found) + 1])
