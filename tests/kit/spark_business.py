"""Business code of the tasks' tests: what happens to a record is said in its value."""

import asyncio
import os
import sys
import traceback
from typing import Any

from hapax import Output, Record

LARGE_BYTES = 400_000
"""More than the output topic takes, and less than the client refuses."""


def spell(record: Record) -> Any:
    """Write the value in capitals; ``boom``: raise, ``large``: write what brokers refuse."""
    value = record.value or b""
    if value.startswith(b"boom"):
        raise ValueError("boom")
    if value.startswith(b"large"):
        return Output(os.urandom(LARGE_BYTES))
    return Output(value.upper())


def spell_aloud(record: Record) -> Any:
    """Do the same, and print: each offset, and a traceback for every thousandth."""
    sys.stderr.write(f"read {record.offset}\n")
    if record.offset % 1_000 == 0:
        try:
            int("printed")
        except ValueError:
            traceback.print_exc()
    return spell(record)


async def spell_later(record: Record) -> Any:
    """Do the same after a while, the longer the earlier the record: none ends in its order."""
    await asyncio.sleep(0.01 * (10 - record.offset % 10))
    return spell(record)


def spell_all(records: list[Record]) -> list[Any]:
    """Do the same for a list; what raises fails alone."""
    return [_answer(record) for record in records]


def _answer(record: Record) -> Any:
    try:
        return spell(record)
    except ValueError as error:
        return error
