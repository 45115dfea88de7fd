"""Numbers that two processes share through a file: what one asks for, and how far the other is."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.kit.managed_process import ManagedProcess
from tests.kit.waiting import WORDS_MAX, reaches

START_S = 60.0
RATE, STOP, READY, WRITTEN, BOUND, SAVED = range(6)
CELLS = 8
"""Places of the shared numbers; what one kind of process needs beyond them comes behind."""


def shared(
    path: Path, more: int = 0, *, new: bool = False
) -> np.memmap[tuple[int], np.dtype[np.int64]]:
    """Return ``CELLS + more`` numbers in a file; each is read and written as a whole."""
    return np.memmap(path, np.int64, "w+" if new else "r+", shape=(CELLS + more,))


class Child(ManagedProcess):
    """A process that obeys its shared numbers. ``argv`` follows ``python -m module``."""

    def __init__(self, module: str, argv: Sequence[str], log: Path) -> None:
        super().__init__([sys.executable, "-m", module, *argv], log)

    def begin(self, cells: np.memmap[tuple[int], np.dtype[np.int64]]) -> None:
        """Start it; return when it says that it is ready."""
        self.start()
        if not reaches(lambda: cells[READY] or not self.running, START_S) or not cells[READY]:
            self.close()
            raise RuntimeError(f"{self._words}: did not start: {self.text()[-WORDS_MAX:]}")
