"""As much of the Kafka protocol as a fault proxy must know: headers, and where errors stand.

A frame is what follows the four bytes of its length. Formats: the protocol guide of Apache Kafka.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

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
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    68: "ConsumerGroupHeartbeat",
}

# First version with compact lengths and tagged fields, per API whose errors can be read here.
_FLEXIBLE_FROM = {
    "Produce": 9,
    "InitProducerId": 2,
    "AddPartitionsToTxn": 3,
    "AddOffsetsToTxn": 3,
    "EndTxn": 3,
    "TxnOffsetCommit": 3,
}
_METADATA_FLEXIBLE_FROM = 9
_RECORD_ERRORS_FROM = 8
"""Version of Produce from which answers name the records that were refused."""

_BY_PARTITION = {"Produce", "AddPartitionsToTxn"}
"""Answers that hold an error for each partition of each topic, and nothing else."""


class Request(NamedTuple):
    """Head of a request frame. ``commits``: what an EndTxn asks for, None for all else."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    commits: bool | None = None


def read_request(frame: bytes) -> Request:
    """Read the head of a request; an API that is not listed here is named by its number."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
    end = 10 + max(length, 0)
    client_id = frame[10:end].decode("utf-8", "replace")
    request = Request(APIS.get(key, str(key)), version, correlation_id, client_id)
    if request.api != "EndTxn":
        return request
    reader = _Reader(frame, flexible=version >= _FLEXIBLE_FROM["EndTxn"], at=end)
    reader.string()  # transactional id
    reader.skip(8 + 2)  # producer id and epoch
    return request._replace(commits=bool(reader.int8()))


def with_error(request: Request, answer: bytes, code: int) -> bytes:
    """Return the answer with every error in it replaced.

    Raises KeyError for an API whose answers are not understood here.
    """
    if request.api == "AddPartitionsToTxn":
        raise KeyError(request.api)
    if request.api == "Metadata":
        return without_brokers(request, answer)
    reader = _Reader(answer, flexible=request.version >= _FLEXIBLE_FROM[request.api])
    changed = bytearray(answer)
    for place in _error_places(request, reader):
        struct.pack_into(">h", changed, place, code)
    return bytes(changed)


def without_brokers(request: Request, answer: bytes) -> bytes:
    """Return an answer to Metadata that says there are none, as an only broker that stops does."""
    flexible = request.version >= _METADATA_FLEXIBLE_FROM
    at = 9 if flexible else 8  # correlation id, tagged fields, throttle time
    end = at

    def length() -> int:
        nonlocal end
        if not flexible:
            (number,) = struct.unpack_from(">h", answer, end)
            end += 2
            return max(0, int(number))
        number = answer[end]
        end += 1
        return max(0, number - 1)

    if flexible:
        count = answer[end] - 1
        end += 1
    else:
        (count,) = struct.unpack_from(">i", answer, end)
        end += 4
    for _broker in range(count):
        end += 4
        for behind in (4, 1 if flexible else 0):  # host and port, rack and tagged fields
            text = length()
            end += text + behind
    return answer[:at] + (b"\1" if flexible else bytes(4)) + answer[end:]


def _error_places(request: Request, reader: "_Reader") -> Iterator[int]:
    if request.api == "Produce":  # the throttle time stands at its end
        yield from reader.produce_places(request.version)
        return
    reader.skip(4)  # throttle time
    if request.api == "TxnOffsetCommit":
        yield from reader.offset_places()
    else:
        yield reader.place


def correlation_id(answer: bytes) -> int:
    (number,) = struct.unpack_from(">i", answer)
    return int(number)


def error_code(request: Request, answer: bytes) -> int:
    """Read the first error in an answer, 0 when it has none.

    Of answers by partition only the first is looked at. Raises KeyError for an API whose answers
    are not understood here.
    """
    reader = _Reader(answer, flexible=request.version >= _FLEXIBLE_FROM[request.api])
    if request.api != "Produce":
        reader.skip(4)  # throttle time
    if request.api in _BY_PARTITION:
        reader.array()
        reader.string()
        reader.array()
        reader.skip(4)
        return reader.int16()
    if request.api == "TxnOffsetCommit":
        codes = (struct.unpack_from(">h", answer, place)[0] for place in reader.offset_places())
        return next((int(code) for code in codes if code), 0)
    return reader.int16()


class _Reader:
    """Walks through a frame; begins behind the number of an answer, or ``at``."""

    def __init__(self, frame: bytes, *, flexible: bool, at: int = 4) -> None:
        self._bytes = frame
        self._flexible = flexible
        self._at = at
        self._tags()

    @property
    def place(self) -> int:
        return self._at

    def skip(self, count: int) -> None:
        self._at += count

    def int8(self) -> int:
        return self._fixed(">b", 1)

    def int16(self) -> int:
        return self._fixed(">h", 2)

    def array(self) -> int:
        return self._varint() - 1 if self._flexible else self._fixed(">i", 4)

    def string(self) -> None:
        length = self._varint() - 1 if self._flexible else self._fixed(">h", 2)
        self.skip(max(0, length))  # -1: there is none

    def offset_places(self) -> Iterator[int]:
        """Yield where the error of each partition of each topic stands."""
        for _ in range(self.array()):
            self.string()
            for _ in range(self.array()):
                self.skip(4)
                yield self._at
                self.skip(2)
                self._tags()
            self._tags()

    def produce_places(self, version: int) -> Iterator[int]:
        """Yield where the error of each partition of each topic stands (versions 5 and later)."""
        for _ in range(self.array()):
            self.string()
            for _ in range(self.array()):
                self.skip(4)
                yield self._at
                self.skip(2 + 8 + 8 + 8)  # error, offset, time, beginning of the log
                if version >= _RECORD_ERRORS_FROM:
                    for _ in range(self.array()):
                        self.skip(4)
                        self.string()
                        self._tags()
                    self.string()
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
