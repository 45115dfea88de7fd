"""Ends the servers of a process that was killed.

Runs as a process of its own, outside the process group of its parent, and reads its standard
input: ``+PID`` and ``-PID`` for each server started and reaped. When the input ends, its parent is
gone, however it went (SIGKILL, a closed terminal): what is still on the list is killed, and the
folders named as arguments are removed. A signal at the death of a parent (Linux) would not do: it
comes already when the *thread* that started the server ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_STOP_TIMEOUT_S = 30.0


class ChildWatchdog:
    """The parent's end."""

    def __init__(self, *folders: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *folders],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """Take a reaped process off the list: its number may belong to another one now."""
        self._tell(f"-{pid}\n")

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(_STOP_TIMEOUT_S)

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode())


def watch(lines: Iterable[str], folders: Iterable[str]) -> None:
    """Keep the list until the input ends, then end what is on it."""
    pids: set[int] = set()
    for line in lines:
        (pids.add if line.startswith("+") else pids.discard)(int(line[1:]))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin, sys.argv[1:])
