"""The business code of the simulation, and what must come of each record."""

from typing import Any
from zlib import crc32

from hapax.core.records import Output, Record
from hapax.processing.state import State

BYTES_MAX = 400
OUT, DEAD, RETRY = "out", "dead", "retry"
INPUTS = ("in", "in2")
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


TTL_S = 0.4


def keep(record: Record, state: State[Any], *, filtered: bool) -> Any:
    """Count by key, and answer with the counts; ``filtered``: also what leaves no output.

    What fails changes the state as well: nothing must come of that.
    """
    value = record.value or b""
    if value.startswith(b"filter") and not filtered:
        return None
    state.set("count", count := state.get("count", 0) + 1)
    if crc32(value) % 5 == 0:
        state.delete("total")
    state.set("total", total := state.get("total", 0) + record.offset)
    recent = state.get("recent", 0) + 1
    if crc32(value) % 3:
        state.set("recent", recent, ttl=TTL_S)
    if value.startswith(b"large") and crc32(value) % 2:
        state.set("large", bytes(BYTES_MAX))
    answer = work(record)
    outputs = answer if isinstance(answer, list) else [answer] if answer else []
    return [Output((one.value or b"") + b"=%d,%d,%d" % (count, total, recent)) for one in outputs]


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
