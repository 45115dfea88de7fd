"""One file of a spool: frames in order of their sequences, all of one open."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.spool.errors import SpoolDamagedError
from hapax.spool.frames import (
    FRAMES_AT,
    OUTER_BYTES,
    Head,
    head_of,
    inner,
    newest_slot,
    outer,
    packed_head,
    packed_slot,
    slot_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.spool.disk import Disk, SpoolFile
    from hapax.spool.frames import Frame

NEW = ".new"
LOG = ".log"
_READ_BYTES = 1 << 18


def file_name(first: int) -> str:
    """Return the name of the segment that begins with this sequence."""
    return f"{first:020}{LOG}"


class Segment:
    """One open segment.

    frames_at  where its first record may begin
    end        where the next frame goes
    durable    up to where the last sync reached
    certified  up to where a durable slot says so: records below it are acknowledged
    next       the sequence after its last record
    """

    def __init__(self, name: str, file: SpoolFile, head: Head, end: int) -> None:
        self.name = name
        self.head = head
        self.frames_at = self.end = self.durable = self.certified = end
        self.next = self.certified_next = head.first
        self.position = head.position
        self._durable_next = head.first
        self._file = file
        self._generation = 0
        self._certifying: tuple[int, int] | None = None

    @classmethod
    def created(cls, disk: Disk, head: Head) -> Segment:
        """Make a segment; when this returns it is durable, under its name. Raises OSError.

        The name is given last, so no file with it is ever without its head. An empty segment of an
        earlier open, which has the same name, is replaced.
        """
        name = file_name(head.first)
        file = disk.create(name + NEW)
        try:
            data = bytes(FRAMES_AT) + packed_head(head)
            file.write(0, data)
            file.sync()
            disk.rename(name + NEW, name)
            disk.sync()
        except OSError:
            file.close()
            with suppress(OSError):
                disk.unlink(name + NEW)
            raise
        return cls(name, file, head, len(data))

    @classmethod
    def opened(cls, disk: Disk, name: str) -> Segment:
        """Open what is there, with nothing of its frames read. Raises SpoolDamagedError."""
        file = disk.open(name)
        generation, certified = newest_slot(file.read(0, FRAMES_AT))
        found = read_frame(file, FRAMES_AT)
        head = None if found is None else head_of(found)
        if found is None or head is None or file_name(head.first) != name:
            file.close()
            raise SpoolDamagedError(name, FRAMES_AT, "its head is not what was written")
        segment = cls(name, file, head, FRAMES_AT + found.size)
        segment._generation, segment.certified = generation, certified
        return segment

    def size(self) -> int:
        """Return the length of the file."""
        return self._file.size()

    def append(self, data: bytes, count: int, position: bytes) -> None:
        """Write a frame of so many records. Raises OSError; then nothing of it counts."""
        self._file.write(self.end, data)
        self.end += len(data)
        self.next += count
        self.position = position or self.position

    def cut(self) -> None:
        """Take away what a failed write may have left behind the end. Raises OSError."""
        self._file.truncate(self.end)

    def certify(self) -> None:
        """Write down how far the file is durable; the next sync makes this durable, too."""
        if self.certified < self.durable:
            self._generation += 1
            self._file.write(slot_at(self._generation), packed_slot(self._generation, self.durable))
            self._certifying = (self.durable, self._durable_next)

    def sync(self) -> None:
        """Make durable all that was written. Raises OSError: then nothing may be believed."""
        self._file.sync()
        if self._certifying is not None:
            self.certified, self.certified_next = self._certifying
            self._certifying = None
        self.durable, self._durable_next = self.end, self.next

    def seal(self) -> None:
        """Make everything durable and certified, before another segment follows."""
        if self.durable < self.end or self._certifying is not None:
            self.sync()
        if self.certified < self.durable:
            self.certify()
            self.sync()

    def frames(self, at: int, until: int) -> Iterator[tuple[int, Frame | None]]:
        """Yield the frames between two places, each with its own; None for one that is unsound."""
        buffered, begin = b"", at
        while at < until:
            here = at - begin
            known = outer(buffered, here)
            size = OUTER_BYTES + known[0] if known else OUTER_BYTES
            if len(buffered) - here < size:
                wanted = min(max(size, _READ_BYTES), until - at)
                buffered, begin, here = self._file.read(at, wanted), at, 0
                known = outer(buffered)
                size = OUTER_BYTES + known[0] if known else OUTER_BYTES
                if known and len(buffered) < size <= until - at:
                    buffered = self._file.read(at, size)
            content = buffered[here + OUTER_BYTES : here + size]
            frame = inner(*known, content) if known else None
            yield at, frame
            if frame is None:
                return
            at += frame.size

    def rewrite(self, begin: int) -> None:
        """Write again what is there from ``begin`` on: a sync that failed may have dropped it.

        The operating system then shows bytes that are not on the disk, and would not write them.
        """
        while begin < self.end:
            data = self._file.read(begin, min(_READ_BYTES, self.end - begin))
            self._file.write(begin, data)
            begin += len(data)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def read_frame(file: SpoolFile, at: int) -> Frame | None:
    """Return the sound frame that begins here; None when there is none."""
    known = outer(file.read(at, OUTER_BYTES))
    return None if known is None else inner(*known, file.read(at + OUTER_BYTES, known[0]))
