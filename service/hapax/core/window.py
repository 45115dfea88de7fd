"""The window: records between intake and plan whose calls are made alongside each other.

Records enter per partition in input order and leave as the finished prefix of their partition, so
that plan, transaction and settle see what they always see: outputs in input order, and no offset
beyond an unfinished record. Results are kept by coordinates: after an abort the same records are
read again and meet their results, so that no function is called twice without a crash.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hapax.core.begun import Begun
from hapax.core.calls import PENDING, Call, key_of
from hapax.core.claiming import Claimed
from hapax.core.identity import Identified
from hapax.core.ports import Batch
from hapax.core.transform import Undecided

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from hapax.core.records import Progress, Record, TopicPartition


class Window:
    """Calls by partition, in input order. One thread only; results may come from others.

    records, bytes  of the records inside, values alone
    """

    def __init__(self) -> None:
        self._lines: dict[TopicPartition, deque[Call]] = {}
        self._kept: dict[TopicPartition, dict[int, Call]] = {}
        """Calls whose records were put back, by offset: they are read again."""
        self._ends: Progress = {}
        self.records = 0
        self.bytes = 0

    def depth(self, where: TopicPartition) -> int:
        """Return how many records of a partition are inside."""
        return len(self._lines.get(where, ()))

    def firsts(self) -> Progress:
        """Return by partition the offset of the first record inside."""
        return {where: line[0].record.offset for where, line in self._lines.items()}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions with records inside."""
        return list(self._lines)

    def admit(self, batch: Batch, begun: Begun) -> list[Call]:
        """Let the records of a batch in; return those calls that are to be made.

        What has its fate already (a duplicate, a record without a readable id) is not called.
        """
        assert begun.claimed is not None
        fates, unchecked = begun.fates, begun.claimed.unchecked
        taken_over = begun.claimed.taken_over
        new: list[Call] = []
        for index, record in enumerate(batch.records):
            where = (record.topic, record.partition)
            call = self._known(where, record)
            if call is None:
                call = Call(record, begun.found.ids[index], self._key(record), unchecked=unchecked)
            call.unchecked = unchecked
            call.taken_over |= index in taken_over
            call.fate = fates.get(index, PENDING)
            if self._enter(where, call):
                new.append(call)
            self.records += 1
            self.bytes += len(record.value or b"")
        self._ends.update(batch.next)
        return new

    def ready(self, records_max: int) -> tuple[Batch, Begun] | None:
        """Return the finished prefix of each partition, no more than so many records.

        They stay inside until ``settle`` or ``put_back``.
        """
        records: list[Record] = []
        begun = Begun(Identified([], [], {}, {}), None, {"identify": 0.0}, results=[])
        batch = Batch(records, {}, {})
        unchecked = None
        taken_over: list[int] = []
        for where, line in self._prefixes():
            for count, call in enumerate(line):
                if not call.done or len(records) >= records_max:
                    break
                if unchecked is None:
                    unchecked = call.unchecked
                elif unchecked != call.unchecked:
                    break
                if call.taken_over:
                    taken_over.append(len(records))
                records.append(call.record)
                begun.add(call.id, call.outcome)
                last = count + 1 == len(line)
                batch.first.setdefault(where, call.record.offset)
                after = call.record.offset + 1
                batch.next[where] = self._ends.get(where, after) if last else after
        if not records:
            return None
        batch.next.update(self.loose_ends())
        begun.claimed = Claimed(
            {}, checked=not unchecked, unchecked=bool(unchecked), taken_over=taken_over
        )
        return batch, begun

    def hand_over_ends(self) -> Progress:
        """Return and forget the ends of partitions without a record inside."""
        loose = self.loose_ends()
        for where in loose:
            del self._ends[where]
        return loose

    def loose_ends(self) -> Progress:
        """Return the ends of partitions without a record inside."""
        return {where: end for where, end in self._ends.items() if where not in self._lines}

    def settle(self, progress: Mapping[TopicPartition, int]) -> None:
        """Let go of what lies below these offsets: it has had its effect."""
        for where, offset in progress.items():
            line = self._lines.get(where)
            while line and line[0].record.offset < offset:
                self._leave(line.popleft())
            if not line:
                self._lines.pop(where, None)
                if self._ends.get(where, offset + 1) <= offset:
                    del self._ends[where]
            if where in self._kept:
                self._purge(where, offset)

    def put_back(self) -> Progress:
        """Take everything out; return per partition where to read again.

        The calls continue, and their records find them when they are read again.
        """
        first: Progress = {}
        for where, line in self._lines.items():
            first[where] = line[0].record.offset
            kept = {one.record.offset: one for one in line if not isinstance(one.result, Undecided)}
            self._kept.setdefault(where, {}).update(kept)
        self._lines, self._ends = {}, {}
        self.records = self.bytes = 0
        return first

    def forget(self, partitions: Collection[TopicPartition]) -> list[Call]:
        """Drop partitions that left; return their calls, whose results are not wanted."""
        gone: list[Call] = []
        for where in partitions:
            line = self._lines.pop(where, deque())
            self._ends.pop(where, None)
            for call in line:
                self._leave(call)
            gone += line
            gone += self._kept.pop(where, {}).values()
        return gone

    def cut(self, begun: Collection[Call]) -> None:
        """Leave out what is neither finished nor among ``begun``, and all after it."""
        for where, line in list(self._lines.items()):
            keep = next(
                (at for at, call in enumerate(line) if not call.done and call not in begun),
                len(line),
            )
            if keep < len(line):
                self._ends[where] = line[keep].record.offset
            while len(line) > keep:
                call = line.pop()
                call.dropped = True
                self._leave(call)
            if not line:
                del self._lines[where], self._ends[where]

    def _key(self, record: Record) -> Hashable:
        """Return what orders the calls of a record."""
        return key_of(record)

    def _enter(self, where: TopicPartition, call: Call) -> bool:
        """Let a call in; return whether it is to be made now."""
        self._lines.setdefault(where, deque()).append(call)
        return not call.started and not call.done

    def _prefixes(self) -> Iterable[tuple[TopicPartition, Sequence[Call]]]:
        """Return what leaves in order: each as far as it has finished."""
        return self._lines.items()

    def _leave(self, call: Call) -> None:
        self.records -= 1
        self.bytes -= len(call.record.value or b"")

    def _known(self, where: TopicPartition, record: Record) -> Call | None:
        """Return the call of a record that was put back, if this is the very record."""
        kept = self._kept.get(where)
        if not kept:
            return None
        call = kept.pop(record.offset, None)
        if not kept:
            del self._kept[where]
        return call if call is not None and call.record == record else None

    def _purge(self, where: TopicPartition, offset: int) -> None:
        kept = {at: call for at, call in self._kept.pop(where).items() if at >= offset}
        if kept:
            self._kept[where] = kept
