"""Where a claim stands in Redis: buckets, fields, dates, and requests for many of them. Pure.

Called by claims/redis_buckets.py, whose scripts (redis_turn.lua) divide ids in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DATES: Final = 65_536
"""Dates are numbers of units, modulo this."""
DATE_BYTES: Final = 2
DIGEST_BYTES: Final = 16
_MASKS: Final = [
    [bytes([value & (0xFF << (8 - bits))]) for value in range(256)] for bits in range(8)
]


class HashField(NamedTuple):
    """Where a claim stands in Redis."""

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
        """Return how many bits name the bucket of this id."""
        if self.old == self.new:
            return self.old
        index = int.from_bytes(digest[:3], "big") >> self.shift
        return self.new if index < self.cursor else self.old

    def agrees(self, other: Layout) -> bool:
        """Whether every id stands in the same bucket in both."""
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
    """Return where an id stands; ``prefix``: of all buckets of an epoch."""
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
    """Return the commands that ask for the claims of these ids."""
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
    """Return the date of a time by Redis' clock."""
    return int(ms // unit_ms) % DATES


def age(now: int, then: int) -> int:
    """Return the units between two dates; 0 for one of the future: a clock was set back."""
    units = (now - then) % DATES
    return units if units < DATES // 2 else 0
