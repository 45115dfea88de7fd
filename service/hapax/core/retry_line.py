"""What waits in order of its key: the state of the retry topic with HAPAX_RETRY__ORDER=key. Pure.

Partition i of the retry topic holds what waits of the input partitions of index i, and is read in
as a log: a record that waits replaces the one before it that stands for the same original, and a
small record ("done") ends that original. So records of different keys may end in any order. The
committed offset of the partition is the lowest offset of a record that still waits; reading in
from there builds the same state again.

A line is the records of one key of one input partition that wait, in the order in which they first
came. Only its first may be called before the others; a record of the input whose line waits goes to
its end without a call. A record without a key is a line of its own.

Nothing is handed out, of the partition or of its inputs, before it has been read in (``ready``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.headers import DONE, Retried, coordinates
from hapax.core.line_part import LinePart, line_of, original_of, place_of
from hapax.core.retry_later import Put, Stay

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from hapax.core.records import Coordinates, Record
    from hapax.core.retry_later import RetryTopic
    from hapax.core.transform import Result

RECORDS_MAX, BYTES_MAX = 10_000, 16 << 20
"""Of one partition; when as much waits its inputs are held until half of it is done."""


class RetryLine:
    """The lines of the partitions that are read here. One thread only; ``count`` by any.

    firsts_only  of a line only the first is handed out, and the next one when that has ended: a
                 window (line_window.py) does not commit what is taken together together
    """

    def __init__(self, topic: RetryTopic) -> None:
        self.topic = topic
        self.firsts_only = False
        self._parts: dict[int, LinePart] = {}

    # -- reading in -------------------------------------------------------------------------

    def drop(self, index: int) -> None:
        """Forget a partition: it left, or is read in again."""
        self._parts.pop(index, None)

    def clear(self) -> None:
        """Forget everything."""
        self._parts.clear()

    def doubt(self, index: int) -> None:
        """Hand nothing out until the end of the partition has been asked for again."""
        part = self._part(index)
        part.until, part.ready = None, False

    def unasked(self, index: int) -> bool:
        """Whether the end up to which to read in is not known."""
        return self._part(index).until is None

    def expect(self, index: int, until: int) -> None:
        """Read in up to there: the high watermark.

        It must have been asked for after the stable committed offsets of this partition and its
        inputs: then all that belongs to those offsets lies below it, also where the markers of a
        transaction are still under way.
        """
        self._part(index).until = until
        self._look(index)

    def reach(self, index: int, position: int) -> None:
        """Take note that reading has come to ``position``."""
        part = self._part(index)
        part.position = max(part.position or 0, position)
        self._look(index)

    def read(self, record: Record, unreadable: str = "") -> None:
        """Take in the next record of a partition."""
        part = self._part(record.partition)
        headers = dict(record.headers)
        if DONE in headers and not unreadable:
            done = coordinates(headers[DONE])
            if done is not None:
                part.end(done)
                self.reach(record.partition, record.offset + 1)
                return
        retried = None if unreadable else self.topic.read(record)
        if retried is None:  # it names no input: step 4 makes a dead letter of it
            retried = Retried(
                of=str(record.coordinates),
                timestamp=record.timestamp_ms,
                attempt=0,
                calls=0,
                move=0,
                until=0,
                due=0,
            )
        place = place_of(record, retried)
        known = part.places.get(place.of)
        if known is None or known.move <= place.move:
            place.record, place.offset, place.unreadable = record, record.offset, unreadable
            part.add(place)
        self.reach(record.partition, record.offset + 1)

    def _look(self, index: int) -> None:
        part = self._part(index)
        if part.until is not None and part.position is not None:
            part.ready = part.ready or part.position >= part.until

    # -- handing out ------------------------------------------------------------------------

    def ready(self, index: int) -> bool:
        """Whether a partition has been read in."""
        part = self._parts.get(index)
        return part is not None and part.ready

    def open(self, index: int) -> bool:
        """Whether records of the inputs may be taken: it is read in, and there is room."""
        part = self._parts.get(index)
        if part is None or not part.ready:
            return False
        share = 2 if part.full else 1
        part.full = len(part.places) * share >= RECORDS_MAX or part.bytes * share >= BYTES_MAX
        return not part.full

    def due_ms(self) -> int | None:
        """Return when the next record is due; None: none waits that could be called."""
        heads = [part.head() for part in self._parts.values() if part.ready]
        return min((place.due for place in heads if place is not None), default=None)

    def take(self, count: int, now_ms: int) -> list[tuple[Record, str]]:
        """Hand out what is due, up to ``count``: records, and why one cannot be read.

        After the first of a line come its next ones that are due: they are called if it ends.
        """
        found: list[tuple[Record, str]] = []
        for part in self._parts.values():
            while part.ready and len(found) < count:
                place = part.head()
                if place is None or place.due > now_ms:
                    break
                for offset in list(part.lines[place.line]):
                    follower = part.places[original_of(place.line, offset)]
                    record = follower.record
                    if record is None or follower.due > now_ms or len(found) >= count:
                        break
                    follower.out = True
                    found.append((record, follower.unreadable))
                    if self.firsts_only:
                        break
        return found

    def last_is_out(self, index: int, line: Hashable) -> bool:
        """Whether only one of a line waits, and was handed out."""
        part = self._parts.get(index)
        first = None if part is None else part.first(line)
        return first is not None and first.out and len(self.waiting(index, line)) == 1

    def waiting(self, index: int, line: Hashable) -> Sequence[int]:
        """Return the offsets of the originals of a line that wait, ascending."""
        part = self._parts.get(index)
        return () if part is None else part.lines.get(line, ())

    # -- what came of it --------------------------------------------------------------------

    def settle(self, records: Sequence[Record], results: Sequence[Result | None]) -> None:
        """Note what was committed for the first records of a batch."""
        for record, result in zip(records, results, strict=False):
            part = self._part(record.partition)
            if isinstance(result, Put):
                part.add(place_of(record, result.retried))
            elif record.topic != self.topic.name:
                continue
            elif isinstance(result, Stay):
                place = part.places.get(self.topic.original(record))
                if place is not None:
                    place.out = False
                    part.wake(place.line)
            else:
                part.end(self.topic.original(record))

    def spot(self, record: Record) -> tuple[Coordinates, Hashable]:
        """Return where a record of the topic or of an input first came, and its line."""
        of = self.topic.original(record)
        return of, line_of(of, record)

    def floor(self, index: int, done: Collection[int] = ()) -> int | None:
        """Return the offset to commit when the records at ``done`` have ended; None: not known."""
        part = self._parts.get(index)
        if part is None:
            return None
        return next((offset for offset in part.offsets if offset not in done), part.position)

    def waits(self) -> dict[Coordinates, int]:
        """Return what waits, by original: when it is due."""
        parts = self._parts.values()
        return {place.of: place.due for part in parts for place in part.places.values()}

    @property
    def count(self) -> int:
        """How many records wait."""
        return sum(len(part.places) for part in list(self._parts.values()))

    def _part(self, index: int) -> LinePart:
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = LinePart()
        return part
