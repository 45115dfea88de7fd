"""Transforms that keep state, and what must come of them: counts by key, without a gap."""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hapax import Record, State

MODULE = "tests.kit.keeping"


def count(record: Record, state: State[int]) -> bytes:
    """Return how many records of the key there were; ``fail``: change the state, and raise."""
    number = state.get("count", 0) + 1
    state.set("count", number, ttl=1 if record.value == b"1 s" else None)
    if record.value == b"fail":
        raise ValueError("the record says so")
    if record.value == b"kill":
        os.kill(os.getpid(), signal.SIGSEGV)
    if record.value and record.value.startswith(b"/"):
        while Path(os.fsdecode(record.value)).exists():  # the call lasts as long as the file
            time.sleep(0.01)
    if record.value == b"forget":
        state.delete("count")
    return b"%d" % number


class Basket(msgspec.Struct):
    """A type that no count is."""

    items: list[str]


def fill(record: Record, state: State[Basket]) -> bytes:
    basket = state.get("count", Basket([]))
    basket.items.append("one")
    state.set("count", basket)
    return b"%d" % len(basket.items)


async def awaited(record: Record, state: State[int]) -> bytes:
    number = state.get("count", 0)
    await asyncio.sleep(0.001)
    assert state.get("count", 0) == number  # calls of a key do not overlap
    return count(record, state)


def listed(records: list[Record], states: list[State[int]]) -> list[bytes | Exception]:
    """Count each; a key is in a list once."""
    assert len({record.key for record in records}) == len(records)
    found: list[bytes | Exception] = []
    for record, state in zip(records, states, strict=True):
        try:
            found.append(count(record, state))
        except ValueError as error:
            found.append(error)
    return found


async def awaited_list(records: list[Record], states: list[State[int]]) -> list[bytes | Exception]:
    await asyncio.sleep(0.001)
    return listed(records, states)


class Counting:
    """The same with a resource that is opened once."""

    def setup(self) -> None:
        self.count = count

    def __call__(self, record: Record, state: State[int]) -> bytes:
        return self.count(record, state)


FORMS = {
    "plain": {"TRANSFORM": f"{MODULE}:count"},
    "coroutine": {"TRANSFORM": f"{MODULE}:awaited", "CALL__CONCURRENCY": "16"},
    "list": {"TRANSFORM": f"{MODULE}:listed", "CALL__RECORDS_MAX": "50"},
    "threads": {"TRANSFORM": f"{MODULE}:count", "CALL__CONCURRENCY": "4"},
    "class": {"TRANSFORM": f"{MODULE}:Counting"},
    "coroutine of a list": {
        "TRANSFORM": f"{MODULE}:awaited_list",
        "CALL__CONCURRENCY": "4",
        "CALL__RECORDS_MAX": "50",
    },
}


def gaps(outputs: Iterable[Record]) -> list[str]:
    """Return where the counts of a key are not 1, 2, 3 and so on, in the order of the topic."""
    seen: dict[bytes | None, int] = defaultdict(int)
    wrong = []
    for record in outputs:
        seen[record.key] += 1
        if record.value != b"%d" % seen[record.key]:
            wrong.append(f"{record.key!r}: {record.value!r} in place of {seen[record.key]}")
    return wrong


def grow(record: Record, state: State[bytes]) -> bytes:
    """Keep as many bytes as the record says, and return how many there were."""
    before = state.get("bytes", b"")
    state.set("bytes", bytes(int(record.value or b"0")))
    return b"%d" % len(before)
