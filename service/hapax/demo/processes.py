"""The processes of one session, as Linux lists them under /proc.

A driver of Spark starts a JVM, which starts Python's own pool, which forks the workers. When a
parent dies its children get another one, but all stay in the session that the driver began.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

PROC = Path("/proc")
_POOL = b"pyspark.daemon"
_ENDED = frozenset("ZXx")


class LiveProcess(NamedTuple):
    """One process that lives. ``command``: its words, with a NUL after each."""

    pid: int
    parent: int
    session: int
    state: str
    command: bytes = b""


def of_session(session: int, proc: Path = PROC) -> list[LiveProcess]:
    """Return the living processes of a session, parents before the children they forked."""
    found: list[LiveProcess] = []
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                process = parse(int(folder.name), (folder / "stat").read_bytes())
                if process.session == session and process.state not in _ENDED:
                    found.append(process._replace(command=(folder / "cmdline").read_bytes()))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
    return sorted(found)


def parse(pid: int, stat: bytes) -> LiveProcess:
    """Read a line of /proc/PID/stat; the name in it may hold blanks and brackets (proc(5))."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    return LiveProcess(pid, int(fields[1]), int(fields[3]), fields[0].decode())


def python_workers(processes: Iterable[LiveProcess]) -> list[int]:
    """Return the numbers of those that run tasks: the pool has forked them."""
    pool = {process.pid: process for process in processes if _POOL in process.command}
    return [process.pid for process in pool.values() if process.parent in pool]


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process still existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
