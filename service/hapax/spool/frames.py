"""The bytes of a segment.

A file begins with two slots of a sector each, then come frames. A frame is what one group commit
accepts, whole or not at all:

    length, CRC32C of all that follows and of the length, first sequence, count, length of position
    position, and the records as a MessagePack array of byte strings

The first frame is the head. A slot says how far the file is known to be durable. It is written
after the sync that made it so, to the older of the two slots, and becomes durable with the next
sync; only then are the records acknowledged. So behind a crash everything below the newest sound
slot was acknowledged or could have been, and must be sound; what lies above was never
acknowledged, and may be torn. Behind a damaged slot the other one counts: the records that only
the damaged one covered are there and sound, and are kept.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.errors import ConfigurationError

try:
    import google_crc32c
except ModuleNotFoundError as error:
    raise ConfigurationError(
        ["a spool needs google-crc32c: pip install 'hapax-kafka[publish]'"]
    ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

SECTOR = 512
FRAMES_AT = 2 * SECTOR
MAGIC = b"hapaxspool"
FORMAT = 1

_OUTER = struct.Struct("<II")
_INNER = struct.Struct("<QII")
_LENGTH = struct.Struct("<I")
_SLOT = struct.Struct("<8sQQI")
_SLOT_MAGIC = b"hapaxend"
OUTER_BYTES = _OUTER.size
INNER_BYTES = _INNER.size
FRAME_BYTES_MAX = 1 << 30
_PREFIX_BYTES_MAX = 5
"""Of an array or a byte string in MessagePack."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What the first frame of a segment says.

    spool     the spool's UUID
    first     sequence of the first record here
    nonce     random, of the open that wrote the segment: two copies of a spool that both went on
              differ in it
    previous  the nonce of the record before ``first``; empty: there was none
    position  of the source, as of the record before ``first``
    """

    magic: bytes
    format: int
    spool: bytes
    first: int
    nonce: bytes
    previous: bytes
    position: bytes


class Frame(NamedTuple):
    """A sound frame: ``size`` in bytes with everything; ``body`` from the first record on."""

    first: int
    entries: int
    position: bytes
    body: bytes
    size: int

    def records(self) -> list[bytes]:
        """Return the records, each as it was given."""
        return _decode(self.body)


def crc32c(*parts: bytes) -> int:
    """Return the checksum of these, one behind the other."""
    checksum = 0
    for part in parts:
        checksum = google_crc32c.extend(checksum, part)
    return checksum


def packed(first: int, records: Sequence[bytes], position: bytes = b"") -> bytes:
    """Return a frame; an empty ``position`` leaves the one before it as it is."""
    parts = (_INNER.pack(first, len(records), len(position)), position, _encode(records))
    length = _LENGTH.pack(sum(map(len, parts)))
    return b"".join((length, _LENGTH.pack(crc32c(length, *parts)), *parts))


def frame_bytes(records: int, content_bytes: int, position_bytes: int) -> int:
    """Return how long the frame of so many records becomes at most."""
    lengths = (1 + records) * _PREFIX_BYTES_MAX
    return OUTER_BYTES + INNER_BYTES + position_bytes + lengths + content_bytes


def outer(data: bytes, at: int = 0) -> tuple[int, int] | None:
    """Return length and checksum of a frame that may begin here; None: none does."""
    if len(data) < at + OUTER_BYTES:
        return None
    length, checksum = _OUTER.unpack_from(data, at)
    if not INNER_BYTES <= length <= FRAME_BYTES_MAX:
        return None
    return length, checksum


def inner(length: int, checksum: int, content: bytes) -> Frame | None:
    """Return the frame with this content; None when it is not what was written."""
    if len(content) != length or crc32c(_LENGTH.pack(length), content) != checksum:
        return None
    first, count, position_bytes = _INNER.unpack_from(content)
    begin = INNER_BYTES + position_bytes
    position = content[INNER_BYTES:begin]
    return Frame(first, count, position, content[begin:], OUTER_BYTES + length)


def packed_head(head: Head) -> bytes:
    """Return the first frame of a segment."""
    return packed(head.first, [msgspec.msgpack.encode(head)])


def head_of(frame: Frame) -> Head | None:
    """Return what a first frame says; None when it is none, or of another format."""
    if frame.entries != 1:
        return None
    try:
        head = msgspec.msgpack.decode(frame.records()[0], type=Head)
    except (msgspec.DecodeError, struct.error):
        return None
    return head if (head.magic, head.format) == (MAGIC, FORMAT) else None


def packed_slot(generation: int, end: int) -> bytes:
    """Return a slot that says that the file is durable up to ``end``."""
    content = _SLOT.pack(_SLOT_MAGIC, generation, end, 0)[: -_LENGTH.size]
    return content + _LENGTH.pack(crc32c(content))


def slot_at(generation: int) -> int:
    """Return where a slot lies: the two are used in turn."""
    return (generation % 2) * SECTOR


def newest_slot(slots: bytes) -> tuple[int, int]:
    """Return generation and end of the newest sound slot of a file; zeros when none is."""
    found = [(0, 0)]
    for at in (0, SECTOR):
        data = slots[at : at + _SLOT.size]
        if len(data) < _SLOT.size:
            continue
        magic, generation, end, checksum = _SLOT.unpack(data)
        content = data[: -_LENGTH.size]
        if magic == _SLOT_MAGIC and crc32c(content) == checksum and slot_at(generation) == at:
            found.append((generation, end))
    return max(found)
