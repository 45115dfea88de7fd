"""Business code that kills or hangs its process where a record says so, and a supervisor."""

import mmap
import os
import signal
import time
from collections.abc import Callable

from hapax import Output, Record
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
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        reserved.append(mmap.mmap(-1, 1 << 32, flags=flags))


def _raise() -> None:
    raise ValueError("raise")


DEEDS: dict[bytes, Callable[[], object]] = {
    b"segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    b"killed": lambda: os.kill(os.getpid(), signal.SIGKILL),  # as for want of memory
    b"exit": lambda: os._exit(3),
    b"memory": _fill,
    b"raise": _raise,
    b"hang": _wait,
    b"spin": _spin,
}


def obey(record: Record) -> Output:
    """Do what the value says; anything else passes."""
    DEEDS.get(record.value or b"", lambda: None)()
    return Output(record.value)


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
