"""Values of the record path: what comes in, what goes out, and their coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:  # unparametrised, its data may be anything
    from collections.abc import Sequence

    from typing_extensions import TypeVar

    Data = TypeVar("Data", default=Any)
else:
    from typing import TypeVar

    Data = TypeVar("Data")

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers in order, repeats kept. Values stay bytes: any program can write them."""

TopicPartition = tuple[str, int]
"""A topic's name and a partition's number."""

PARTITION_MAX, OFFSET_MAX = 2**31 - 1, 2**63 - 1
"""Kafka's types: int32 and int64; what is larger names no record of any topic."""

Progress = dict[TopicPartition, int]
"""Per partition the next offset to read. An offset in Hapax always means "next to read"."""


class Coordinates(NamedTuple):
    """Where a record is in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        """Read ``topic/partition/offset``; raise ValueError when it is anything else."""
        topic, partition, offset = text.rsplit("/", 2)
        parsed = cls(topic, _number(partition, PARTITION_MAX), _number(offset, OFFSET_MAX))
        if not topic or parsed.partition < 0 or parsed.offset < 0:
            raise ValueError(f"{text!r} is not topic/partition/offset")
        return parsed


def _number(text: str, most: int) -> int:
    """Return a number of ASCII digits up to ``most``; -1 for anything else.

    Digits of other scripts are decimal to Python and no number to Kafka's tools.
    """
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return -1
    number = int(text.lstrip("0") or "0")
    return number if number <= most else -1


# gc=False: a record holds bytes and text only, so it can never be part of a cycle.
class Record(msgspec.Struct, Generic[Data], frozen=True, gc=False):
    """One input record, exactly as Kafka delivered it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    event_id: bytes = b""
    """Set by the service before business code is called; ``id`` is what to ask for."""
    data: Data = None  # type: ignore[assignment]
    """The value, decoded by HAPAX_INPUT__FORMAT, while business code has the record; else None."""

    @property
    def id(self) -> bytes:
        """The event's id, or the coordinates of a record that has none: the same for each try.

        A key for services that take one to recognise a call that is repeated after a crash.
        """
        return self.event_id or str(self.coordinates).encode()

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of this record."""
        return Coordinates(self.topic, self.partition, self.offset)


class _Value(msgspec.Struct, frozen=True, gc=False):
    if TYPE_CHECKING:
        value: Any  # with HAPAX_OUTPUT__FORMAT also data, which the service encodes
    else:
        value: bytes | None


class Output(_Value, frozen=True, gc=False, kw_only=True):
    """One record to write: its value, and by keyword whatever differs from the input record.

    key           default: the record's key. ``None`` writes no key.
    topic         default: the configured output topic.
    headers       pairs of name and bytes, added after the record's own.
    timestamp_ms  default: the record's timestamp.
    partition     default: the partitioner's choice.
    """

    key: bytes | UnsetType | None = UNSET
    topic: str | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def size_of(one: Record | Output) -> int:
    """Return the bytes of value, key and headers."""
    size = len(one.value or b"") + (len(one.key) if isinstance(one.key, bytes) else 0)
    if one.headers:
        size += sum(len(name) + len(value or b"") for name, value in one.headers)
    return size


OUTPUT_BYTES = 900
"""What an output costs beyond its value, in Python and in the client: 1.2 million small ones of one
record took 1,079 MiB."""


def size_of_all(outputs: Sequence[Output]) -> int:
    """Return what the outputs of one record cost in bytes; one alone costs what it holds."""
    return OUTPUT_BYTES * max(0, len(outputs) - 1) + sum(map(size_of, outputs))


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One record to produce, ready for the wire. In a spool it lies as an array of its fields."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int  # -1: the partitioner chooses
    timestamp_ms: int | None  # None: that of writing
    headers: list[tuple[str, bytes | None]]
