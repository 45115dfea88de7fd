"""Business code that logs and counts: each line says which record it was written for."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator

from hapax import Record, context

CALLS = context.counter("noted_calls", "Calls.", ("form",))
SECONDS = context.histogram("noted_seconds", buckets=(0.1, 1))
context.log.warning("imported")


def note(record: Record, form: str) -> bytes:
    context.log.warning(form, mine=str(record.coordinates))
    CALLS.labels(form=form).inc()
    SECONDS.observe(0.5)
    if record.value == b"segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    return record.value or b""


def function(record: Record) -> bytes:
    time.sleep(0.002)
    return note(record, "function")


def generator(record: Record) -> Iterator[bytes]:
    yield note(record, "generator")
    yield note(record, "generator")


async def coroutine(record: Record) -> bytes:
    await asyncio.sleep(0.002)
    return await asyncio.to_thread(note, record, "coroutine")


def alone(records: list[Record]) -> list[bytes]:
    return [note(record, "alone") for record in records]


def listed(records: list[Record]) -> list[Iterator[bytes]]:
    context.log.info("listed")
    return [generator(record) for record in records]
