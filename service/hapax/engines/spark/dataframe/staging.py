"""Where the rows of a task wait until the driver publishes them.

A few rows travel in the task's own message; more go to a file in the checkpoint's place, under a
name that no other attempt has. The driver knows the names of those attempts alone that Spark
counts; what the others left is removed with the next micro-batch.

Each block of bytes has a checksum, so that damage is found before anything is decoded: Arrow reads
a stream that was cut between two of its messages to a clean end, and trusts the offsets inside of
one that was altered (measured: every cut of a spooled file ends clean or in an error of Arrow's,
never in a word about rows that are missing).
"""

from __future__ import annotations

import io
import os
import string
import uuid
import zlib
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyarrow import fs

from hapax.core.errors import ConfigurationError, StopError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer, WriteableBuffer

BLOCK_BYTES = 1 << 20
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""What Hadoop calls them, and what Arrow does."""
FOLDER = "hapax"
REPORT = "last.json"


class Checksums(msgspec.Struct, frozen=True):
    """What a file must hold: its size in bytes, and the CRC-32 of each block in order."""

    size: int
    blocks: tuple[int, ...]


class DamagedError(Exception):
    """The file does not hold what was written; the text says where it differs."""


class BlockWriter(io.RawIOBase):
    """Passes bytes on to ``target`` and sums them."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target
        self._size = 0
        self._sum = 0
        self._blocks: list[int] = []

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._target.write(view)
        begin = 0
        while begin < len(view):
            part = view[begin : begin + BLOCK_BYTES - self._size % BLOCK_BYTES]
            self._sum = zlib.crc32(part, self._sum)
            self._size += len(part)
            begin += len(part)
            if self._size % BLOCK_BYTES == 0:
                self._blocks.append(self._sum)
                self._sum = 0
        return len(view)

    @property
    def checksums(self) -> Checksums:
        rest = (self._sum,) if self._size % BLOCK_BYTES else ()
        return Checksums(self._size, (*self._blocks, *rest))


