"""Marks in the metadata of offsets that are worked at, and what marks of dead processes mean.

The rule is in processing/crash_markers.py. A partition is on probation from its assignment until
as much as one batch may hold has passed, or its end was met; beyond that nothing is marked or asked
for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from hapax.core.offset_commit import Mark
from hapax.processing.crash_markers import suspects_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from hapax.core.offset_commit import Marks
    from hapax.core.ports import Changes, Source
    from hapax.core.record_path import Batch
    from hapax.core.records import Progress, TopicPartition
    from hapax.processing.batch_result import Core
    from hapax.processing.crash_markers import Isolation
    from hapax.telemetry.events import Events


class Probation(msgspec.Struct):
    """One partition since its assignment.

    deaths  found when it was assigned; they count until its offset moves
    left    offsets until nothing is marked any more
    offset  where the own mark is; None: none does, or an abort left it open
    mark    that mark
    base    the committed offset, until this process moves it; None: not known, or moved
    moved   whether this process committed progress since the assignment
    """

    deaths: int
    left: int
    offset: int | None = None
    mark: Mark | None = None
    base: int | None = None
    moved: bool = False


class Suspects:
    """What is known of the assigned partitions. One thread only."""

    def __init__(
        self, source: Source, core: Core, isolation: Isolation, events: Events, *, records_max: int
    ) -> None:
        self._source = source
        self._core = core
        self._isolation = isolation
        self._events = events
        self._records_max = records_max
        self._marks = True
        self._trusted: set[TopicPartition] = set()
        self._probation: dict[TopicPartition, Probation] = {}
        self._ours: dict[TopicPartition, Mark] = {}
        """Marks of this process that remain in metadata: their partition left, or a task ended."""

    def observe(self, changes: Changes) -> None:
        for where in changes.moved:
            self._trusted.discard(where)
            self._isolation.forget(where)
            known = self._probation.pop(where, None)
            if known is not None and known.mark is not None:
                self._ours[where] = known.mark

    def mark(self, batch: Batch, inside: Progress | None = None) -> None:
        """Make sure that a death over this batch is seen.

        ``inside``: by partition the first record that is in work already, before those of the
        batch. In the steady state one comparison of sets. Raises what a transaction raises.
        """
        where_from = batch.first.keys()
        if where_from <= self._trusted:
            return
        wanted: Marks = {}
        bases = self._find_bases(where_from - self._trusted)
        for where in where_from - self._trusted:
            known = self._probation.get(where) or self._judge(where, batch.first[where])
            end = batch.next[where]
            known.base = bases.get(where, known.base)
            if known.base is not None:
                batch.base[where] = known.base
            mark = known.mark
            if mark is None or (mark.until is not None and mark.until < end):
                wanted[where] = Mark(known.deaths + 1, end)
            self._mark_after(where, known, batch, inside=False)
        if wanted and self._marks:
            # At the committed offset: below the first record others may have been removed, which
            # had no effect (processing/deduplicate.py).
            places = {**batch.first, **(inside or {}), **batch.base}
            self._commit({where: places[where] for where in wanted}, wanted)

    def mark_next(self, batch: Batch, depth: Callable[[TopicPartition], int]) -> None:
        """``depth``: how many records of a partition are inside, those of the batch among them."""
        open_ = {where: known for where, known in self._probation.items() if where in batch.first}
        if not open_:
            return
        leaving = Counter((record.topic, record.partition) for record in batch.records)
        for where, known in open_.items():
            self._mark_after(where, known, batch, inside=depth(where) > leaving[where])

    def _mark_after(
        self, where: TopicPartition, known: Probation, batch: Batch, *, inside: bool
    ) -> None:
        """Write with what ``batch`` commits that more is in work, or soon will be."""
        end, suspects = batch.next[where], self._isolation.suspects.get(where)
        if suspects is not None and suspects[0] > end:
            batch.marks[where] = Mark(1, suspects[0])
        elif inside or known.left > end - batch.first[where]:
            batch.marks[where] = Mark(1)

    def _find_bases(self, partitions: Iterable[TopicPartition]) -> Progress:
        """Look up the committed offsets of partitions in which nothing was committed here yet."""
        new = [
            where
            for where in sorted(partitions)
            if (known := self._probation.get(where)) is None
            or (known.base is None and not known.moved)
        ]
        if not new:
            return {}
        places = self._source.processed()  # where a partition without an offset has begun
        for where, offset in self._source.committed(new).items():
            if offset is not None:
                places[where] = offset
        return {where: places[where] for where in new if where in places}

    def record_progress(
        self, progress: Mapping[TopicPartition, int], batch: Batch | None = None
    ) -> None:
        if not self._probation:
            return
        for where, offset in progress.items():
            self._ours.pop(where, None)
            known = self._probation.get(where)
            if known is None:
                continue
            if batch is not None and where in batch.first:
                known.left -= offset - batch.first[where]
            known.deaths = 0
            known.base, known.moved = None, True
            known.mark = None if batch is None else batch.marks.get(where)
            known.offset = None if known.mark is None else offset
            self._isolation.record_progress(where, offset)
            if known.left <= 0 and known.mark is None:
                self._trust(where)

    def fail(self) -> None:
        """Take note that a transaction failed: which marks are committed is open."""
        for known in self._probation.values():
            known.mark = known.offset = known.base = None

    def idle(self, ends: Collection[TopicPartition]) -> None:
        """Take note that nothing came: marks are cleared, and what is left to read is trusted.

        Not while there are suspects, unless the partition was read to its end: after a rewind a
        slow fetch brings nothing, either.
        """
        suspects = self._isolation.suspects
        open_ = [where for where in self._probation if where in ends or where not in suspects]
        met = {*open_, *(where for where in ends if where not in self._trusted)}
        if met:
            self._clear(open_)
            for where in met:
                self._trust(where)

    def leave(self) -> None:
        """Clear the marks, so that the successor suspects nothing."""
        self._clear(list(self._probation))

    def _trust(self, where: TopicPartition) -> None:
        self._isolation.forget(where)
        self._probation.pop(where, None)
        self._trusted.add(where)

    def _clear(self, partitions: Iterable[TopicPartition]) -> None:
        standing = {
            where: known.offset
            for where in partitions
            if (known := self._probation[where]).offset is not None
        }
        if standing:
            self._commit(standing, {})

    def _commit(self, offsets: Progress, marks: Marks) -> None:
        self._core.end(offsets, marks)
        self._source.mark_processed(offsets)
        for where, offset in offsets.items():
            self._ours.pop(where, None)
            known = self._probation[where]
            known.mark = marks.get(where)
            known.offset = None if known.mark is None else offset

    def _judge(self, where: TopicPartition, first: int) -> Probation:
        found = self._source.beside(where)
        mine = self._ours.get(where)
        if found.deaths and mine == Mark(found.deaths, found.until):
            found = msgspec.structs.replace(found, deaths=found.deaths - 1)  # its writer lives
        known = self._probation[where] = Probation(found.deaths, 2 * self._records_max)
        until = suspects_until(found, first, self._records_max)
        if until is not None and until > first:
            self._isolation.suspect(where, until, found.deaths)
            self._events.records_isolated(where, first, until, found.deaths)
        return known
