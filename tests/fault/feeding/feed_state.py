"""Numbers that two processes share through a file: what one asks for, and how far the other is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
RATE, STOP, READY, WRITTEN, BOUND = range(5)
CELLS = 8
"""Places of the shared numbers; what one kind of process needs beyond them comes behind."""


def shared(
    path: Path, more: int = 0, *, new: bool = False
) -> np.memmap[tuple[int], np.dtype[np.int64]]:
    """Return ``CELLS + more`` numbers in a file; each is read and written as a whole."""
    return np.memmap(path, np.int64, "w+" if new else "r+", shape=(CELLS + more,))


class Child:
    """A process that obeys its shared numbers. ``argv`` follows ``python -m module``."""

    def __init__(self, module: str, argv: Sequence[str], log: Path) -> None:
        self._command = [sys.executable, "-m", module, *argv]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, cells: np.memmap[tuple[int], np.dtype[np.int64]], timeout_s: float = 60.0
    ) -> None:
        """Start it; return when it says that it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT
            )
        deadline_s = time.monotonic() + timeout_s
        while not cells[READY]:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"{self._command}: did not start: {self.text()}")
            time.sleep(0.02)

    def wait(self, timeout_s: float) -> None:
        """Wait for its end; raise RuntimeError with its last words when it was not a good one."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        if code != 0:
            raise RuntimeError(f"{self._command} ended with {code}: {self.text()}")

    def kill(self) -> None:
        """End it at once, if it still lives."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def text(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-2000:]
