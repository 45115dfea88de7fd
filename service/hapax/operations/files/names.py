"""Which file a name means now, and which one it meant before it was rotated."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hapax.core.errors import ConfigurationError, PositionLostError
from hapax.operations.files.place import HEAD_BYTES, TAIL_BYTES, FileIdentity

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.operations.files.place import FilePlace

_COMPRESSED = re.compile(r"\.(gz|bz2|xz|zst|zip|lz4)$")


class FileGapError(PositionLostError):
    """Bytes that were not read may be gone: the file was truncated, or is not there any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: lines may be lost. Nothing that was accepted is; to continue with what"
            " the file has now, from its beginning, start once with --on-gap restart"
        )


def open_file(path: Path) -> int:
    """Return a descriptor for reading. Raises ConfigurationError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"]) from error


def identity(descriptor: int, offset: int) -> FileIdentity:
    """Return the identity of an open file, of which ``offset`` bytes were read."""
    tail = min(offset, TAIL_BYTES)
    return FileIdentity(
        inode=os.fstat(descriptor).st_ino,
        head=os.pread(descriptor, min(offset, HEAD_BYTES), 0),
        tail=os.pread(descriptor, tail, offset - tail),
    )


def reopened(path: Path, place: FilePlace) -> int | None:
    """Return a descriptor of the file that was read, under whatever name it has in its folder.

    None: it had been read to its end, and the name means another file now. Raises FileGapError.
    """
    assert place.file is not None, "a pipe has no name"
    for candidate in _candidates(path):
        status = _status(candidate)
        if status is None or status.st_ino != place.file.inode:
            continue
        descriptor = open_file(candidate)
        if identity(descriptor, place.offset) == place.file:
            return descriptor
        os.close(descriptor)
        if not place.ended:
            raise FileGapError(f"{candidate} was truncated or overwritten since it was read")
    if place.ended:
        return None
    raise FileGapError(f"the file that was read as {path} is not in its folder any more")


def successor(path: Path, descriptor: int) -> Path | None:
    """Return what to read after a file that was renamed; None: it still has the name.

    That is the file of this name, unless rotations came so fast that there are others in between:
    files named after it that were last written later, the oldest first. Raises FileGapError where
    one of these was compressed.
    """
    here = os.fstat(descriptor)
    named = _status(path)
    if named is None or _same(named, here):
        return None
    between = [
        (status.st_mtime_ns, candidate)
        for candidate in _candidates(path)
        if candidate != path
        and (status := _status(candidate)) is not None
        and not _same(status, here)
        and status.st_mtime_ns > here.st_mtime_ns
        and not _same(status, named)
    ]
    for _at, candidate in between:
        if _COMPRESSED.search(candidate.name):
            raise FileGapError(f"{candidate} was compressed before it was read")
    return min(between)[1] if between else path


def _candidates(path: Path) -> list[Path]:
    """Return the name itself, then what rotation makes of it: orders.log.1, orders.log-20300131."""
    rotated = re.compile(rf"{re.escape(path.name)}[.-][0-9][\w.:+-]*")
    try:
        found = sorted(path.parent.iterdir())
    except OSError as error:
        raise ConfigurationError([f"{path.parent} cannot be read: {error.strerror}"]) from error
    return [path, *(one for one in found if rotated.fullmatch(one.name))]


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
