"""A folder with one owner, and the few calls of a file system that a spool is made of.

Names are those of files in the folder. A model of power losses takes the place of these calls
(tests/simulation/spool). The errors say what to do.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from hapax.core.errors import ConfigurationError, ExitCode, HapaxError, StopError

LOCK = "lock"
_NETWORK = frozenset({"afs", "cifs", "fuse.sshfs", "nfs", "nfs4", "smb3", "smbfs"})
_MOUNTS = Path("/proc/self/mountinfo")
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has none


class SpoolFullError(HapaxError):
    """Nothing of this call was accepted: there is no room, on the disk or within its bound."""


class SpoolFailedError(StopError):
    """A write or a sync failed; the next open finds out what was accepted."""


class SpoolDamagedError(StopError):
    """What was acknowledged is not what was written."""

    exit_code: ClassVar[ExitCode] = ExitCode.POSITION_LOST

    def __init__(self, file: str, what: str) -> None:
        super().__init__(
            f"the spool is damaged: {file}: {what}. Nothing from there on is published: bring the"
            " file back, or see docs/publish.md, section Stops"
        )
        self.file = file

    def __reduce__(self) -> tuple[type[StopError], tuple[str]]:
        """Travel between processes with the sentence alone."""
        return StopError, (str(self),)


class SpoolOwnedError(StopError):
    """Another process has the folder."""

    exit_code: ClassVar[ExitCode] = ExitCode.FENCED


class SpoolMovedError(ConfigurationError):
    """The folder is not the one that the spool was made in, or is one of another app."""


class SpoolDisagreesError(StopError):
    """Marker and folder contradict each other: publishing could lose or double records."""

    exit_code: ClassVar[ExitCode] = ExitCode.POSITION_LOST


class Folder:
    """A folder of the operating system, locked from the moment this is made until ``release``.

    The system lets go of the lock when the process ends.
    """

    def __init__(self, path: str | Path) -> None:
        """Raise SpoolOwnedError with the pid of the other owner, ConfigurationError."""
        self.path = Path(path).absolute()
        if not hasattr(os, "pwrite"):
            raise ConfigurationError(f"spool {self.path}: a spool needs Linux or macOS")
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True)
                _sync_folder(self.path.parent)
            status = self.path.stat()
            _refuse_network(self.path, status.st_dev)
            self._lock: int | None = _locked(self.path)
        except OSError as error:
            problem = f"spool {self.path} cannot be used: {error.strerror}"
            raise ConfigurationError(problem) from error
        self.inode = status.st_ino

    def connect(self, name: str) -> sqlite3.Connection:
        """Open a database, new or there, that any thread may use, one at a time."""
        path = self.path / name
        # SQLite gives its other files the permissions of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    def names(self) -> set[str]:
        return {each.name for each in self.path.iterdir()}

    def read(self, name: str) -> bytes:
        """Return what a file holds; nothing when it is missing."""
        with suppress(FileNotFoundError):
            return (self.path / name).read_bytes()
        return b""

    def write(self, name: str, at: int, data: bytes) -> None:
        """Write into a file, new or there; durable when this returns. Raises OSError."""
        handle = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            done = os.pwrite(handle, data, at)
            while done < len(data):
                done += os.pwrite(handle, memoryview(data)[done:], at + done)
            _fdatasync(handle)
        finally:
            os.close(handle)

    def sync(self) -> None:
        _sync_folder(self.path)

    def size(self, name: str) -> int:
        """Return the length of a file; 0 when it is missing."""
        with suppress(FileNotFoundError):
            return (self.path / name).stat().st_size
        return 0

    def free_bytes(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def keep(self, name: str, other: str) -> None:
        """Let a file be there under another name, too, whatever becomes of the first."""
        with suppress(FileExistsError, FileNotFoundError):
            (self.path / other).hardlink_to(self.path / name)

    def release(self) -> None:
        """Let another have it; a second call does nothing, for the number may be another file's."""
        handle, self._lock = self._lock, None
        if handle is not None:
            os.close(handle)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_network(path: Path, device: int) -> None:
    """Raise ConfigurationError for a file system whose locks and syncs are those of a network."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split()[2] == number and kind.split()[0] in _NETWORK:
                raise ConfigurationError(
                    f"spool {path} is on a network file system ({kind.split()[0]}), whose locks"
                    " and syncs cannot be relied upon: give it a folder on a disk of the machine"
                )


def _locked(path: Path) -> int:
    import fcntl  # noqa: PLC0415 - Windows has none, and imports this module

    handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise SpoolOwnedError(
            f"spool {path} is open in another process (pid {owner or 'unknown'}): one publisher"
            " has one folder; stop that one, or give this one its own"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
