"""Owners as they stand in a bucket, behind the date: topic's number, partition, offset. Pure.

3 bytes of the topic's number; the partition twice over, and one more where the offset needs more
than 32 bits, 7 bits a byte; these high bits of the offset; its low 4 bytes. One spelling only:
owners are compared as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.claims.redis_packing import MORE, first_varint
from hapax.core.record_path import RecordPath
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.records import Record

_LOW: Final = 2**32
_NUMBER_BYTES: Final = 3


def topics_of(owners: Iterable[Record | Coordinates]) -> list[str]:
    """Return the topics, each once."""
    if isinstance(owners, RecordPath):
        return list(dict.fromkeys(topic for topic, *_ in owners.runs))
    return list(dict.fromkeys(owner.topic for owner in owners))


def owner_texts(
    owners: Sequence[Record | Coordinates], numbers: Mapping[str, bytes]
) -> list[bytes]:
    """Return the owners as bytes; ``numbers``: of the topics."""
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
    """Return the owner that these bytes stand for."""
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
