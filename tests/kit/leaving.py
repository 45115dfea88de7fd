"""Business code in every form that raises, for a record that says so, what is no Exception."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hapax import Output, Record

MODULE = "tests.kit.leaving"


class OwnError(BaseException):
    """One that no library knows."""


DEEDS: dict[bytes, Callable[[], BaseException]] = {
    b"exit-0": lambda: SystemExit(0),
    b"exit-text": lambda: SystemExit("text"),
    b"cancelled": asyncio.CancelledError,
    b"interrupt": KeyboardInterrupt,
    b"generator": GeneratorExit,
    b"own": OwnError,
}
FINE = [b"%d" % number for number in range(20)]


def function(record: Record) -> Output:
    """Raise what the value says; anything else passes."""
    deed = DEEDS.get(record.value or b"")
    if deed is not None:
        raise deed()
    return Output(record.value)


def generator(record: Record) -> Iterator[Output]:
    """Raise behind an output."""
    yield Output(record.value)
    function(record)


def batch(records: list[Record]) -> list[Output]:
    return [function(record) for record in records]


async def coroutine(record: Record) -> Output:
    """Raise after the loop has had its turn."""
    await asyncio.sleep(0)
    return function(record)


async def coroutine_batch(records: list[Record]) -> list[Output]:
    await asyncio.sleep(0)
    return batch(records)


class Unready:
    """Leaves in its setup."""

    def setup(self) -> None:
        sys.exit(0)

    def __call__(self, record: Record) -> Output:
        """Never called."""
        return function(record)


class Unmade(Unready):
    """Leaves when it is made."""

    def __init__(self) -> None:
        sys.exit(0)


class Unclosed:
    """Leaves in its teardown."""

    def teardown(self) -> None:
        sys.exit(0)

    def __call__(self, record: Record) -> Output:
        """Pass it on."""
        return function(record)


@contextmanager
def unclosed() -> Iterator[Callable[[Record], Output]]:
    yield function
    sys.exit(0)


def at_once(record: Record) -> Output:
    """End the process without a word."""
    if record.value == b"exit-0":
        os._exit(0)
    return Output(record.value)
