"""One file that may grow while it is read, be renamed and replaced, or be truncated."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from hapax.operations.files.lines import CHUNK_BYTES
from hapax.operations.files.names import FileGapError, identity, successor
from hapax.operations.files.place import TAIL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hapax.operations.files.place import FileIdentity

POLL_S = 0.05
QUIET_S = 1.0
"""A renamed file is finished when nothing was added to it for so long: its writer may still have
it open for a moment."""


class GrowingFile:
    """Reads the file of an open descriptor from ``offset`` on.

    ``idle`` is called whenever nothing further is there, and returns whether to go on waiting.
    ``next``: what to read after it, once ``read`` has returned b""; None: it still has its name.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        offset: int,
        idle: Callable[[], bool],
        *,
        follow: bool,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._offset = offset
        self._idle = idle
        self._follow = follow
        self._tail = identity(descriptor, offset).tail
        self.next: Path | None = None

    def identity(self, offset: int) -> FileIdentity:
        """Return which file it is, read up to ``offset``."""
        return identity(self._descriptor, offset)

    def read(self) -> bytes | None:
        """Return further bytes, b"" at the end, None where ``idle`` says to stop.

        Raises FileGapError when the file became shorter, or other than what was read.
        """
        quiet_since_s: float | None = None
        while True:
            # Asked before the read: what was written until the rename is then in it.
            self.next = successor(self._path, self._descriptor)
            chunk = os.pread(self._descriptor, CHUNK_BYTES, self._offset)
            self._require_same()
            if chunk:
                self._offset += len(chunk)
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                return chunk
            if not self._follow:
                return b""
            now_s = time.monotonic()
            quiet_since_s = None if self.next is None else quiet_since_s or now_s
            if quiet_since_s is not None and now_s - quiet_since_s >= QUIET_S:
                return b""
            if not self._idle():
                return None
            time.sleep(POLL_S)

    def added_bytes(self) -> int:
        """Return how many bytes were added since it was read to its end."""
        return os.fstat(self._descriptor).st_size - self._offset

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def _require_same(self) -> None:
        size = os.fstat(self._descriptor).st_size
        before = len(self._tail)
        if size < self._offset:
            raise FileGapError(
                f"{self._path} was truncated from {self._offset:,} bytes to {size:,}"
            )
        if os.pread(self._descriptor, before, self._offset - before) != self._tail:
            raise FileGapError(f"{self._path} was overwritten while it was read")
