"""How a value names its schema: by a prefix of its own, or in a header.

prefix  0x00, the id in four bytes, then of Protobuf the path to the message
header  ``__value_schema_id``: 0x00 and the id, or 0x01 and a GUID; of Protobuf the path after it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.errors import Poison
from hapax.core.headers import VALUE_SCHEMA

if TYPE_CHECKING:
    from hapax.core.records import Headers

BY_ID: Final = 0
BY_GUID: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17
_VARINT_BYTES_MAX: Final = 10


def split(value: bytes, headers: Headers) -> tuple[str | int, bytes, bytes]:
    """Return of a value: its id or the GUID in hexadecimal; what follows it there; the content.

    ``What follows`` is the header's rest, where a header names the schema. Raises Poison.
    """
    if headers:
        for name, told in headers:
            if name == VALUE_SCHEMA and told is not None:
                schema, size = _schema(told, f"header {VALUE_SCHEMA}")
                return schema, told[size:], value
    schema, size = _schema(value, "value")
    return schema, b"", value[size:]


def _schema(text: bytes, what: str) -> tuple[str | int, int]:
    if len(text) >= ID_BYTES and text[0] == BY_ID:
        return int.from_bytes(text[1:ID_BYTES], "big"), ID_BYTES
    if len(text) >= GUID_BYTES and text[0] == BY_GUID:
        return text[1:GUID_BYTES].hex(), GUID_BYTES
    raise Poison(
        f"the {what} does not begin with 0 and a schema id, or 1 and a GUID: {text[:GUID_BYTES]!r}"
    )


def prefix_of(schema_id: int) -> bytes:
    return bytes([BY_ID]) + schema_id.to_bytes(ID_BYTES - 1, "big")


def path_of(text: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path to a message and how many bytes it took; raise Poison."""
    count, at = _varint(text, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(text):
        raise Poison(f"a path of {count} steps leads to no message")
    path = []
    for _ in range(count):
        step, at = _varint(text, at)
        if step < 0:
            raise Poison(f"a path with {step} in it leads to no message")
        path.append(step)
    return tuple(path), at


def path_bytes(path: tuple[int, ...]) -> bytes:
    if path == (0,):
        return b"\x00"
    return b"".join(map(_zigzag, (len(path), *path)))


def _varint(text: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    for index in range(at, min(at + _VARINT_BYTES_MAX, len(text))):
        found |= (text[index] & 0x7F) << shift
        shift += 7
        if not text[index] & 0x80:
            return (found >> 1) ^ -(found & 1), index + 1
    raise Poison("the path to the message is cut off")


def _zigzag(number: int) -> bytes:
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
