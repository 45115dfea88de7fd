"""All segments of a spool: append, make durable, read, delete. No thread of its own.

One thread writes (``append``, ``certify``, ``sync``), one reads and deletes (``read``,
``delete_below``).
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, NamedTuple

from hapax.spool.errors import SpoolDamagedError, SpoolFailedError, SpoolFullError
from hapax.spool.frames import FORMAT, FRAMES_AT, MAGIC, Head, packed
from hapax.spool.recovery import last_nonce, recovered
from hapax.spool.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.spool.disk import Disk

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FIRST = 1
"""The first sequence of a spool."""


class TakenRecords(NamedTuple):
    """Records read for publishing: ``first`` is the sequence of the first of them."""

    first: int
    records: list[bytes]


class SpoolLog:
    """The segments of an open spool."""

    def __init__(
        self, disk: Disk, spool: bytes, nonce: bytes, *, segment_bytes: int, fresh: bool = False
    ) -> None:
        """Recover the folder and begin a segment. ``fresh``: the spool is being made.

        Raises SpoolDamagedError, and OSError.
        """
        self._disk = disk
        self._spool = spool
        self._nonce = nonce
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._segments = recovered(disk, spool)
        if not self._segments and not fresh:
            raise SpoolDamagedError("the folder", 0, "it holds no segment")
        self._cursor: tuple[int, int, int] | None = None  # first of a segment, place, sequence
        self._roll()
        self.certified_next = self.next

    @property
    def next(self) -> int:
        """The sequence of the next record."""
        return self._segments[-1].next

    @property
    def first(self) -> int:
        """The sequence of the oldest record that is still here, or ``next``."""
        return self._segments[0].head.first

    @property
    def position(self) -> bytes:
        """What was stored with the newest record that was written."""
        return self._segments[-1].position

    @property
    def size_bytes(self) -> int:
        """How much of the disk the segments take."""
        with self._lock:
            return sum(segment.end for segment in self._segments)

    def append(self, records: Sequence[bytes], position: bytes = b"") -> int:
        """Write records behind all others; return the sequence of the first.

        Raises SpoolFullError when there is no room: nothing was written. Raises SpoolFailedError.
        """
        try:
            if self._segments[-1].end >= self._segment_bytes:
                self._seal()
                self._roll()
            last, first = self._segments[-1], self._segments[-1].next
            last.append(packed(first, records, position), len(records), position)
        except OSError as error:
            if error.errno not in FULL:
                raise failed(error) from error
        else:
            return first
        self._undo()
        raise SpoolFullError("the disk of the spool is full")

    def _seal(self) -> None:
        """Make the last segment final. A sync that fails is never a full disk to wait for."""
        try:
            self._segments[-1].seal()
        except OSError as error:
            raise failed(error) from error
        self.certified_next = self._segments[-1].certified_next

    def _undo(self) -> None:
        try:
            self._segments[-1].cut()
        except OSError as error:
            raise failed(error) from error

    def certify(self) -> None:
        """Write down what the last sync made durable; certain after the next one."""
        try:
            self._segments[-1].certify()
        except OSError as error:
            raise failed(error) from error

    def sync(self) -> None:
        """Make durable what was written. Records below ``certified_next`` are acknowledged."""
        try:
            self._segments[-1].sync()
        except OSError as error:
            raise failed(error) from error
        self.certified_next = self._segments[-1].certified_next

    def _roll(self) -> None:
        """Begin a segment; the last one is sealed. Raises OSError, and then nothing is changed."""
        former = self._segments[-1] if self._segments else None
        head = Head(
            magic=MAGIC,
            format=FORMAT,
            spool=self._spool,
            first=former.next if former else FIRST,
            nonce=self._nonce,
            previous=last_nonce(former) if former else b"",
            position=former.position if former else b"",
        )
        segment = Segment.created(self._disk, head)
        with self._lock:
            if former is not None and former.head.first == head.first:  # it was empty: replaced
                self._segments.pop().close()
            self._segments.append(segment)

    # -- reading --------------------------------------------------------------------------

    def nonce_before(self, sequence: int) -> bytes | None:
        """Return the nonce of the record before this sequence; None when it is not known here."""
        with self._lock:
            segments = list(self._segments)
        for segment in reversed(segments):
            if segment.head.first == sequence:
                return segment.head.previous
            if segment.head.first < sequence <= segment.next:
                return segment.head.nonce
        return None

    def read(self, sequence: int, records_max: int, bytes_max: int) -> TakenRecords:
        """Return acknowledged records from a sequence on; at least one frame when there is any.

        Raises SpoolDamagedError when they are not what was written, and OSError.
        """
        taken: list[bytes] = []
        first, content = sequence, 0
        while sequence < self.certified_next and len(taken) < records_max and content < bytes_max:
            segment, at, here = self._find(sequence)
            before = sequence
            for place, frame in segment.frames(at, segment.certified):
                if frame is None or frame.first != here:
                    raise SpoolDamagedError(segment.name, place, "its records are not sound")
                here += frame.entries
                if here > sequence:
                    taken += frame.records()[sequence - frame.first :]
                    content += frame.size
                    sequence = here
                self._cursor = (segment.head.first, place + frame.size, here)
                if len(taken) >= records_max or content >= bytes_max:
                    break
            if sequence == before:
                raise SpoolDamagedError(segment.name, at, f"record {sequence} is missing")
        return TakenRecords(first, taken)

    def _find(self, sequence: int) -> tuple[Segment, int, int]:
        """Return the segment of a record, and where reading may begin, with the sequence there."""
        with self._lock:
            segments = list(self._segments)
        for segment in reversed(segments):
            if segment.head.first <= sequence:
                begin = segment.head.first
                if self._cursor and self._cursor[0] == begin and self._cursor[2] <= sequence:
                    return segment, self._cursor[1], self._cursor[2]
                return segment, segment.frames_at, begin
        what = f"records {sequence} to {segments[0].head.first - 1} are missing"
        raise SpoolDamagedError(segments[0].name, FRAMES_AT, what)

    def delete_below(self, sequence: int) -> None:
        """Delete the segments whose records are all below; the newest stays, for its head.

        From the oldest on, and each for certain before the next: a crash leaves no gap.
        """
        while True:
            with self._lock:
                if len(self._segments) == 1 or self._segments[0].next > sequence:
                    return
                segment = self._segments.pop(0)
            segment.close()
            self._disk.unlink(segment.name)
            self._disk.sync()

    def close(self) -> None:
        """Let go of the files. What was written and not synced is in doubt."""
        for segment in self._segments:
            segment.close()


def failed(error: OSError) -> SpoolFailedError:
    """Return what a failed write or sync means."""
    return SpoolFailedError(
        f"the spool cannot be written: {error.strerror or error}. What was under way may be"
        " accepted or not: see to the disk, then open the spool again, which finds out"
    )
