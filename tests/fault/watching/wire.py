"""Two requests of Kafka's protocol as plain frames, for what the client cannot do.

AlterPartitionReassignments is not among its calls. ListOffsets is, but while leaders die the
client's own form stays with a dead leader, and was seen to end the whole process (librdkafka 2.16:
assertion ``eonce->refcnt > 0``).
"""

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence

from hapax.kafka.admin.wire import Packer, Unpacker

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


def ends(line: Line, places: Iterable[Place], isolation: int) -> dict[Place, int]:
    """Return the ends of those partitions that this broker leads (ListOffsets v2)."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    body = Packer().add("ibi", -1, isolation, len(topics))
    for topic, partitions in topics.items():
        body.plain(topic).add("i", len(partitions))
        for partition in partitions:
            body.add("iq", partition, LATEST)
    answer = Unpacker(line.ask(LIST_OFFSETS, 2, body.bytes))
    answer.number("i")  # throttle time
    found = {}
    for _ in range(answer.number("i")):
        topic = answer.plain()
        for _ in range(answer.number("i")):
            partition, error, _timestamp, offset = answer.take("ihqq")
            if error == 0 and offset >= 0:  # else it does not lead the partition
                found[topic, partition] = offset
    return found


def reassign(line: Line, replicas: Mapping[Place, Sequence[int]], timeout_ms: int) -> None:
    """Set the replicas of partitions, the preferred leader first.

    AlterPartitionReassignments v0. Raises AssertionError when it is refused.
    """
    topics: dict[str, list[tuple[int, Sequence[int]]]] = {}
    for (topic, partition), nodes in replicas.items():
        topics.setdefault(topic, []).append((partition, nodes))
    body = Packer().add("i", timeout_ms).size(len(topics))
    for topic, partitions in topics.items():
        body.text(topic).size(len(partitions))
        for partition, nodes in partitions:
            body.add("i", partition).size(len(nodes)).add(f"{len(nodes)}i", *nodes).end()
        body.end()
    answer = Unpacker(line.ask(REASSIGN, 0, body.end().bytes, flexible=True))
    _throttle_ms, code = answer.take("ih")
    assert code == 0, f"reassignment refused with {code}"
