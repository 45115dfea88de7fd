"""One partition of what waits in the order of its key (retry_line.py): places and lines. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hapax.core.headers import Retried
    from hapax.core.records import Record


class LinePlace(msgspec.Struct):
    """An original that waits.

    record, offset  as it was read; None: what was written for it has not been read back yet
    out             it was handed out, and what came of it is not committed
    """

    of: Coordinates
    line: Hashable
    due: int
    move: int
    record: Record | None = None
    offset: int | None = None
    out: bool = False
    unreadable: str = ""


class LinePart:
    """One partition. ``until``: it is read in when reading has come so far; None: not known."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.until: int | None = None
        self.ready = False
        self.full = False
        self.bytes = 0
        self.places: dict[Coordinates, LinePlace] = {}
        self.lines: dict[Hashable, list[int]] = {}
        self.offsets: list[int] = []  # of all places that were read, ascending
        self.heads: list[tuple[int, Coordinates]] = []  # by due time; some are out of date

    def first(self, line: Hashable) -> LinePlace | None:
        """Return the first place of a line."""
        numbers = self.lines.get(line)
        return None if not numbers else self.places[original_of(line, numbers[0])]

    def add(self, place: LinePlace) -> None:
        """Let an original wait, or wait on in another place."""
        known = self.places.get(place.of)
        if known is None:
            insort(self.lines.setdefault(place.line, []), place.of.offset)
        else:
            self._unread(known)
        self.places[place.of] = place
        if place.offset is not None:
            insort(self.offsets, place.offset)
            self.bytes += size_of(place.record)
        self.wake(place.line)

    def end(self, of: Coordinates) -> None:
        """Let an original wait no more."""
        place = self.places.pop(of, None)
        if place is None:
            return
        self._unread(place)
        numbers = self.lines[place.line]
        del numbers[bisect_left(numbers, of.offset)]
        if numbers:
            self.wake(place.line)
        else:
            del self.lines[place.line]

    def _unread(self, place: LinePlace) -> None:
        if place.offset is not None:
            del self.offsets[bisect_left(self.offsets, place.offset)]
            self.bytes -= size_of(place.record)

    def wake(self, line: Hashable) -> None:
        """Let the first of a line be handed out when it is due."""
        first = self.first(line)
        if first is not None and first.offset is not None and not first.out:
            heappush(self.heads, (first.due, first.of))

    def head(self) -> LinePlace | None:
        """Return the first of all lines that is due next."""
        while self.heads:
            due, of = self.heads[0]
            place = self.places.get(of)
            if (
                place is not None
                and place.due == due
                and not place.out
                and place.offset is not None
                and self.first(place.line) is place
            ):
                return place
            heappop(self.heads)
        return None


def line_of(of: Coordinates, record: Record) -> Hashable:
    """Return the line of a record: one without a key, or of another index, is alone in its own."""
    alone = record.key is None or of.partition != record.partition
    return (of.topic, of.partition, of.offset if alone else record.key)


def original_of(line: Hashable, offset: int) -> Coordinates:
    """Return the original of a line at an offset."""
    assert isinstance(line, tuple)
    return Coordinates(line[0], line[1], offset)


def place_of(record: Record, retried: Retried) -> LinePlace:
    """Return where the original of a record waits."""
    of = Coordinates.parse(retried.of)
    return LinePlace(of, line_of(of, record), retried.due, retried.move)


def size_of(record: Record | None) -> int:
    """Return the bytes of a record; 0 for None."""
    if record is None:
        return 0
    known = len(record.value or b"") + len(record.key or b"")
    return known + sum(len(name) + len(value or b"") for name, value in record.headers)
