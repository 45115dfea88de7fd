"""The calls of a file system that a spool is made of.

A protocol, so that a model of power losses can take the place of the operating system
(tests/simulation/spool). Names are those of files of one folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class SpoolFile(Protocol):
    """One open file."""

    def size(self) -> int:
        """Return its length in bytes."""

    def read(self, at: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``at``; fewer at the end of the file."""

    def write(self, at: int, data: bytes) -> None:
        """Write all of it. Raises OSError; then any part of it may be there."""

    def truncate(self, size: int) -> None:
        """Cut the file."""

    def sync(self) -> None:
        """Make durable what was written, and the length. Raises OSError, and then nothing is."""

    def close(self) -> None:
        """Let go of the file."""


class Disk(Protocol):
    """A folder."""

    def names(self) -> list[str]:
        """Return the names of its files, sorted."""

    def open(self, name: str) -> SpoolFile:
        """Open a file that is there."""

    def create(self, name: str) -> SpoolFile:
        """Open an empty file, new or emptied."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of the file that had it."""

    def unlink(self, name: str) -> None:
        """Remove a file."""

    def sync(self) -> None:
        """Make names durable: those given, changed and removed."""


class FolderFile:
    """A file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._handle = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def size(self) -> int:
        """As the protocol."""
        return os.fstat(self._handle).st_size

    def read(self, at: int, count: int) -> bytes:
        """As the protocol."""
        return os.pread(self._handle, count, at)

    def write(self, at: int, data: bytes) -> None:
        """As the protocol."""
        done = os.pwrite(self._handle, data, at)
        while done < len(data):  # a disk that fills takes a part, and refuses the next call
            done += os.pwrite(self._handle, memoryview(data)[done:], at + done)

    def truncate(self, size: int) -> None:
        """As the protocol."""
        os.ftruncate(self._handle, size)

    def sync(self) -> None:
        """As the protocol; fdatasync writes the length whenever it has changed."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._handle)
        else:  # macOS
            os.fsync(self._handle)

    def close(self) -> None:
        """As the protocol."""
        os.close(self._handle)


class Folder:
    """A folder of the operating system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """As the protocol."""
        return sorted(each.name for each in self.path.iterdir() if each.is_file())

    def open(self, name: str) -> FolderFile:
        """As the protocol."""
        return FolderFile(self.path / name, os.O_RDWR)

    def create(self, name: str) -> FolderFile:
        """As the protocol."""
        return FolderFile(self.path / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def rename(self, old: str, new: str) -> None:
        """As the protocol."""
        (self.path / old).replace(self.path / new)

    def unlink(self, name: str) -> None:
        """As the protocol."""
        (self.path / name).unlink()

    def sync(self) -> None:
        """As the protocol."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
