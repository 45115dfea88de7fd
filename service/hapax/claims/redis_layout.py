"""Where a claim is in Redis: buckets, fields, dates, owners, and requests for many of them. Pure.

The scripts (redis_turn.lua) divide ids in the same way. After the date, a bucket has the owner: 3
bytes of the topic's number; the partition twice over, and one more where the offset needs more than
32 bits, 7 bits a byte; these high bits of the offset; its low 4 bytes. One spelling only: owners
are compared as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hapax.core.record_path import RecordPath
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.records import Record


MORE = 0x80
"""The bit that says that more bytes of a number follow: 7 bits a byte."""
DATES: Final = 65_536
"""Dates are numbers of units, modulo this."""
DATE_BYTES: Final = 2
DIGEST_BYTES: Final = 16
_LOW: Final = 2**32
_NUMBER_BYTES: Final = 3


def command(*parts: bytes | str | int) -> bytes:
    """Return a request as Redis reads it: the number of its parts, and each with its length."""
    packed = [b"*%d\r\n" % len(parts)]
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode()
        packed += (b"$%d\r\n" % len(text), text, b"\r\n")
    return b"".join(packed)


def first_varint(packed: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = packed[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < MORE:
            return number, at
        shift += 7


_MASKS: Final = [
    [bytes([value & (0xFF << (8 - bits))]) for value in range(256)] for bits in range(8)
]


class HashField(NamedTuple):
    """Where a claim is in Redis."""

    key: bytes
    field: bytes


class Layout(NamedTuple):
    """How many of an id's first bits name its bucket: ``new`` before the cursor, else ``old``."""

    old: int
    new: int
    cursor: int

    @property
    def shift(self) -> int:
        """By how much 24 bits of a digest are shifted, to compare them with the cursor."""
        return 24 - min(self.old, self.new)

    def bits(self, digest: bytes) -> int:
        if self.old == self.new:
            return self.old
        index = int.from_bytes(digest[:3], "big") >> self.shift
        return self.new if index < self.cursor else self.old

    def agrees(self, other: Layout) -> bool:
        return self == other or self.old == self.new == other.old == other.new

    def token(self, epoch: bytes) -> bytes:
        """Return what redis_replace.lua compares."""
        cursor = "-" if self.old == self.new else str(self.cursor)
        return b"%b %d %d %b" % (epoch, self.old, self.new, cursor.encode())


def bucket_prefix(base: bytes, epoch: bytes) -> bytes:
    """Return what the names of all buckets of an epoch begin with; short, for each id names one."""
    tag = base[base.index(b"{") : base.index(b"}") + 1]
    return b"hapax%b%b" % (tag, bytes.fromhex(epoch.decode()))


def place(prefix: bytes, bits: int, digest: bytes) -> HashField:
    """Return where an id is; ``prefix``: of all buckets of an epoch."""
    whole, rest = divmod(bits, 8)
    masked = _MASKS[rest][digest[whole]] if rest else b""
    return HashField(b"%b%c%b%b" % (prefix, 64 + bits, digest[:whole], masked), digest[whole:])


def setnx(
    prefix: bytes, layout: Layout, digests: Sequence[bytes], values: Sequence[bytes]
) -> bytes:
    """Return the commands that claim each id unless it is claimed, a reply of 4 bytes for each."""
    if layout.old == layout.new and len({len(value) for value in values}) == 1:
        head, middle, whole, rest = around(b"*4\r\n$6\r\nHSETNX", prefix, layout.old)
        length = b"\r\n$%d\r\n" % len(values[0])
        masks = _MASKS[rest]
        if not rest:
            return b"".join(
                [
                    b"%b%b%b%b%b%b\r\n" % (head, id_[:whole], middle, id_[whole:], length, value)
                    for id_, value in zip(digests, values, strict=True)
                ]
            )
        return b"".join(
            [
                b"%b%b%b%b%b%b%b\r\n"
                % (head, id_[:whole], masks[id_[whole]], middle, id_[whole:], length, value)
                for id_, value in zip(digests, values, strict=True)
            ]
        )
    return b"".join(
        b"*4\r\n$6\r\nHSETNX\r\n%b%b%b" % (_bulk(key), _bulk(field), _bulk(value))
        for (key, field), value in zip(_places(prefix, layout, digests), values, strict=True)
    )


def get(prefix: bytes, layout: Layout, digests: Sequence[bytes]) -> bytes:
    return b"".join(
        b"*3\r\n$4\r\nHGET\r\n%b%b" % (_bulk(key), _bulk(field))
        for key, field in _places(prefix, layout, digests)
    )


def _places(prefix: bytes, layout: Layout, digests: Iterable[bytes]) -> Iterable[HashField]:
    return (place(prefix, layout.bits(digest), digest) for digest in digests)


def around(command: bytes, prefix: bytes, bits: int) -> tuple[bytes, bytes, int, int]:
    """Return what is before the bits of an id, and after; and how many bytes and bits these are."""
    whole, rest = divmod(bits, 8)
    key_bytes = len(prefix) + 1 + whole + (1 if rest else 0)
    head = b"%b\r\n$%d\r\n%b%c" % (command, key_bytes, prefix, 64 + bits)
    middle = b"\r\n$%d\r\n" % (DIGEST_BYTES - whole)
    return head, middle, whole, rest


def _bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def date(ms: float, unit_ms: int) -> int:
    return int(ms // unit_ms) % DATES


def age(now: int, then: int) -> int:
    """Return the units between two dates; 0 for one of the future: a clock was set back."""
    units = (now - then) % DATES
    return units if units < DATES // 2 else 0


def topics_of(owners: Iterable[Record | Coordinates]) -> list[str]:
    if isinstance(owners, RecordPath):
        return list(dict.fromkeys(topic for topic, *_ in owners.runs))
    return list(dict.fromkeys(owner.topic for owner in owners))


def owner_texts(
    owners: Sequence[Record | Coordinates], numbers: Mapping[str, bytes]
) -> list[bytes]:
    texts = []
    topic, partition, first, end, head = "", -1, 0, -1, b""
    for owner in owners:
        offset = owner.offset
        if not first <= offset < end or owner.partition != partition or owner.topic != topic:
            topic, partition = owner.topic, owner.partition
            first = offset // _LOW * _LOW
            end = first + _LOW
            head = owner_head(numbers[topic], partition, first // _LOW)
        texts.append(head + (offset - first).to_bytes(4, "big"))
    return texts


def owner_head(number: bytes, partition: int, high: int) -> bytes:
    """Return what the owners of a run have in common; ``high``: bits of the offset over 32."""
    return number + _varint(partition * 2 + (high > 0)) + (_varint(high) if high else b"")


def owner_coordinates(packed: bytes, topic_of: Callable[[bytes], str]) -> Coordinates:
    flagged, at = first_varint(packed, _NUMBER_BYTES)
    high = 0
    if flagged % 2:
        high, at = first_varint(packed, at)
    low = int.from_bytes(packed[at:], "big")
    return Coordinates(topic_of(packed[:_NUMBER_BYTES]), flagged // 2, high * _LOW + low)


def _varint(number: int) -> bytes:
    text = bytearray()
    while number >= MORE:
        text.append(number % MORE | MORE)
        number >>= 7
    text.append(number)
    return bytes(text)
