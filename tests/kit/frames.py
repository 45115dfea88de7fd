"""As much of the Kafka protocol as a fault proxy must know: headers, and where errors stand.

A frame is what follows the four bytes of its length. Formats: the protocol guide of Apache Kafka.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

APIS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    18: "ApiVersions",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
    68: "ConsumerGroupHeartbeat",
}

# First version with compact lengths and tagged fields, per API whose errors can be read here.
_FLEXIBLE_FROM = {
    "Produce": 9,
    "InitProducerId": 2,
    "AddOffsetsToTxn": 3,
    "EndTxn": 3,
    "TxnOffsetCommit": 3,
}


class Request(NamedTuple):
    """Head of a request frame."""

    api: str
    version: int
    correlation_id: int
    client_id: str


def read_request(frame: bytes) -> Request:
    """Read the head of a request; an API that is not listed here is named by its number."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
    client_id = frame[10 : 10 + max(length, 0)].decode("utf-8", "replace")
    return Request(APIS.get(key, str(key)), version, correlation_id, client_id)


def correlation_id(answer: bytes) -> int:
    """Read which request a frame answers."""
    (number,) = struct.unpack_from(">i", answer)
    return int(number)


def error_code(request: Request, answer: bytes) -> int:
    """Read the first error in an answer, 0 when it has none.

    Of a Produce answer only the first partition is looked at. Raises KeyError for an API whose
    answers are not understood here.
    """
    reader = _Reader(answer, flexible=request.version >= _FLEXIBLE_FROM[request.api])
    if request.api == "Produce":
        reader.array()
        reader.string()
        reader.array()
        reader.skip(4)
        return reader.int16()
    reader.skip(4)  # throttle time
    if request.api == "TxnOffsetCommit":
        return next((code for code in reader.offset_commits() if code), 0)
    return reader.int16()


class _Reader:
    """Walks through an answer, from behind its header."""

    def __init__(self, answer: bytes, *, flexible: bool) -> None:
        self._bytes = answer
        self._flexible = flexible
        self._at = 4
        self._tags()

    def skip(self, count: int) -> None:
        self._at += count

    def int16(self) -> int:
        return self._fixed(">h", 2)

    def array(self) -> int:
        """Return the number of elements that follow."""
        return self._varint() - 1 if self._flexible else self._fixed(">i", 4)

    def string(self) -> None:
        self.skip(self._varint() - 1 if self._flexible else self._fixed(">h", 2))

    def offset_commits(self) -> Iterator[int]:
        """Yield the error of each partition of each topic."""
        for _ in range(self.array()):
            self.string()
            for _ in range(self.array()):
                self.skip(4)
                yield self.int16()
                self._tags()
            self._tags()

    def _fixed(self, form: str, width: int) -> int:
        (number,) = struct.unpack_from(form, self._bytes, self._at)
        self._at += width
        return int(number)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._bytes[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def _tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self.skip(self._varint())
