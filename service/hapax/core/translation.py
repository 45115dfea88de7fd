"""Offsets of a topic to those of its mirror: where the other side has the same record. Pure.

The outputs of an input partition are in one partition of the mirror, in the order of the input,
each with the coordinates of its record. So the place of an offset is the first record there that
comes from it or from a later one, and can be found by halving: offsets of markers, of aborted and
of compacted records lie between, and cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import HapaxError
from hapax.core.headers import SOURCE, coordinates

if TYPE_CHECKING:
    from hapax.core.records import Record, TopicPartition


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one committed offset on the other side.

    committed  the group's offset in the input partition
    offset     the next one to read in the mirror: nothing before it is unread, nothing after it
               was read
    record     whether there is a record at ``offset``; else it is the end
    first      the first offset that the mirror still has
    """

    topic: str
    partition: int
    committed: int
    target: str
    offset: int
    record: bool
    first: int

    @property
    def cut(self) -> bool:
        """Whether the mirror has deleted records, which may have been the next ones to read."""
        return self.first > 0 and self.offset <= self.first


class Halving:
    """Looks for the first record of a partition that comes from an offset or a later one.

    at  where to look next: the first record from there on, and before ``end``, decides; None: found
    """

    def __init__(self, source: TopicPartition, committed: int, low: int, end: int) -> None:
        self._source = source
        self._committed = committed
        self._low, self._high = low, end
        self.found: int | None = None

    @property
    def at(self) -> int | None:
        """The offset to query next; None: there is none."""
        return None if self._low >= self._high else (self._low + self._high) // 2

    @property
    def end(self) -> int:
        """Where the look ends."""
        return self._high

    def see(self, record: Record | None) -> None:
        """Take the first record at ``at`` or after it, before ``end``; None: there is none."""
        at = self.at
        assert at is not None
        if record is None:
            self._high = at
            return
        source = coordinates(dict(record.headers).get(SOURCE))
        if source is None or source[:2] != self._source:
            raise HapaxError(
                f"{record.coordinates} does not come from {self._source[0]}/{self._source[1]}: the"
                " topic is no mirror, and offsets cannot be translated"
            )
        if source.offset >= self._committed:
            self.found, self._high = record.offset, at
        else:
            self._low = record.offset + 1
