"""One owner of a folder, for as long as its process lives."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.spool.errors import SpoolOwnedError

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "lock"


class FolderLock:
    """Held from the moment it is made. The system lets go of it when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Raise SpoolOwnedError with the pid of the other."""
        self._handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with suppress(OSError):
                owner = os.pread(self._handle, 32, 0).decode("ascii", "replace").strip()
            os.close(self._handle)
            raise SpoolOwnedError(
                f"spool {folder} is open in another process (pid {owner or 'unknown'}): one"
                " publisher has one folder; stop that one, or give this one its own"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the folder."""
        os.close(self._handle)
