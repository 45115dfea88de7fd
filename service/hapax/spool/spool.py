"""An open spool: its folder locked, known and recovered."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.spool.disk import Folder
from hapax.spool.errors import SpoolDamagedError, SpoolMovedError
from hapax.spool.frames import FRAMES_AT
from hapax.spool.lock import FolderLock
from hapax.spool.log import FIRST, SpoolLog, failed
from hapax.spool.recovery import recovered
from hapax.spool.segment import LOG, Segment, file_name
from hapax.spool.spool_id import SPOOL_ID, SpoolId

if TYPE_CHECKING:
    from hapax.spool.disk import Disk

_NEW = f"{SPOOL_ID}.new"


class SpoolPlace(NamedTuple):
    """Where a spool is: its folder, the number that a copy does not have, and who owns it."""

    path: Path
    inode: int
    lock: FolderLock | None = None


def opened(folder: str | Path, app: str, *, segment_bytes: int, adopt: bool = False) -> OpenSpool:
    """Open a folder for this process alone, or make it.

    adopt  take a folder that was moved or restored; the marker is compared all the same
    Raises SpoolOwnedError, SpoolMovedError, SpoolDamagedError, SpoolFailedError.
    """
    path = Path(folder).absolute()
    try:
        _make(path)
        lock = FolderLock(path)
    except OSError as error:
        raise ConfigurationError([f"spool {path} cannot be used: {error.strerror}"]) from error
    try:
        place = SpoolPlace(path, path.stat().st_ino, lock)
        return OpenSpool(Folder(path), place, app, segment_bytes=segment_bytes, adopt=adopt)
    except OSError as error:
        lock.release()
        raise failed(error) from error
    except BaseException:
        lock.release()
        raise


class OpenSpool:
    """A folder that is known and recovered, until ``close``."""

    def __init__(
        self, disk: Disk, place: SpoolPlace, app: str, *, segment_bytes: int, adopt: bool = False
    ) -> None:
        """Raise as ``opened``, and OSError."""
        self.path = place.path
        self._disk = disk
        self._lock = place.lock
        self.id, fresh = self._identity(app, place.inode, adopt=adopt)
        self.log = SpoolLog(
            disk, self.id.uuid, uuid.uuid4().bytes, segment_bytes=segment_bytes, fresh=fresh
        )
        if fresh:
            self._store()

    def settle(self, cluster: str, topic: str) -> None:
        """Write down where the marker is. Raises SpoolFailedError."""
        self.id = msgspec.structs.replace(self.id, cluster=cluster, topic=topic)
        try:
            self._store()
        except OSError as error:
            raise failed(error) from error

    def close(self) -> None:
        """Let go of files and folder."""
        self.log.close()
        if self._lock is not None:
            self._lock.release()

    def _identity(self, app: str, inode: int, *, adopt: bool) -> tuple[SpoolId, bool]:
        """Return whose spool it is, and whether it is being made."""
        if SPOOL_ID not in self._disk.names():
            _clear(self._disk)
            return SpoolId(id=str(uuid.uuid4()), app=app, inode=inode), True
        file = self._disk.open(SPOOL_ID)
        found = SpoolId.decode(file.read(0, file.size()))
        file.close()
        if found.app != app:
            raise SpoolMovedError(
                [f"spool {self.path} is one of app {found.app}, not of {app}: give each its own"]
            )
        if found.inode != inode:
            if not adopt:
                problem = (
                    f"spool {self.path} was copied, moved or restored: publish from the folder"
                    " that it was made in, or, once no other publisher has this spool, open it"
                    " with adopt=True (--adopt), which still compares it with its marker in Kafka"
                )
                raise SpoolMovedError([problem])
            self.id = msgspec.structs.replace(found, inode=inode)
            self._store()
            return self.id, False
        return found, False

    def _store(self) -> None:
        """Replace spool.id, whole or not at all; durable when this returns. Raises OSError."""
        file = self._disk.create(_NEW)
        try:
            file.write(0, self.id.encode())
            file.sync()
        finally:
            file.close()
        self._disk.rename(_NEW, SPOOL_ID)
        self._disk.sync()


def _make(path: Path) -> None:
    """Make the folder, and its name durable."""
    if path.is_dir():
        return
    path.mkdir(parents=True)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear(disk: Disk) -> None:
    """Remove what a process left that died while it made the spool: nothing was accepted then."""
    logs = [name for name in disk.names() if name.endswith(LOG)]
    if not logs:
        return
    if logs == [file_name(FIRST)]:
        segment = Segment.opened(disk, logs[0])
        spool = segment.head.spool
        segment.close()
        (found,) = recovered(disk, spool)
        found.close()
        if found.next == FIRST:
            disk.unlink(logs[0])
            return
    raise SpoolDamagedError(SPOOL_ID, FRAMES_AT, "it is missing, although there are records")
