"""A place inside business code where a test can keep one process. Standard library only."""

import os
import time
from pathlib import Path

from tests.fault import rules

FOLDER = "FAULT_GATES"
LONGEST_S = 40.0


class Gate:
    """The gate of one instance: ``close``, wait until somebody has ``reached`` it, ``open``."""

    def __init__(self, folder: Path, instance: str) -> None:
        self._closed = folder / f"{instance}.closed"
        self._reached = folder / f"{instance}.reached"

    def close(self) -> None:
        self._reached.unlink(missing_ok=True)
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink(missing_ok=True)

    @property
    def reached(self) -> bool:
        return self._reached.exists()

    def pass_through(self, value: bytes) -> None:
        """Wait for as long as it is closed. A record of which nothing comes goes by."""
        if not self._closed.exists():
            return
        content = rules.decode(value)
        if content is None or not rules.ways(content.number) or rules.is_poison(content.number):
            return
        self._reached.touch()
        deadline_s = time.monotonic() + LONGEST_S
        while self._closed.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)


def pass_through(value: bytes) -> None:
    folder = os.environ.get(FOLDER)
    if folder:
        Gate(Path(folder), os.environ.get("HAPAX_INSTANCE", "0")).pass_through(value)
