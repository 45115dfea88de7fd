"""What a process spent, and what a set of runs says."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class VoidRunError(Exception):
    """This run proves nothing: it failed, or what it wrote is not what it should have written."""


@dataclass(frozen=True, slots=True)
class Spent:
    """User and system CPU of a whole process life, and the most memory it held."""

    cpu_s: float
    rss_mb: float


class Child:
    """One process under measurement; its output goes to ``log``."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_line(self, start: str, timeout_s: float) -> str:
        """Wait until its output has a line that begins so; return the rest of that line."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s and self._process.poll() is None:
            for line in self._log.read_text("utf-8", "replace").splitlines():
                if line.startswith(start):
                    return line.removeprefix(start)
            time.sleep(0.02)
        raise VoidRunError(f"it never wrote the line {start!r}")

    def go_on(self) -> None:
        """Let it continue: it waits for a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> Spent:
        """Return what it spent; raises VoidRunError when it failed or had to be killed."""
        killer = threading.Timer(timeout_s, self._process.kill)
        killer.start()
        _, status, usage = os.wait4(self._process.pid, 0)
        killer.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode:
            words = self._log.read_text("utf-8", "replace").splitlines()[-5:]
            raise VoidRunError(f"exit code {self._process.returncode}:\n" + "\n".join(words))
        # ru_maxrss counts KiB on Linux.
        return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)

    def kill(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def server_cpu_s(pid: int) -> float:
    """Return user and system CPU of a running server so far.

    From its CPU clock (clock_getcpuclockid(3)), in ns: the times in /proc are cut to 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


@dataclass(frozen=True, slots=True)
class Summary:
    """Median of some runs, and how far they lie apart."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int) -> str:
        """Return the median, and the range where it is seen at so many digits."""
        median, least, most = (
            f"{value:,.{digits}f}" for value in (self.median, self.least, self.most)
        )
        return median if least == most else f"{median} ({least}-{most})"


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the least value that ``share`` of all do not exceed; ``ordered`` ascends."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def noise() -> str:
    """Say how busy the machine is besides: a figure without it means little."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at {time.strftime('%H:%M:%S')}"
