"""A pipe or standard input: read once, never again."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from hapax.operations.files.lines import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.1


class ByteStream:
    """Reads a descriptor until its other end is closed; ``idle`` as in ``GrowingFile``."""

    def __init__(self, descriptor: int, idle: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._idle = idle

    def read(self) -> bytes | None:
        """Return further bytes, b"" at the end, None where ``idle`` says to stop."""
        wait_s = 0.0
        while not select.select([self._descriptor], [], [], wait_s)[0]:
            if not self._idle():
                return None
            wait_s = POLL_S
        return os.read(self._descriptor, CHUNK_BYTES)
