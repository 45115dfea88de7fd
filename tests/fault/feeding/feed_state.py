"""Numbers that two processes share through a file: what one asks for, and how far the other is."""

import json
import sys
from collections.abc import Mapping, Sequence
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
    """A process ``python -m module TASK`` that obeys its shared numbers, ``NAME.state``.

    ``start`` once, ``stop`` once; ``close`` ends it without what it would leave.
    """

    def __init__(
        self, module: str, name: str, folder: Path, *, more: int = 0, **task: object
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._cells = shared(folder / f"{name}.state", more, new=True)
        words = json.dumps(task | {"folder": str(folder)})
        super().__init__([sys.executable, "-m", module, words], folder / f"{name}.log")

    def start(
        self, words: Sequence[str] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Start it; return when it says that it is ready."""
        super().start(words, settings)
        ready = reaches(lambda: self._cells[READY] or not self.running, START_S)
        if not ready or not self._cells[READY]:
            self.close()
            raise RuntimeError(f"{self._words}: did not start: {self.text()[-WORDS_MAX:]}")
