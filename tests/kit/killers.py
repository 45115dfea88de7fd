"""Business code that kills or hangs its process where a record says so, and a supervisor."""

import asyncio
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable

from hapax import Output, Record
from hapax.kafka.consume.source import KafkaSource
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest


def _wait() -> None:
    while True:
        time.sleep(0.05)


def _spin() -> None:
    while True:
        pass


def _fill() -> None:
    reserved = []
    while True:
        # Promised and never touched: no machine suffers.
        reserved.append(mmap.mmap(-1, 1 << 32, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _away() -> None:
    """Take half of the limit that tests set, and fail as a client does in an outage."""
    time.sleep(0.4)
    raise ConnectionError("away")


def _raise() -> None:
    raise ValueError("raise")


async def enriched(record: Record) -> Output:
    if record.value == b"slow":
        sys.stderr.write("asleep\n")
        await asyncio.sleep(3600)
    value = record.value or b""
    return Output(value * (1 if len(value) > 100 else 10_000))


class LeavingSlowly:
    """The source of its process never returns from ``close``."""

    def __init__(self) -> None:
        KafkaSource.close = lambda _self: time.sleep(3600)  # type: ignore[assignment,method-assign]

    def __call__(self, record: Record) -> Output:
        return Output(record.value)


class LeavingSlowlyToo(LeavingSlowly):
    async def __call__(self, record: Record) -> Output:  # type: ignore[override]
        return Output(record.value)


DEEDS: dict[bytes, Callable[[], object]] = {
    b"segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    b"killed": lambda: os.kill(os.getpid(), signal.SIGKILL),  # as for want of memory
    b"exit": lambda: os._exit(3),
    b"memory": _fill,
    b"raise": _raise,
    b"away": _away,
    b"hang": _wait,
    b"spin": _spin,
}


def obey(record: Record) -> Output:
    """Do what the value says; anything else passes."""
    DEEDS.get(record.value or b"", lambda: None)()
    return Output(record.value)


# -- The same in every form, and what each fault of an attempt comes to --------------------


def listed(records: list[Record]) -> list[Output]:
    return [obey(record) for record in records]


async def coroutine(record: Record) -> Output:
    if record.value == b"hang":
        await asyncio.sleep(3600)
    return await asyncio.to_thread(obey, record)


async def coroutine_listed(records: list[Record]) -> list[Output]:
    return [await coroutine(record) for record in records]


FORMS = {
    "`def`": {},
    "in threads": {"CALL__CONCURRENCY": "4", "RETRY__BACKOFF": "1s"},
    "of a list": {"TRANSFORM": "tests.kit.killers:listed"},
    "`async def`": {"TRANSFORM": "tests.kit.killers:coroutine", "CALL__CONCURRENCY": "4"},
    "`async`, of a list": {"TRANSFORM": "tests.kit.killers:coroutine_listed"},
}
"""Columns of the table in docs/transforms.md."""
LATER, KILLED = "a later try", "the process is killed from outside"
_ALONE = "then, called alone, a dead letter"
_EIGHT, _CUT = f"exit code 8, {_ALONE}", "a dead letter: `timeout`"
FAULTS = {
    "raises within the limit": (b"away", [LATER] * 5),
    "outlasts the limit": (b"hang", [_EIGHT] * 3 + [_CUT] * 2),
    "kills its process": (b"segfault", [f"the process dies, {_ALONE}"] * 5),
    KILLED: (b"away", [LATER] * 5),
}
"""What business code does in an attempt: the value that asks for it, and the outcome by form."""


def table() -> str:
    """Return the table of docs/transforms.md."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for at, form in enumerate(FORMS):
        outcomes = [outcomes[at] for _value, outcomes in FAULTS.values()]
        alike.setdefault(tuple(outcomes), []).append(form)
    columns = [["in an attempt it", *FAULTS], *([", ".join(alike[key]), *key] for key in alike)]
    lines = ["|".join(("", *row, "")) for row in zip(*columns, strict=True)]
    return "\n".join([lines[0], "|---" * (len(alike) + 1) + "|", *lines[1:]]) + "\n"


def supervise(
    route: PipelineUnderTest,
    *,
    starts_max: int,
    names: str = "w-0",
    within_s: float = 60.0,
    **settings: str | None,
) -> tuple[list[int], list[WorkerProcess]]:
    """Start a worker again at once whenever it dies; return the exit codes, the last one is 0.

    ``names``: of the instances, ``{}`` is the number of the start.
    """
    codes: list[int] = []
    workers: list[WorkerProcess] = []
    while len(codes) < starts_max and (not codes or codes[-1]):
        worker = route.worker(names.format(len(codes)), STOP_AFTER__AT_END="true", **settings)
        workers.append(worker)
        codes.append(worker.process.wait(within_s))
    return codes, workers
