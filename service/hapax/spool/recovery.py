"""What a folder holds after a crash.

Only bytes that were not acknowledged can be torn, and they stand at the end of the last segment,
above its newest sound slot (frames.py): they are cut. Anything else that is not what was written
is damage, and is told with its place; nothing is changed then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.spool.errors import SpoolDamagedError
from hapax.spool.frames import FRAMES_AT
from hapax.spool.segment import LOG, NEW, Segment

if TYPE_CHECKING:
    from hapax.spool.disk import Disk


def recovered(disk: Disk, spool: bytes) -> list[Segment]:
    """Return the sound segments of a folder, everything in them durable.

    Raises SpoolDamagedError, and OSError when the disk does not do what it is asked.
    """
    names = disk.names()
    for name in names:
        if name.endswith(NEW):  # never had its name, so nothing in it was acknowledged
            disk.unlink(name)
    segments: list[Segment] = []
    logs = [name for name in names if name.endswith(LOG)]
    try:
        for name in logs:
            segment = Segment.opened(disk, name)
            segments.append(segment)
            _follow(segments, spool)
            _scan(segment, last=name == logs[-1])
        if segments:
            _make_durable(segments[-1])
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    return segments


def _follow(segments: list[Segment], spool: bytes) -> None:
    """Require that the last segment goes on where the one before it ends."""
    head = segments[-1].head
    name = segments[-1].name
    if head.spool != spool:
        raise SpoolDamagedError(name, FRAMES_AT, "it belongs to another spool")
    if len(segments) == 1:
        return
    former = segments[-2]
    if head.first != former.next:
        what = f"records {former.next} to {head.first - 1} are missing"
        if head.first < former.next:
            what = f"it begins with record {head.first}, and {former.name} ends later"
        raise SpoolDamagedError(name, FRAMES_AT, what)
    if head.previous != last_nonce(former):
        raise SpoolDamagedError(name, FRAMES_AT, f"it does not follow {former.name}")


def last_nonce(segment: Segment) -> bytes:
    """Return the nonce of the open that wrote the record before the segment's ``next``."""
    return segment.head.previous if segment.next == segment.head.first else segment.head.nonce


def _scan(segment: Segment, *, last: bool) -> None:
    """Find the end of the sound frames; raise when that is before what was acknowledged."""
    size, certified = segment.size(), segment.certified
    for at, frame in segment.frames(segment.end, size):
        if frame is None or frame.first != segment.next or not frame.entries:
            break
        segment.end = at + frame.size
        segment.next += frame.entries
        segment.position = frame.position or segment.position
    if segment.end < certified or (segment.end < size and not last):
        raise SpoolDamagedError(
            segment.name, segment.end, "the records that were acknowledged here are not sound"
        )
    segment.certified = max(segment.certified, FRAMES_AT)
    if not last:
        segment.certified = segment.durable = segment.end
        segment.certified_next = segment.next


def _make_durable(last: Segment) -> None:
    """Cut what is torn, and make durable what was not acknowledged but is sound."""
    if last.end < last.size():
        last.cut()
    last.rewrite(last.certified)
    last.sync()
    last.seal()
    last.certified_next = last.next
