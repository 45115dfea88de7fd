"""Business code in every form of a transform, and the stamps of its calls.

A call takes as long as the record's header ``sleep-s`` says, else up to CALLS_PAUSE_MAX_S at
random; ``block-s`` is waited for without giving the loop back. Answers are those of
tests/fault/rules.py for their events, else those of tests/kit/orders.py.

With CALLS_STAMPS in the environment each call leaves its begin and its end in that file.
"""

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from hapax import Output, Record
from tests.fault import business, rules
from tests.kit import orders

STAMPS, PAUSE_MAX_S = "CALLS_STAMPS", "CALLS_PAUSE_MAX_S"
MODULE = "tests.kit.calls"
_LONGEST_S = float(os.environ.get(PAUSE_MAX_S, "0"))
_NUMBERS = itertools.count()

Answer = list[Output]


# -- the forms ----------------------------------------------------------------------------


def function(record: Record) -> Answer:
    with _stamped(record):
        time.sleep(_pause_s(record))
        return answer(record)


async def coroutine(record: Record) -> Answer:
    with _stamped(record):
        _block(record)
        await asyncio.sleep(_pause_s(record))
        return answer(record)


def batch(records: list[Record]) -> list[Answer | Exception]:
    """A function of a list; what is wrong with one record is in its place."""
    with _stamped(*records):
        time.sleep(max(map(_pause_s, records)))
        return [_place(record) for record in records]


async def coroutine_batch(records: list[Record]) -> list[Answer | Exception]:
    with _stamped(*records):
        await asyncio.sleep(max(map(_pause_s, records)))
        return [_place(record) for record in records]


class Client:
    """A coroutine that needs something that is opened once."""

    def __init__(self) -> None:
        self._open = False

    async def setup(self) -> None:
        stamp("setup")
        self._open = True

    async def __call__(self, record: Record) -> Answer:
        assert self._open
        return await coroutine(record)

    async def teardown(self) -> None:
        self._open = False
        stamp("teardown")


class Model:
    """A function of a list that needs something that is opened once."""

    def __init__(self) -> None:
        self._open = False

    def setup(self) -> None:
        stamp("setup")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a library may
        self._open = True

    def __call__(self, records: list[Record]) -> list[Answer | Exception]:
        assert self._open
        return batch(records)

    def teardown(self) -> None:
        self._open = False
        stamp("teardown")


@asynccontextmanager
async def opened() -> AsyncIterator[Callable[[Record], Awaitable[Answer]]]:
    """A coroutine that lives inside a context."""
    stamp("setup")
    yield coroutine
    stamp("teardown")


async def identify(record: Record) -> Output:
    """Write the id of the event as the value."""
    return Output(record.id)


# -- what is wrong ------------------------------------------------------------------------


def of_two(record: Record, other: Record) -> Answer:
    return [*answer(record), *answer(other)]


def of_none() -> Answer:
    return []


async def generator(record: Record) -> AsyncIterator[Output]:
    for each in answer(record):
        yield each


# -- answers ------------------------------------------------------------------------------


def answer(record: Record) -> Answer:
    """Return what must come of a record; raise what its dead letter must name."""
    if rules.decode(record.value or b"") is not None:
        return list(business.split(record))
    return list(orders.obey(record))


def _place(record: Record) -> Answer | Exception:
    try:
        return answer(record)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with this record alone
        return error


def _block(record: Record) -> None:
    time.sleep(_header_s(record, "block-s") or 0)


def _pause_s(record: Record) -> float:
    told = _header_s(record, "sleep-s")
    return random.uniform(0, _LONGEST_S) if told is None else told


def _header_s(record: Record, name: str) -> float | None:
    told = dict(record.headers).get(name)
    return None if told is None else float(told)


# -- stamps -------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call: of which process, of which records, and when. ``ended_ns`` None: it was cut."""

    pid: int
    number: int
    places: tuple[tuple[int, int], ...]
    keys: tuple[str, ...]
    began_ns: int
    ended_ns: int | None


def stamp(*words: object) -> None:
    """Leave one line; in one write, so that lines of several threads and processes stay whole."""
    if STAMPS not in os.environ:
        return
    line = " ".join(map(str, (os.getpid(), time.monotonic_ns(), *words)))
    file = os.open(os.environ[STAMPS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@contextmanager
def _stamped(*records: Record) -> Iterator[None]:
    if STAMPS not in os.environ:
        yield
        return
    number = next(_NUMBERS)
    places = ",".join(f"{each.partition}/{each.offset}" for each in records)
    stamp("begin", number, places, ",".join((each.key or b"").decode() for each in records))
    try:
        yield
    finally:
        stamp("end", number)


class Stamps:
    """What a file of stamps says; processes may still write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def times(self, word: str) -> int:
        return sum(line[2] == word for line in self._lines())

    def calls(self) -> list[Call]:
        begun: dict[tuple[str, str], Call] = {}
        for pid, ns, word, *rest in self._lines():
            if word == "begin":
                number, places, *keys = rest
                pairs = (place.split("/") for place in places.split(","))
                at = tuple((int(partition), int(offset)) for partition, offset in pairs)
                shared = tuple("".join(keys).split(","))
                begun[pid, number] = Call(int(pid), int(number), at, shared, int(ns), None)
            elif word == "end":
                begun[pid, rest[0]] = begun[pid, rest[0]]._replace(ended_ns=int(ns))
        return list(begun.values())

    def called(self) -> list[tuple[int, int]]:
        return [place for call in self.calls() for place in call.places]

    def together_most(self) -> int:
        moments = []
        for call in self.calls():
            moments += [(call.began_ns, 1), (call.ended_ns or call.began_ns, -1)]
        return max(itertools.accumulate(step for _, step in sorted(moments)), default=0)

    def overlaps(self) -> list[tuple[Call, Call]]:
        """Return pairs of calls that had a key in common and were under way at the same time."""
        by_key: dict[str, list[Call]] = {}
        for call in self.calls():
            for key in set(call.keys):
                by_key.setdefault(key, []).append(call)
        return [
            (one, two)
            for calls in by_key.values()
            for one, two in itertools.pairwise(calls)
            if one.ended_ns is None or two.began_ns < one.ended_ns
        ]

    def _lines(self) -> list[list[str]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split(" ") for line in text.splitlines()]
