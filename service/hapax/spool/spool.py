"""The records of a spool in SQLite, and up to where they were acknowledged.

``spool.db`` is in WAL mode with synchronous=FULL: a COMMIT that returns is durable. After a crash
SQLite drops what follows the first unsound frame of its log, without a word: a transaction that
was under way, and as well one that was acknowledged and has a flipped bit. The file
``acknowledged`` distinguishes the two: the sequence up to which records are durable is written and
synced there after each COMMIT and before the callers' answer. docs/decisions/spool.md.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import struct
import threading
import uuid
import weakref
import zlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError, StopError
from hapax.spool.folder import SpoolDamagedError, SpoolFailedError, SpoolFullError, SpoolMovedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hapax.spool.folder import Folder

FIRST = 1
"""The first sequence of a spool."""
DATABASE, ACKNOWLEDGED = "spool.db", "acknowledged"
WAL, DAMAGED_WAL = f"{DATABASE}-wal", f"{DATABASE}-wal.damaged"
SECTOR = 512
ROW_RECORDS_MAX, ROW_BYTES_MAX = 500, 1 << 17
"""A row holds so much, or one record."""
_WAL_BYTES_MAX, _WAL_PARTS = 8 << 20, 8
"""The log takes so much of the bound, or this part of it, and more for a larger transaction."""
_PAGE_BYTES = 4096
_ROW_BYTES, _PAGES_AROUND = 64, 4
"""What is written around the content: of a row; pages of a transaction."""
_SPARE_BYTES = 1 << 18
"""Left free on the disk, so that what is published can still be deleted."""
_SHRINK_USED_BYTES, _SHRINK_FREE_BYTES = 8 << 20, 64 << 20
"""The file is written once more, small, while so little of it is in use; when all is published and
so much of it is free, or before it would be full."""
_READ_ROWS, _DELETE_ROWS = 200, 500
"""At a time; a call that accepts records waits for so many."""

_META = "CREATE TABLE meta (id INTEGER PRIMARY KEY, checksum INTEGER, content BLOB)"
_RECORDS = (
    "CREATE TABLE records (first INTEGER PRIMARY KEY, count INTEGER, nonce BLOB, checksum INTEGER,"
    " content BLOB)"
)
_PRAGMAS = (
    "locking_mode=EXCLUSIVE",  # one connection, no shared memory; before the first access
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=0",  # it would hide errors; checkpoint() is called after the answer
    "secure_delete=OFF",
    "temp_store=MEMORY",
    "cell_size_check=ON",
)
_SLOT = struct.Struct("<8sQQI")
_SLOT_MAGIC = b"hapaxend"
_FAILURES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
    }
)


class SpoolMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spool it is, what it was published to, and where its source continues.

    id        UUID, permanent
    app       whose transactional id and marker group it has
    inode     of the folder: a copy has another one. Not the device: its number changes when a
              volume is attached again, and where it is all that differs, the marker decides
    cluster   Kafka's id of the cluster, and the topic that the marker is kept for; None until the
              marker exists: from then on a missing marker is no new spool
    position  what the caller gave with the newest records that had any
    """

    id: str
    app: str
    inode: int
    cluster: str | None = None
    topic: str | None = None
    position: bytes = b""


class SpoolRow(NamedTuple):
    """Some records. ``content``: their bytes, one record after the other."""

    first: int
    records: int
    content: bytes


