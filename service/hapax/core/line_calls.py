"""Step 4 with HAPAX_RETRY__ORDER=key: of each key only the first that waits is called.

What a batch holds of the retry topic comes before its records of the inputs, and in the order of
its line (retry_line.py); so one pass over the batch decides which is called, which remains
and which waits after others. Calls that overlap have their turns in a window: line_window.py.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hapax.core.errors import BatchAbortedError
from hapax.core.later_calls import LaterCalls
from hapax.core.retry_later import NOT_OURS, STAY, Put, Stay, put_behind
from hapax.core.transform import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from hapax.core.headers import Retried
    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import AppliesAll
    from hapax.core.records import Progress, Record
    from hapax.core.retry_later import Later, Retrying
    from hapax.core.retry_line import RetryLine
    from hapax.core.transform import Result


class LineCalls(LaterCalls):
    """Makes the calls whose turn it is, one at a time, and says where the other records wait.

    ``line``: what waits; it is that of the source.
    """

    def __init__(
        self,
        calls: AppliesAll,
        retrying: Retrying,
        line: RetryLine,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(calls, retrying, now_ms=now_ms)
        self._line = line

    def apply_all(
        self,
        records: Sequence[Record],
        interrupt: Interrupt,
        fates: dict[int, Result | None],
        known: Mapping[int, Result | None] = MappingProxyType({}),
    ) -> list[Result | None]:
        """Return the results of the records, as the port says.

        ``known``: by index the results of calls before an abort. They count only for a record whose
        turn it is: the batch is smaller now, and what ended before it then may wait now.
        Raises BatchAbortedError when what waits of a partition is not known.
        """
        results: list[Result | None] = []
        turns = Turns(self._line)
        called = False
        for index, record in enumerate(records):
            self._require(record.partition)
            of, line = self._line.spot(record)
            if index in fates:  # what is never called needs no turn
                result = fates[index]
            elif turns.waits(record.partition, line, of.offset):
                result = self._unturned(record)
            elif index in known:
                result = known[index]
            elif interrupt.due and called:
                break
            else:
                called = True
                result = self._call(record, interrupt)
            results.append(result)
            turns.note(line, of.offset, ended=not isinstance(result, Put | Stay))
        return results

    def _unturned(self, record: Record) -> Result | None:
        """Return what becomes of a record whose line waits."""
        if record.topic == self._topic.name:
            return STAY
        return put_behind(record, self._now_ms())

    def _call(self, record: Record, interrupt: Interrupt) -> Result | None:
        if record.topic == self._topic.name:
            found = self._topic.read(record)
            if found is None:
                return Failure("Poison", NOT_OURS, 1)
            if found.due > self._now_ms():
                return STAY
        (result,) = super().finish([record], self._calls.apply_all([record], interrupt, {}))
        return result

    def not_due(self, records: Sequence[Record]) -> dict[int, Result | None]:
        """Return by index the results of records that are not to be called now."""
        known = super().not_due(records)
        return {index: STAY if isinstance(fate, Put) else fate for index, fate in known.items()}

    def finish(
        self,
        records: Sequence[Record],
        results: list[Result | None],
        kept: Collection[int] = (),
    ) -> list[Result | None]:
        """Return results with the places of those that wait, for calls of a window.

        Raises BatchAbortedError when what waits of a partition is not known.
        """
        for record in records:
            self._require(record.partition)
        return super().finish(records, results, kept)

    def _later(self, record: Record, before: Retried | None, asked: Later) -> Result:
        result = super()._later(record, before, asked)
        if not isinstance(result, Put):
            return result
        retried = replace(result.retried, until=result.retried.due)
        return replace(result, retried=retried, level=record.partition)

    def _require(self, index: int) -> None:
        if not self._line.ready(index):
            raise BatchAbortedError(f"what waits of partition {index} is not known")

    def progress(
        self, taken: Progress, records: Sequence[Record], results: Sequence[Result | None]
    ) -> Progress:
        """Return progress with the offsets that the retry topic has when this is committed.

        Of each partition of which the batch holds records: who may not commit there any more has
        not seen what waits, and must not commit theirs.
        """
        retry = self._topic.name
        ended: dict[int, set[int]] = {where[1]: set() for where in taken}
        for record, result in zip(records, results, strict=False):
            if record.topic == retry and not isinstance(result, Stay):
                ended[record.partition].add(record.offset)
        floors = {index: self._line.floor(index, done) for index, done in ended.items()}
        inputs = {where: offset for where, offset in taken.items() if where[0] != retry}
        return inputs | {(retry, i): floor for i, floor in floors.items() if floor is not None}

    def settle(self, records: Sequence[Record], results: Sequence[Result | None]) -> None:
        """Take note that this was committed."""
        self._line.settle(records, results)


def with_waits(
    calls: AppliesAll, retrying: Retrying, line: RetryLine | None, *, now_ms: Callable[[], int]
) -> AppliesAll:
    """Return step 4 with records that wait, where they may; ``line``: that of the source."""
    if retrying.topic is None:
        return calls
    if line is not None:
        return LineCalls(calls, retrying, line, now_ms=now_ms)
    return LaterCalls(calls, retrying, now_ms=now_ms)


class Turns:
    """Whose turn it is within one batch."""

    def __init__(self, line: RetryLine) -> None:
        self._line = line
        self._blocked: set[Hashable] = set()
        self._ended: dict[Hashable, set[int]] = {}
        self._passed: dict[Hashable, int] = {}

    def waits(self, index: int, line: Hashable, offset: int) -> bool:
        """Whether one before it in its line waits on."""
        if line in self._blocked:
            return True
        waiting, ended = self._line.waiting(index, line), self._ended.get(line, ())
        at = self._passed.get(line, 0)
        while at < len(waiting) and waiting[at] < offset and waiting[at] in ended:
            at += 1
        self._passed[line] = at
        return at < len(waiting) and waiting[at] < offset

    def note(self, line: Hashable, offset: int, *, ended: bool) -> None:
        """Take note of what was decided about a record."""
        if ended:
            self._ended.setdefault(line, set()).add(offset)
        else:
            self._blocked.add(line)
