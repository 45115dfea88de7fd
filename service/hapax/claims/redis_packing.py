"""Owners of claims as bytes: what goes to the script, what comes back, what stands in a bucket."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from hapax.core.record_path import RecordPath
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.records import Record

TOPICS_AT = 9
"""The first topic's place among the script's arguments."""
_RUN = struct.Struct(">HIII")
_FOREIGN = struct.Struct(">IB")
_LOW = 2**32
MORE = 0x80
"""The bit that says that more bytes of a number follow: 7 bits a byte."""


def pack_owners(
    owners: Sequence[Record | Coordinates], *, first_topic: int = TOPICS_AT
) -> tuple[bytes, bytes, list[str]]:
    """Return the low 4 bytes of all offsets, the runs that share all the rest, and the topics.

    ``first_topic``: the place of these topics' first among the script's arguments.

    The high bytes belong to the run, so that an offset has one spelling only and most cost 4 bytes.
    """
    if isinstance(owners, RecordPath) and (packed := _packed(owners, first_topic)):
        return packed
    starts: list[tuple[int, str, int, int]] = []
    lows: list[int] = []
    add = lows.append
    topic, partition, first, end = "", -1, 0, -1
    for index, owner in enumerate(owners):
        offset = owner.offset
        if not first <= offset < end or owner.partition != partition or owner.topic != topic:
            topic, partition = owner.topic, owner.partition
            first = offset // _LOW * _LOW
            end = first + _LOW
            starts.append((index, topic, partition, first // _LOW))
        add(offset - first)
    places: dict[str, int] = {}
    runs = []
    ends = [index for index, *_ in starts[1:]] + [len(owners)]
    if not starts:
        ends = []
    for (index, topic, partition, high), stop in zip(starts, ends, strict=True):
        place = places.setdefault(topic, first_topic + len(places))
        runs.append(_RUN.pack(place, partition, high, stop - index))
    return struct.pack(f">{len(lows)}I", *lows), b"".join(runs), list(places)


def command(*parts: bytes | str | int) -> bytes:
    """Return a request as Redis reads it: the number of its parts, and each with its length."""
    packed = [b"*%d\r\n" % len(parts)]
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode()
        packed += (b"$%d\r\n" % len(text), text, b"\r\n")
    return b"".join(packed)


def _packed(records: RecordPath, first_topic: int) -> tuple[bytes, bytes, list[str]] | None:
    """Return the same for native records; None when a run spans several high bytes."""
    places: dict[str, int] = {}
    runs = []
    for topic, partition, _start, count, first, after, *_ in records.runs:
        if first // _LOW != (after - 1) // _LOW:
            return None
        place = places.setdefault(topic, first_topic + len(places))
        runs.append(_RUN.pack(place, partition, first // _LOW, count))
    return records.offsets, b"".join(runs), list(places)


def unpack_foreign(packed: bytes, names: list[Any]) -> Iterator[tuple[int, Coordinates]]:
    """Yield what the script answers of ids that others own: index and owner.

    ``names``: numbers of topics and their names, by turns.
    """
    topics = {number: topic_of(name) for number, name in zip(names[::2], names[1::2], strict=True)}
    at = 0
    while at < len(packed):
        index, length = _FOREIGN.unpack_from(packed, at)
        at += _FOREIGN.size
        number, partition, offset = unpack_owner(packed[at : at + length])
        at += length
        yield index, Coordinates(topics[number], partition, offset)


def stored_topic(topic: str, topic_id: str | None) -> str:
    """Return a topic as the store names it; Kafka allows no slash in a topic's name."""
    return f"{topic}/{topic_id}" if topic_id else topic


def topic_of(name: bytes) -> str:
    """Return a topic's name without its id, which stays in the store."""
    return name.decode().partition("/")[0]


def unpack_owner(packed: bytes) -> tuple[int, int, int]:
    """Return a topic's number, the partition and the offset."""
    number, at = first_varint(packed, 0)
    partition, at = first_varint(packed, at)
    high, at = first_varint(packed, at)
    return number, partition, high * _LOW + int.from_bytes(packed[at:], "big")


def first_varint(packed: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    number = shift = 0
    while True:
        byte = packed[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < MORE:
            return number, at
        shift += 7