class SpoolStore:
    """An open spool. One thread appends, another one reads and deletes.

    meta   as of the newest append
    first  sequence of the oldest record that is still here, or ``next``
    next   sequence of the next record: all below are acknowledged
    """

    def __init__(
        self, folder: Folder, app: str, *, disk_max_bytes: int, adopt: bool = False
    ) -> None:
        """Recover what a folder holds, or make a spool of it; let go of the folder on an error.

        adopt  take a folder that was moved or restored; the marker is compared all the same
        Raises SpoolMovedError, SpoolDamagedError, SpoolFailedError, SpoolFullError,
        ConfigurationError.
        """
        self.path = folder.path
        self._folder = folder
        self._disk_max_bytes = disk_max_bytes
        self._wal_max_bytes = min(_WAL_BYTES_MAX, disk_max_bytes // _WAL_PARTS)
        self._mutex = threading.Lock()
        self._nonce = uuid.uuid4().bytes
        self.failed: HapaxError | None = None
        self.forked = False
        self._generation = 0
        self._log_bytes = 0
        self._delete_below = 0
        try:
            self._refuse_earlier_format()
            with self._translated():
                self._write_log_again()
                self._connection = folder.connect(DATABASE)
            _open_spools.add(self)
        except BaseException:
            folder.release()
            raise
        try:
            with self._translated():
                self._open(app, adopt=adopt)
        except BaseException as error:
            # SQLite removes its log when it closes: what is unsound in it is kept.
            if isinstance(error, SpoolDamagedError):
                self._folder.keep(WAL, DAMAGED_WAL)
            self.close()
            raise

    # -- opening --------------------------------------------------------------------------

    def _refuse_earlier_format(self) -> None:
        names = self._folder.names()
        if "spool.id" in names or any(name.endswith(".log") for name in names):
            raise ConfigurationError(
                f"spool {self.path} has the format of a build before 0.1.0, which is not read any"
                " more: publish what it holds with that build, then give this one a new folder"
            )

    def _write_log_again(self) -> None:
        """Make SQLite's log durable as it is shown, before SQLite relies on it.

        After a sync that failed Linux shows bytes that are not on the disk, and the next sync does
        not write them and succeeds. A power loss in a checkpoint from such a log leaves a file
        with some of its pages, and nothing to complete it from.
        """
        if log := self._folder.read(WAL):
            self._folder.write(WAL, 0, log)

    def _open(self, app: str, *, adopt: bool) -> None:
        acknowledged = self._acknowledged()
        for pragma in (*_PRAGMAS, f"journal_size_limit={self._wal_max_bytes}"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        schema = self._all("SELECT sql FROM sqlite_master ORDER BY name")
        if acknowledged is None and not schema:
            self._create(app)
        elif schema != [(_META,), (_RECORDS,)]:
            raise SpoolDamagedError(DATABASE, "its tables are not those of a spool")
        self.meta = self._read_meta()
        self.first, self.next = self._scan()
        if acknowledged is None and self.next > FIRST:
            raise SpoolDamagedError(ACKNOWLEDGED, "it is missing, or not what was written")
        if acknowledged is not None and self.next < acknowledged:
            lost = f"records {self.next} to {acknowledged - 1} were acknowledged and are"
            raise SpoolDamagedError(DATABASE, f"{lost} not sound in it or in {WAL}")
        if self.meta.app != app:
            problem = f"is one of app {self.meta.app}, not of {app}: give each its own"
            raise SpoolMovedError([f"spool {self.path} {problem}"])
        self._checkpoint("TRUNCATE")
        if acknowledged is None:
            self._folder.write(ACKNOWLEDGED, 0, bytes(2 * SECTOR))
            self._acknowledge(self.next)
        self._acknowledge(self.next)
        self._folder.sync()
        if self.meta.inode != self._folder.inode:
            self._adopt(adopt=adopt)
        self._count_pages()

    def _create(self, app: str) -> None:
        meta = SpoolMeta(id=str(uuid.uuid4()), app=app, inode=self._folder.inode)
        with self._transaction():
            self._connection.execute(_META)
            self._connection.execute(_RECORDS)
            self._connection.execute("INSERT INTO meta VALUES (1, 0, x'')")
            self._write_meta(meta)

    def _adopt(self, *, adopt: bool) -> None:
        if not adopt:
            problem = (
                f"spool {self.path} was copied, moved or restored: publish from the folder that it"
                " was made in, or, once no other publisher has this spool, open it with adopt=True"
                " (--adopt), which still compares it with its marker in Kafka"
            )
            raise SpoolMovedError([problem])
        self._change_meta(inode=self._folder.inode)

    def _scan(self) -> tuple[int, int]:
        first = after = 0
        for row in self._connection.execute("SELECT * FROM records ORDER BY first"):
            one = _sound(row, after)
            first, after = first or one.first, one.first + one.records
        return first or FIRST, after or FIRST

    def _acknowledged(self) -> int | None:
        """Return the sequence below which all was acknowledged; None when there is no such file.

        The two slots are written in turn: a crash that tears one leaves the other.
        """
        found = []
        content = self._folder.read(ACKNOWLEDGED)
        for at in (0, SECTOR):
            data = content[at : at + _SLOT.size]
            if len(data) < _SLOT.size:
                continue
            magic, generation, sequence, checksum = _SLOT.unpack(data)
            if magic == _SLOT_MAGIC and checksum == zlib.crc32(data[:-4]):
                found.append((generation, sequence))
        if not found:
            return None
        self._generation, sequence = max(found)
        return int(sequence)

    def _acknowledge(self, sequence: int) -> None:
        self._generation += 1
        content = _SLOT.pack(_SLOT_MAGIC, self._generation, sequence, 0)[:-4]
        at = self._generation % 2 * SECTOR
        self._folder.write(ACKNOWLEDGED, at, content + struct.pack("<I", zlib.crc32(content)))

    # -- appending ------------------------------------------------------------------------

    def append(
        self,
        records: Sequence[bytes],
        position: bytes = b"",
        accepted: Callable[[int], object] = bool,
    ) -> int:
        """Accept records, all or none; return the sequence of the first when they are durable.

        position  kept with them in one transaction; an empty one leaves the one before
        accepted  called with the same number before another thread can read them
        Raises SpoolFullError: nothing was written. Raises SpoolFailedError, SpoolDamagedError.
        """
        with self._mutex, self._translated():
            rows = self._rows(records)
            size = sum(_ROW_BYTES + len(row[-1]) for row in rows)
            self._require_room(size)
            meta = msgspec.structs.replace(self.meta, position=position) if position else self.meta
            with self._transaction():
                self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
                if meta is not self.meta:
                    self._write_meta(meta)
            self._log_bytes += size
            self._count_pages()
            first, after = self.next, self.next + len(records)
            self._acknowledge(after)
            accepted(first)
            self.meta, self.next = meta, after
        return first

    def settle(self, cluster: str, topic: str) -> None:
        """Write down where the marker is. Raises SpoolFailedError, SpoolFullError."""
        with self._mutex, self._translated():
            self._change_meta(cluster=cluster, topic=topic)

    def checkpoint(self) -> None:
        """Copy SQLite's log into its file when it has become long."""
        if self._log_bytes > self._wal_max_bytes // 2:
            with suppress(SpoolFullError), self._mutex, self._translated():
                self._checkpoint("PASSIVE")

    def _rows(self, records: Sequence[bytes]) -> list[tuple[int, int, bytes, int, bytes]]:
        rows, begin, size = [], 0, 0
        for at, record in enumerate(records):
            if at - begin == ROW_RECORDS_MAX or (at > begin and size + len(record) > ROW_BYTES_MAX):
                rows.append(self._row(self.next + begin, records[begin:at]))
                begin, size = at, 0
            size += len(record)
        return [*rows, self._row(self.next + begin, records[begin:])] if records else []

    def _row(self, first: int, records: Sequence[bytes]) -> tuple[int, int, bytes, int, bytes]:
        content = b"".join(records)
        checksum = _checksum(first, len(records), self._nonce, content)
        return first, len(records), self._nonce, checksum, content

    def _change_meta(self, **changes: str | int) -> None:
        meta = msgspec.structs.replace(self.meta, **changes)
        with self._transaction():
            self._write_meta(meta)
        self.meta = meta

    def _write_meta(self, meta: SpoolMeta) -> None:
        content = msgspec.json.encode(meta)
        self._connection.execute(
            "UPDATE meta SET checksum = ?, content = ?", (zlib.crc32(content), content)
        )

    def _read_meta(self) -> SpoolMeta:
        rows = self._all("SELECT checksum, content FROM meta")
        if len(rows) == 1 and isinstance(rows[0][1], bytes):
            ((checksum, content),) = rows
            if zlib.crc32(content) == checksum:
                return msgspec.json.decode(content, type=SpoolMeta)
        raise SpoolDamagedError(DATABASE, "its meta row is not what was written")

    # -- room -----------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return sum(map(self._folder.size, (DATABASE, WAL, ACKNOWLEDGED)))

    def reclaim(self) -> bool:
        """Delete what could not be deleted before, on a full disk; return whether there was any."""
        if not self._delete_below:
            return False
        self.delete_below(self._delete_below)
        return not self._delete_below

    def _require_room(self, size: int) -> None:
        """Raise SpoolFullError unless the files can take so many bytes more, twice: see _fits."""
        if self._fits(size):
            return
        self._checkpoint("TRUNCATE")
        if not self._fits(size) and not (self._shrunk() and self._fits(size)):
            raise SpoolFullError(
                f"the spool is full: it takes {self.size_bytes:,} bytes of disk_max_bytes"
                f" {self._disk_max_bytes:,}, and its disk has {self._folder.free_bytes():,} left"
            )

    def _fits(self, size: int) -> bool:
        size += size // 64 + _PAGES_AROUND * _PAGE_BYTES
        pages, free = self._count_pages()
        database, log = pages * _PAGE_BYTES, self._folder.size(WAL)
        growth = max(0, size - free * _PAGE_BYTES)
        log = max(log, self._log_bytes + size, self._wal_max_bytes)
        growing = growth + max(0, database - self._folder.size(DATABASE))  # also of what is in it
        return (
            database + growth + log <= self._disk_max_bytes
            and growing + size + _SPARE_BYTES <= self._folder.free_bytes()
        )

    def _count_pages(self) -> tuple[int, int]:
        ((pages,),) = self._all("PRAGMA page_count")
        ((free,),) = self._all("PRAGMA freelist_count")
        self.taken_bytes = (pages - free) * _PAGE_BYTES + self._wal_max_bytes
        return pages, free

    def _shrunk(self) -> bool:
        """Give free pages back to the disk where that is little work; return whether it was."""
        pages, free = self._count_pages()
        if free * 2 < pages or (pages - free) * _PAGE_BYTES > _SHRINK_USED_BYTES:
            return False
        self._connection.execute("VACUUM")
        self._checkpoint("TRUNCATE")
        return True

    def _checkpoint(self, how: str) -> None:
        self._all(f"PRAGMA wal_checkpoint({how})")
        self._log_bytes = 0

    # -- reading --------------------------------------------------------------------------

    def nonce_before(self, sequence: int) -> bytes | None:
        """Return the nonce of the open that wrote the record before; None when it is not here."""
        with self._mutex, self._translated():
            found = self._all(
                "SELECT first + count, nonce FROM records WHERE first < ? ORDER BY first DESC"
                " LIMIT 1",
                sequence,
            )
        if not found:
            return b"" if sequence == self.first == FIRST else None
        after, nonce = found[0]
        return bytes(nonce) if sequence <= after else None

    def read(self, sequence: int, records_max: int, bytes_max: int) -> list[SpoolRow]:
        """Return one row at least, if any; raise SpoolDamagedError, SpoolFailedError."""
        taken: list[SpoolRow] = []
        count = size = 0
        at, until = sequence, self.next
        while at < until and count < records_max and size < bytes_max:
            for row in self._read_some(at):
                one = _sound(row, at if taken else 0)
                if not one.first <= at < one.first + one.records:
                    raise SpoolDamagedError(DATABASE, f"record {at} is missing")
                if taken and (count + one.records > records_max or size >= bytes_max):
                    return taken
                taken.append(one)
                at = one.first + one.records
                count, size = at - sequence, size + len(one.content)
        return taken

    def _read_some(self, sequence: int) -> list[Any]:
        with self._mutex, self._translated():
            found = self._all(
                "SELECT * FROM records WHERE first BETWEEN"
                " (SELECT max(first) FROM records WHERE first <= ?1) AND ?2 LIMIT ?3",
                sequence,
                self.next - 1,
                _READ_ROWS,
            )
        if not found:
            raise SpoolDamagedError(DATABASE, f"record {sequence} is missing")
        return found

    def delete_below(self, sequence: int) -> None:
        """Delete what is published, but for the record before ``sequence``, which names its nonce.

        What a full disk does not let it delete is deleted by ``reclaim``.
        """
        self._delete_below = sequence
        with suppress(SpoolFullError):
            while self._delete_some(sequence):
                pass
            self._delete_below = 0

    def _delete_some(self, sequence: int) -> bool:
        with self._mutex, self._translated():
            with self._transaction():
                self._connection.execute(
                    "DELETE FROM records WHERE first IN (SELECT first FROM records WHERE first <"
                    " (SELECT max(first) FROM records WHERE first < ?) ORDER BY first LIMIT ?)",
                    (sequence, _DELETE_ROWS),
                )
            ((deleted, first),) = self._all("SELECT changes(), min(first) FROM records")
            self.first = first or FIRST
            _pages, free = self._count_pages()
            if sequence == self.next and free * _PAGE_BYTES > _SHRINK_FREE_BYTES:
                self._shrunk()
        return bool(deleted == _DELETE_ROWS)

    # -- SQLite ---------------------------------------------------------------------------

    def _all(self, query: str, *values: int) -> list[Any]:
        return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
            self._log_bytes += _PAGES_AROUND * _PAGE_BYTES
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise what an error of SQLite or of the system means; after a failure nothing works."""
        if self.failed is not None:
            raise self.failed
        try:
            yield
        except sqlite3.Error as error:
            # Without a code: text that is no UTF-8.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF == sqlite3.SQLITE_FULL:
                raise SpoolFullError("the disk of the spool is full") from error
            failed = code & 0xFF in _FAILURES and code != sqlite3.SQLITE_IOERR_SHORT_READ
            if failed or isinstance(error, sqlite3.ProgrammingError):  # it is closed
                self.failed = _failure(error)
            else:
                self.failed = SpoolDamagedError(DATABASE, str(error))
            raise self.failed from error
        except OSError as error:
            self.failed = _failure(error.strerror or error)
            raise self.failed from error

    def close(self) -> None:
        if self.forked:
            return
        with self._mutex, suppress(sqlite3.Error):
            self._connection.close()
        self._folder.release()
        _open_spools.discard(self)

    def forget(self) -> None:
        """Make this unusable in a child of fork, where closing it would harm its owner's files."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._folder.release()
        self.forked, self._mutex = True, threading.Lock()
        self.failed = StopError(
            f"spool {self.path} was opened before this process was forked, and a folder has one"
            " publisher in one process: open one after the fork, with a folder of its own"
        )


_open_spools: weakref.WeakSet[SpoolStore] = weakref.WeakSet()


def _forget_in_child() -> None:
    for spool in list(_open_spools):
        spool.forget()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_in_child)


def _checksum(first: int, count: int, nonce: bytes, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(b"%d %d %b" % (first, count, nonce)))


def _sound(row: Any, first: int) -> SpoolRow:
    """Return a row that is what was written, and begins with this sequence unless it is 0."""
    number, count, nonce, checksum, content = row
    sound = isinstance(nonce, bytes) and isinstance(content, bytes) and isinstance(count, int)
    if not sound or _checksum(number, count, nonce, content) != checksum:
        raise SpoolDamagedError(DATABASE, f"the row of record {number} is not what was written")
    if first and number != first:
        raise SpoolDamagedError(DATABASE, f"records {first} to {number - 1} are missing")
    return SpoolRow(number, count, content)


def _failure(what: object) -> SpoolFailedError:
    return SpoolFailedError(
        f"the spool cannot be written: {what}. What was under way may be accepted or not: see to"
        " the disk, then open the spool again, which finds out"
    )