class BlockReader(io.RawIOBase):
    """Gives out the bytes of ``source`` block by block, each after its sum was compared.

    Raises DamagedError for a block that is short, altered, or beyond the size that was written.
    """

    def __init__(self, source: Any, checksums: Checksums) -> None:
        super().__init__()
        self._source = source
        self._checksums = checksums
        self._at = 0
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        if not self._block:
            self._block = self._next()
        count = min(len(target), len(self._block))
        target[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def finish(self) -> None:
        """Compare what the decoder has left unread: an Arrow stream may end before its file."""
        while self._next():
            pass

    def _next(self) -> memoryview:
        sums = self._checksums
        begin = self._at * BLOCK_BYTES
        wanted = min(BLOCK_BYTES, sums.size - begin)
        if wanted <= 0:
            if self._source.read(1):
                raise DamagedError(f"it is longer than the {sums.size} bytes that were written")
            return memoryview(b"")
        block = memoryview(self._source.read(wanted))
        if len(block) < wanted:
            raise DamagedError(
                f"it ends after {begin + len(block)} of the {sums.size} bytes that were written"
            )
        if zlib.crc32(block) != sums.blocks[self._at]:
            raise DamagedError(f"its bytes {begin} to {begin + wanted - 1} are not as written")
        self._at += 1
        return block


class StagedRowsError(StopError):
    """Rows that a task wrote are gone, or not as it wrote them: ``what``."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Parcel(msgspec.Struct, frozen=True):
    """Rows of one task: ``inline`` as an Arrow stream, or in the file at ``path``.

    ``checksums``: what the file must hold, reported by the task that wrote it.
    """

    rows: int
    inline: bytes | None
    path: str | None
    checksums: Checksums | None = None

    @property
    def size(self) -> int:
        if self.inline is not None:
            return len(self.inline)
        return 0 if self.checksums is None else self.checksums.size


class StagedReport(msgspec.Struct, frozen=True):
    """What became of the last micro-batch; see ``hapax.cluster.micro_batches.Numbers``."""

    number: int
    outputs: dict[str, int]
    repeated: bool
    attempts: int
    publish_s: float


class Place:
    """A folder on any file system that Arrow knows: local, S3, GCS, HDFS."""

    def __init__(self, address: str) -> None:
        self.address = address
        scheme, separator, rest = address.partition("://")
        if not separator or (scheme == "file" and rest.startswith("/")):
            local = rest or address.removeprefix("file:")
            self.files, self.root = fs.LocalFileSystem(), local.rstrip("/") or "/"
            return
        # Hadoop takes blanks and the like as they are.
        rest = quote(rest, safe=string.punctuation)
        try:
            self.files, root = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigurationError(
                [f"{address} cannot be opened from Python: {' '.join(str(error).split())[:300]}"]
            ) from error
        self.root = root.rstrip("/")

    def path(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def write(self, path: str, content: bytes) -> None:
        """Write a file whole; a local one is on the disk when this returns."""
        self.files.create_dir(self.root, recursive=True)
        with self.files.open_output_stream(path) as file:
            file.write(content)
        self.sync(path)

    def sync(self, path: str) -> None:
        """Wait until a file and its name are on the disk; other stores see to that themselves."""
        if not isinstance(self.files, fs.LocalFileSystem):
            return
        for each in (Path(path), Path(path).parent):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class Spool:
    """The waiting rows of one query."""

    def __init__(self, place: Place, inline_bytes_max: int, *, durable: bool = False) -> None:
        """``durable``: a file is on the disk before its task reports it."""
        self._place = place
        self.address = place.address
        self.inline_bytes_max = inline_bytes_max
        self._durable = durable

    def store(self, batches: Iterable[pa.RecordBatch], name: str) -> Parcel:
        """Take all rows of a task. ``name`` begins with the micro-batch's number and a dash."""
        iterator = iter(batches)
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in iterator:
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes > self.inline_bytes_max:
                return self._file(held, iterator, f"{name}-{uuid.uuid4().hex}.arrow")
        rows = sum(batch.num_rows for batch in held)
        if not rows:
            return Parcel(0, None, None)
        buffer = io.BytesIO()
        _write(buffer, held, iter(()))
        return Parcel(rows, buffer.getvalue(), None)

    def _file(
        self, held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch], name: str
    ) -> Parcel:
        path = self._place.path(name)
        self._place.files.create_dir(self._place.root, recursive=True)
        with self._place.files.open_output_stream(path) as file:
            writer = BlockWriter(file)
            rows = _write(writer, held, rest)
        if self._durable:
            self._place.sync(path)
        return Parcel(rows, None, path, writer.checksums)

    def rows(self, parcel: Parcel) -> Iterator[pa.RecordBatch]:
        """Yield what was stored; raise StagedRowsError when it is gone, or not whole.

        A file is compared with its checksums before its bytes are decoded, and the rows are counted
        at the end: a publisher must drop all when this raises.
        """
        source = parcel.path or "the message of a task"
        rows = 0
        try:
            for batch in self._batches(parcel):
                rows += batch.num_rows
                yield batch
        except (pa.ArrowException, DamagedError, OSError) as error:
            raise _damaged(source, parcel.rows, _words(error)) from error
        if rows != parcel.rows:
            raise _damaged(source, parcel.rows, f"it holds {rows}")

    def _batches(self, parcel: Parcel) -> Iterator[pa.RecordBatch]:
        if parcel.inline is not None:
            with pa.ipc.open_stream(parcel.inline) as stream:
                yield from stream
        elif parcel.path is not None and parcel.checksums is not None:
            try:
                file = self._place.files.open_input_stream(parcel.path)
            except FileNotFoundError as error:
                raise StagedRowsError(
                    f"{parcel.path}, which a task wrote, is missing: driver and executors must "
                    "share the folder (option spoolLocation), and no second query may use it"
                ) from error
            with file:
                reader = BlockReader(file, parcel.checksums)
                with pa.ipc.open_stream(io.BufferedReader(reader)) as stream:
                    yield from stream
                reader.finish()

    def clear(self, number: int) -> None:
        """Remove what micro-batches up to this one left. A zombie's file goes with the next."""
        where = fs.FileSelector(self._place.root, allow_not_found=True)
        for info in self._place.files.get_file_info(where):
            begin, dash, _ = info.base_name.partition("-")
            if dash and begin.isdecimal() and int(begin) <= number:
                self._delete(info.path)

    def remove(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            if parcel.path is not None:
                self._delete(parcel.path)

    def keep(self, number: int, content: bytes) -> str:
        """Write a manifest of this micro-batch; return its name, which no other has."""
        name = f"{number}-{uuid.uuid4().hex}.manifest"
        self._place.write(self._place.path(name), content)
        return name

    def kept(self, name: str) -> bytes:
        """Return a manifest's content; raise StagedRowsError when it is gone."""
        try:
            with self._place.files.open_input_stream(self._place.path(name)) as file:
                return bytes(file.read())
        except OSError as error:
            path = self._place.path(name)
            raise StagedRowsError(f"{path} cannot be read: {_words(error)}") from error

    def report(self, report: StagedReport) -> None:
        self._place.files.create_dir(self._place.root, recursive=True)
        with self._place.files.open_output_stream(self._place.path(REPORT)) as file:
            file.write(msgspec.json.encode(report))

    def reported(self, number: int) -> StagedReport | None:
        """Return the numbers of this micro-batch; None when they are missing (by now)."""
        try:
            with self._place.files.open_input_stream(self._place.path(REPORT)) as file:
                report = msgspec.json.decode(file.read(), type=StagedReport)
        except (FileNotFoundError, msgspec.DecodeError):  # or just being written
            return None
        return report if report.number == number else None

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._place.files.delete_file(path)


def _damaged(source: str, rows: int, difference: str) -> StagedRowsError:
    what = f"{source} does not hold the {rows} rows that its task wrote: {difference}"
    return StagedRowsError(what)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _write(target: Any, held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> int:
    rows = 0
    with pa.ipc.new_stream(target, held[0].schema) as stream:
        for batch in chain((held.pop(0) for _ in range(len(held))), rest):
            rows += batch.num_rows
            stream.write_batch(batch)
    return rows
