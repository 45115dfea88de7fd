"""A disk that can lose its power: what was not synced is dropped, reordered, torn.

SQLite runs on it by a VFS of apsw. Each write is a change that waits. A sync makes those of its
file durable, one of the folder those of names. A power loss keeps any part of what waits: of a
write any of its sectors, of names any. A sector is written whole or not at all. A sync that fails
keeps any part as well, and the system then shows bytes that are not on the disk and will not be
written (as Linux does).
"""

import errno
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import apsw

SECTOR, FILE_BYTES_MAX = 512, 1 << 26
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


class Inode:
    """A file: as it is shown, as it is on the disk, and what waits between the two."""

    def __init__(self) -> None:
        self.shown = bytearray()
        self.durable = bytearray()
        self.waiting: list[tuple[int, bytes | None]] = []  # place and bytes; None: cut there

    def write(self, at: int, data: bytes) -> None:
        put(self.shown, at, data)
        self.waiting.append((at, data))

    def keep_some(self, chance: Random, share: float) -> None:
        """Make any part of what waits durable."""
        for at, data in self.waiting:
            if data is None:
                if chance.random() < share:
                    del self.durable[at:]
                continue
            if share > 1:
                put(self.durable, at, data)
                continue
            end = at + len(data)
            for sector in range(at // SECTOR, (end - 1) // SECTOR + 1):
                here, until = max(at, sector * SECTOR), min(end, (sector + 1) * SECTOR)
                if chance.random() < share:
                    put(self.durable, here, data[here - at : until - at])
            if chance.random() < share:  # the length alone, without what was written
                self.durable.extend(bytes(max(0, end - len(self.durable))))
        self.waiting.clear()


def put(content: bytearray, at: int, data: bytes) -> None:
    """Write into a file that may be shorter."""
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


class ModelDisk:
    """As hapax.spool.folder.Folder, with faults that a schedule chooses."""

    path = Path("spool")
    inode = 1

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.shown: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self._changes: list[tuple[str, Inode | None]] = []
        self.dead = False
        """Whether the process that uses it has ended: nothing that it still does has an effect."""
        self.fuse = -1
        """Calls until the power is lost; below 0: never."""
        self.full = 0.0
        self.failing = 0.0

    # -- what the spool uses ----------------------------------------------------------------

    def connect(self, name: str) -> "Connection":
        VFS.disks[str(id(self))] = self
        return Connection(f"{id(self)}/{name}")

    def names(self) -> set[str]:
        return set(self.shown)

    def read(self, name: str) -> bytes:
        return bytes(self.shown[name].shown) if name in self.shown else b""

    def write(self, name: str, at: int, data: bytes) -> None:
        inode = self.inode_of(name)
        self.step()
        inode.write(at, data)
        self.step()
        if self.sync_fails(inode):
            raise OSError(errno.EIO, "the disk has an error")

    def sync(self) -> None:
        self.step()
        self._keep_names(1.1)

    def size(self, name: str) -> int:
        return len(self.read(name))

    def free_bytes(self) -> int:
        return 1 << 40

    def keep(self, name: str, other: str) -> None:
        return

    def release(self) -> None:
        return

    # -- faults -----------------------------------------------------------------------------

    def step(self) -> None:
        """Count a call; lose power when its time has come."""
        self.fuse -= 1
        self.dead = self.dead or self.fuse == 0
        if self.dead:
            raise OSError(errno.EIO, "the process has ended")

    def sync_fails(self, inode: Inode) -> bool:
        """Make a file durable, unless the disk fails."""
        failing = self.chance.random() < self.failing
        inode.keep_some(self.chance, 0.5 if failing else 1.1)
        return failing

    def inode_of(self, name: str) -> Inode:
        if name not in self.shown:
            self.shown[name] = Inode()
            self._changes.append((name, self.shown[name]))
        return self.shown[name]

    def unlink(self, name: str) -> None:
        del self.shown[name]
        self._changes.append((name, None))

    def _keep_names(self, share: float) -> None:
        for name, inode in self._changes:
            if self.chance.random() >= share:
                continue
            if inode is None:
                self.durable.pop(name, None)
            else:
                self.durable[name] = inode
        self._changes.clear()

    def after_loss(self) -> "ModelDisk":
        """Return the disk as it is when the power is back."""
        self.dead = True
        share = self.chance.choice([0.0, 0.1, 0.5, 0.9, 1.1])
        self._keep_names(share)
        disk = ModelDisk(self.chance)
        for name, inode in self.durable.items():
            inode.keep_some(self.chance, share)
            inode.shown = bytearray(inode.durable)
            disk.shown[name] = disk.durable[name] = inode
        return disk

    def after_kill(self) -> "ModelDisk":
        """Return the disk as the next process finds it when only the process has ended."""
        self.dead = True
        disk = ModelDisk(self.chance)
        disk.shown, disk.durable, disk._changes = self.shown, self.durable, self._changes
        return disk

    def flip(self) -> str:
        """Flip a bit somewhere; return where."""
        name = self.chance.choice(sorted(self.shown))
        inode = self.shown[name]
        if not inode.shown:
            return ""
        at, bit = self.chance.randrange(len(inode.shown)), self.chance.randrange(8)
        for content in (inode.shown, inode.durable):
            if at < len(content):
                content[at] ^= 1 << bit
        return f"{name} byte {at} bit {bit}"


class ModelFile:
    """An open file of SQLite."""

    def __init__(self, disk: ModelDisk, inode: Inode, *, names: bool = False) -> None:
        self._disk = disk
        self._inode = inode
        self._names = names

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._inode.shown[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._step()
        if offset > FILE_BYTES_MAX:  # of a flipped number of a page
            raise _error(apsw.SQLITE_FULL, apsw.FullError)
        grows = offset + len(data) > len(self._inode.shown)
        if grows and self._disk.chance.random() < self._disk.full:
            self._inode.write(offset, data[: self._disk.chance.randrange(len(data) + 1)])
            raise _error(apsw.SQLITE_FULL, apsw.FullError)
        self._inode.write(offset, data)

    def xTruncate(self, size: int) -> None:
        self._step()
        del self._inode.shown[size:]
        self._inode.waiting.append((size, None))

    def xSync(self, _flags: int) -> None:
        self._step()
        if self._disk.sync_fails(self._inode):
            raise _error(apsw.SQLITE_IOERR_FSYNC)
        if self._names:  # as the VFS of Unix, for a log or a journal that it has opened
            self._names = False
            self._step()
            self._disk._keep_names(1.1)

    def xFileSize(self) -> int:
        return len(self._inode.shown)

    def xFileControl(self, _operation: int, _pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # sectors are whole, and others untouched

    def xLock(self, _level: int) -> None:
        return

    def xUnlock(self, _level: int) -> None:
        return

    def xCheckReservedLock(self) -> bool:
        return False

    def xClose(self) -> None:
        return

    def _step(self) -> None:
        try:
            self._disk.step()
        except OSError:
            raise _error(apsw.SQLITE_IOERR_WRITE) from None


class ModelVfs(apsw.VFS):
    """Opens files of disks that are still played on."""

    def __init__(self) -> None:
        super().__init__("model", base="")
        self.disks: weakref.WeakValueDictionary[str, ModelDisk] = weakref.WeakValueDictionary()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:
        assert name is not None, "of a spool nothing is temporary"
        flags[1] = flags[0]
        disk, file = self._found(name)
        return ModelFile(disk, disk.inode_of(file), names=bool(flags[0] & _JOURNALS))

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001 - as apsw calls it
        disk, file = self._found(filename)
        if disk.dead:
            raise _error(apsw.SQLITE_IOERR_DELETE)
        if file not in disk.shown:
            raise _error(apsw.SQLITE_IOERR_DELETE_NOENT)
        disk.unlink(file)
        if syncdir:
            disk._keep_names(1.1)

    def xAccess(self, pathname: str, _flags: int) -> bool:
        disk, file = self._found(pathname)
        return file in disk.shown

    def _found(self, path: str | apsw.URIFilename) -> tuple[ModelDisk, str]:
        disk, _, file = (path if isinstance(path, str) else path.filename()).partition("/")
        if disk not in self.disks:
            raise _error(apsw.SQLITE_IOERR_ACCESS)
        return self.disks[disk], file

    def xFullPathname(self, name: str) -> str:
        return name


def _error(code: int, kind: type[apsw.Error] = apsw.IOError) -> Any:
    error: Any = kind("the disk has an error")
    error.extendedresult = code
    return error


class Connection:
    """As sqlite3.Connection, as far as a spool uses it."""

    def __init__(self, name: str) -> None:
        self._connection = self._translated(apsw.Connection, name, vfs="model")

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def execute(self, query: str, values: Sequence[Any] = ()) -> "Rows":
        return Rows(self._translated(lambda: list(self._connection.execute(query, values))))

    def executemany(self, query: str, rows: Sequence[Any]) -> None:
        self._translated(lambda: list(self._connection.executemany(query, rows)))

    def close(self) -> None:
        self._translated(self._connection.close)

    def _translated(self, call: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except apsw.Error as error:
            told: Any = sqlite3.OperationalError(str(error))
            told.sqlite_errorcode = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
            raise told from None
        except UnicodeDecodeError as error:
            raise sqlite3.OperationalError(str(error)) from None


class Rows(list[Any]):
    """What a query has found."""

    def fetchall(self) -> list[Any]:
        return self

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__()


VFS = ModelVfs()
