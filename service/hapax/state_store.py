"""The state of this process's partitions, in LMDB: a cache of the changelog that survives kills.

One database holds entries, another a row for each input partition: how far both logs are taken.
One write transaction changes both, so that a process that is killed leaves either all of a Kafka
transaction or nothing, and one read transaction sees both. Pages are not synced: a kill takes
nothing from the system's cache, and what a machine loses with its power is read from the changelog
again. That it may be lost is known by the id of the boot: only a store that was closed is taken
from another one.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import lmdb
import msgspec

from hapax.core.errors import PreflightError, StateTypeError, StopError
from hapax.processing.state import EXPIRES, NAME_BYTES_MAX, StateFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hapax.core.records import Progress, TopicPartition

_FORM: Final = b"hapax-state-1"
_KEY_MAX: Final = 511
"""Of LMDB as it is built."""
_LONG: Final = b"\xff" * 4
"""In place of a length that no key has."""
_AFTER: Final = b"\xff" * 16
_NOTE: Final = b"note"
_NO_BOOT: Final = b"-"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_HELD: Final = "another process uses this folder: give each its own HAPAX_STATE__DIR"
_DAMAGED: Final = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
_DATABASES: Final = (b"entries", b"rows", b"expires")
_AT_ONCE: Final = 10_000
"""Entries that are deleted in one transaction: the worker waits for its end."""


class StatePosition(msgspec.Struct, array_like=True):
    """How far one input partition is.

    of         ids of what it was read from: cluster, input topic, changelog
    input      next offset of the input; None: the changelog is being read
    changelog  next offset of its partition of the changelog
    source     the highest offset of the input whose record has changed something; -1: none has
    seen_s     when it was last known to be where the group is, in Unix seconds
    """

    of: tuple[str, ...]
    input: int | None
    changelog: int
    source: int
    seen_s: float


class LmdbStore:
    """Entries and rows. The thread of the worker applies, those of calls get; another restores.

    of  ids of what is read now; rows of anything else count for nothing
    """

    def __init__(self, folder: Path, size_bytes: int, of: tuple[str, ...]) -> None:
        """Open or make it. Raises PreflightError when the folder is of no use."""
        self.of = of
        self._size_bytes = size_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(folder)
            (room := folder / "room").write_bytes(bytes(1 << 16))
            room.unlink()  # a disk without it: LMDB's lock file would be death by SIGBUS
            self._data = folder / "lmdb" / "data.mdb"
            self._environment = self._opened(folder)
        except (OSError, lmdb.Error) as error:
            with suppress(AttributeError):  # or there was none yet
                self._lock.close()
            why = _HELD if isinstance(error, BlockingIOError) else str(error)
            raise PreflightError([f"HAPAX_STATE__DIR={folder}: {why}"]) from error
        self._entries, self._rows, self._index = map(self._environment.open_db, _DATABASES)
        """Entries by partition and the time at which they expire."""
        self._swept: dict[bytes, bytes] = {}
        self._reader: Any = self._environment.begin(db=self._entries)
        self._reading = threading.RLock()  # LMDB takes no two calls of one transaction at once
        self._next: dict[int, int] = {}

    # -- what the core asks, of one snapshot --------------------------------------------------

    def get(self, entry: bytes) -> bytes | None:
        """See the port. StateTypeError where it is damaged: no dead letter comes of that."""
        key = _key(entry)
        try:
            with self._reading:
                found: bytes | None = self._reader.get(key)
        except _DAMAGED as error:
            raise StateTypeError(self._damage(error)) from error
        return found if found is None or key is entry else _whole(key, found)[1]

    def entries(self, prefix: bytes) -> dict[bytes, bytes]:
        """See the port."""
        found: dict[bytes, bytes] = {}
        heads = [prefix] if len(prefix) <= _KEY_MAX else []
        if len(prefix) + NAME_BYTES_MAX > _KEY_MAX:
            heads.append(prefix[:4] + _LONG)
        for head in heads:
            with self._reading, self._sound_data(), self._reader.cursor() as cursor:
                there = cursor.set_range(head)
                while there and cursor.key().startswith(head):
                    entry, value = _whole(*cursor.item())
                    if entry.startswith(prefix):
                        found[entry] = value
                    there = cursor.next()
        return found

    def position(self, where: TopicPartition) -> int | None:
        """See the port."""
        with self._reading:
            row = self._row(self._reader, where)
        return None if row is None or row.of != self.of else row.input

    def source(self, where: TopicPartition) -> int:
        """See the port."""
        with self._reading:
            row = self._row(self._reader, where)
        return -1 if row is None or row.of != self.of else row.source

    def due(self, partition: int, until_ms: int, most: int) -> list[bytes]:
        """See the port. Rows of the index whose entry was changed since go with the next write."""
        found: list[bytes] = []
        head = partition.to_bytes(4, "big")
        end = head + until_ms.to_bytes(8, "big") + _AFTER
        with self._reading, self._sound_data(), self._reader.cursor(self._index) as cursor:
            there = cursor.set_range(head)
            while there and cursor.key() <= end and len(found) < most:
                at, entry = cursor.item()
                value = self.get(entry)
                if value is not None and value[:9] == EXPIRES + at[4:12]:
                    found.append(entry)
                    self._swept[entry] = at
                else:
                    self._swept[at] = at
                there = cursor.next()
        return found

    def apply(
        self, changes: Mapping[bytes, bytes | None], progress: Progress, newest: Progress
    ) -> None:
        """See the port."""
        now_s = time.time()
        rows, ends = {}, dict[int, int]()
        for where, at in progress.items():
            with self._reading:
                row = self._row(self._reader, where)
            if row is not None and row.of == self.of and row.input is not None:
                end = ends[where[1]] = ends.get(where[1]) or self._next.pop(where[1], row.changelog)
                source = max(row.source, newest.get(where, -1))
                rows[where] = StatePosition(row.of, at, end, source, now_s)
        self._write(changes, rows, self._done_with(changes))
        self.refresh()

    def placed(self, partition: int, error: object, message: Any) -> None:
        """Take the delivery report of the last message of a partition of the changelog."""
        offset = None if error is not None else message.offset()
        if offset is not None:
            self._next[partition] = offset + 1

    def figures(self, restoring: Mapping[TopicPartition, tuple[int, int | None]]) -> StateFigures:
        """Return what it holds; counts that LMDB keeps, so nothing is read for them."""
        with self._reading, self._sound_data():
            known = [self._reader.stat(one) for one in (self._entries, self._index, self._rows)]
        pages = sum(
            one[f"{kind}_pages"] for one in known for kind in ("branch", "leaf", "overflow")
        )
        size = pages * known[0]["psize"]
        return StateFigures(size, self._size_bytes, known[0]["entries"], restoring)

    def refresh(self) -> None:
        """Let the worker's thread see what was restored, and pages of before be used again."""
        self._swept = {}  # those rows may stand for something else by now
        with self._reading:
            self._reader.abort()
            self._reader = self._environment.begin(db=self._entries)

    # -- what a restore asks ------------------------------------------------------------------

    def row(self, where: TopicPartition) -> StatePosition | None:
        """Return how far a partition is; None: nothing of it is here."""
        with self._environment.begin() as reader:
            return self._row(reader, where)

    def restore(
        self, changes: Mapping[bytes, bytes | None], rows: Mapping[TopicPartition, StatePosition]
    ) -> None:
        """Take what was read from the changelog, in pieces: the worker may wait for each.

        ``rows``: of all inputs that share the state; they change with the last piece.
        """
        entries = sorted(changes)
        last = max(0, (len(entries) - 1) // _AT_ONCE * _AT_ONCE)
        for at in range(0, last, _AT_ONCE):
            self._write({entry: changes[entry] for entry in entries[at : at + _AT_ONCE]}, {})
        self._write({entry: changes[entry] for entry in entries[last:]}, rows)

    def drop(self, where: TopicPartition) -> None:
        """Keep nothing of a partition: its row first, and what lasts in pieces."""
        head, number = where[1].to_bytes(4, "big"), f"/{where[1]}".encode()
        with self._writing() as writer, writer.cursor(self._rows) as cursor:
            there = cursor.first()
            while there:
                there = cursor.delete() if cursor.key().endswith(number) else cursor.next()
        for database in (self._entries, self._index):
            more = True
            while more:
                with self._writing() as writer, writer.cursor(database) as cursor:
                    more = _delete(cursor, head)

    def close(self, *, trusted: bool = True) -> None:
        """Write all to the disk; the next start may trust it, whatever happens to the machine.

        ``trusted``: nothing writes to it any more.
        """
        with self._reading:
            self._reader.abort()
        try:
            self._environment.sync(force=True)
            if trusted:
                self._note(self._environment, closed=True)
                self._environment.sync(force=True)
        finally:
            self._environment.close()
            self._lock.close()

    # -- inside -----------------------------------------------------------------------------

    def _row(self, reader: Any, where: TopicPartition) -> StatePosition | None:
        with self._sound_data():
            found = reader.get(_name(where), db=self._rows)
        return None if found is None else _ROW.decode(found)

    def _done_with(self, changes: Mapping[bytes, bytes | None]) -> list[bytes]:
        swept, self._swept = self._swept, {}
        return [at for entry, at in swept.items() if entry == at or changes.get(entry, b"") is None]

    def _write(
        self,
        changes: Mapping[bytes, bytes | None],
        rows: Mapping[TopicPartition, StatePosition],
        swept: Iterable[bytes] = (),
    ) -> None:
        kept: list[tuple[bytes, bytes]] = []
        due: list[tuple[bytes, bytes]] = []
        with self._writing() as writer:
            for entry in sorted(changes):
                key, value = _key(entry), changes[entry]
                if value is None:
                    writer.delete(key, db=self._entries)
                else:
                    kept.append((key, value if key is entry else _long(entry, value)))
                    if value.startswith(EXPIRES):
                        due.append((_index_key(entry, value), entry))
            for items, database in ((kept, self._entries), (due, self._index)):
                if items:
                    with writer.cursor(database) as cursor:
                        cursor.putmulti(items)
            for at in swept:
                writer.delete(at, db=self._index)
            for where, row in rows.items():
                writer.put(_name(where), msgspec.msgpack.encode(row), db=self._rows)

    def _damage(self, error: lmdb.Error) -> str:
        self._data.unlink(missing_ok=True)
        return f"HAPAX_STATE__DIR is damaged: {error}; nothing is lost: the next start empties it"

    @contextmanager
    def _sound_data(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise StopError(self._damage(error)) from error

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        try:
            with self._environment.begin(write=True, db=self._entries) as writer:
                yield writer
        except lmdb.MapFullError as error:
            raise StopError(
                f"the state is larger than HAPAX_STATE__SIZE_MAX={self._size_bytes}: raise it, or"
                " let values expire; nothing is lost"
            ) from error
        except _DAMAGED as error:
            raise StopError(self._damage(error)) from error
        except lmdb.Error as error:
            free = shutil.disk_usage(self._data).free
            raise StopError(
                f"HAPAX_STATE__DIR, where {free:,} bytes are free, cannot be written: {error};"
                " nothing is lost"
            ) from error

    def _opened(self, folder: Path) -> lmdb.Environment:
        """Open the databases, empty where they may be older than they say."""
        place = folder / "lmdb"
        environment = None
        try:
            environment = self._open(place)
            sound = self._sound(environment)
        except _DAMAGED:
            sound = False
        if environment is None or not sound:
            if environment is not None:
                environment.close()
            shutil.rmtree(place, ignore_errors=True)
            environment = self._open(place)
        self._note(environment, closed=False)
        environment.sync(force=True)
        return environment

    def _open(self, place: Path) -> lmdb.Environment:
        return lmdb.open(
            str(place),
            map_size=self._size_bytes,
            mode=0o600,
            max_dbs=4,
            sync=False,
            readahead=False,
        )

    def _sound(self, environment: lmdb.Environment) -> bool:
        pages, size = environment.info()["last_pgno"] + 1, self._data.stat().st_size
        if pages * environment.stat()["psize"] > size > 0:
            return False  # it was cut, and to read beyond its end is death by SIGBUS
        with environment.begin() as reader:
            note = reader.get(_NOTE)
        if note is None:
            return True  # it is new
        list(map(environment.open_db, _DATABASES))  # which reads what they are
        form, boot, closed = note.split(b" ")
        return form == _FORM and (closed == b"closed" or boot == _boot() != _NO_BOOT)

    def _note(self, environment: lmdb.Environment, *, closed: bool) -> None:
        with environment.begin(write=True) as writer:
            writer.put(_NOTE, b" ".join((_FORM, _boot(), b"closed" if closed else b"open")))


_ROW: Final = msgspec.msgpack.Decoder(StatePosition)


def _locked(folder: Path) -> BinaryIO:
    """Lock the folder for this process; raise BlockingIOError when another has it."""
    held = (folder / "lock").open("ab")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise
    return held


def _delete(cursor: Any, head: bytes) -> bool:
    there = cursor.set_range(head)
    for _ in range(_AT_ONCE):
        if not there or not cursor.key().startswith(head):
            return False
        there = cursor.delete()
    return True


def _boot() -> bytes:
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return _NO_BOOT


def _name(where: TopicPartition) -> bytes:
    return f"{where[0]}/{where[1]}".encode()


def _key(entry: bytes) -> bytes:
    """Return what stands for an entry: itself, or, for LMDB takes no longer one, its digest."""
    if len(entry) <= _KEY_MAX:
        return entry
    return entry[:4] + _LONG + blake2b(entry, digest_size=32).digest()


def _whole(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    if key[4:8] != _LONG:
        return key, value
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], value[end:]


def _index_key(entry: bytes, value: bytes) -> bytes:
    return entry[:4] + value[1:9] + blake2b(entry, digest_size=16).digest()


def _long(entry: bytes, value: bytes) -> bytes:
    return len(entry).to_bytes(4, "big") + entry + value
