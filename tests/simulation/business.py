"""The business code of the simulation, and what must come of each record."""

from typing import Any
from zlib import crc32

from hapax.core.records import Output, Record

BYTES_MAX = 400
OUT, DEAD, RETRY = "out", "dead", "retry"
RETRY_PARTITIONS = 4
"""Levels that delays of up to 5 s need."""
Effect = tuple[str, bytes]


def event_of(value: bytes) -> bytes:
    """Return the id of the event: ``a/2`` is a twin of ``a``."""
    return value.split(b"/")[0]


def work(record: Record) -> Any:
    value = record.value or b""
    if value.startswith(b"filter"):
        return None
    if value.startswith(b"boom"):
        raise ValueError("boom")
    if value.startswith(b"two"):
        return [Output(value), Output(value + b"!")]
    if value.startswith(b"large"):
        return [Output(value), Output(b"x" * (BYTES_MAX + 1))]
    return Output(value.upper())


def asks_until_s(value: bytes) -> float:
    """Return until when business code asks for a later try, in seconds; 0: it never does."""
    chance = crc32(event_of(value))
    return 0.0 if chance % 3 else 0.3 + chance // 3 % 7 / 2


def refused(topic: str, value: bytes | None) -> bool:
    """Whether brokers refuse this output for what it holds."""
    return topic == OUT and (value or b"").startswith(b"BAD")


def expected(value: bytes) -> list[Effect]:
    """Return what readers must see of a record, in order."""
    if value.startswith(b"filter"):
        return []
    if value.startswith((b"boom", b"large", b"bad")):
        return [(DEAD, value)]
    if value.startswith(b"two"):
        return [(OUT, value), (OUT, value + b"!")]
    return [(OUT, value.upper())]
