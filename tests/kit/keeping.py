"""Transforms that keep state, and what must come of them: counts by key, without a gap."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from hapax import Record, State

MODULE = "tests.kit.keeping"


def count(record: Record, state: State[int]) -> bytes:
    """Return how many records of the key there were; ``fail``: change the state, and raise."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    if record.value == b"fail":
        raise ValueError("the record says so")
    if record.value == b"kill":
        os.kill(os.getpid(), signal.SIGSEGV)
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


async def overlapping(record: Record, state: State[int]) -> bytes:
    return count(record, state)


def gaps(outputs: Iterable[Record]) -> list[str]:
    """Return where the counts of a key are not 1, 2, 3 and so on, in the order of the topic."""
    seen: dict[bytes | None, int] = defaultdict(int)
    wrong = []
    for record in outputs:
        seen[record.key] += 1
        if record.value != b"%d" % seen[record.key]:
            wrong.append(f"{record.key!r}: {record.value!r} in place of {seen[record.key]}")
    return wrong
