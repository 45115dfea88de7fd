"""Whether a process died over the records at a committed offset, and which ones are suspects.

A process that is killed by a record logs nothing. So it writes beforehand, with the offset that it
works at, that it is at work there (``Mark``); who finds the mark later knows that a process ended
without committing. Progress drops it, and costs nothing for it:

1  first records of a partition since its assignment: the same offset is committed once more, with
   ``deaths`` one above what was found and ``until`` the end of the batch
2  each commit carries a mark for the batch after it, until as many records as one batch may hold
   have passed since the assignment, or there was nothing to read. What a dead process held lies
   within them: its batch was not larger
3  found with deaths: ``suspects_until`` returns up to where ``Isolation`` makes each call of the
   transform in a process of its own

That process may crash, run out of memory or hang: the record in its hands is the culprit and
becomes a dead letter. No kill from outside can condemn a record: what kills the service ends the
other process with it; and a record whose process ends by a signal that others send (a kill, want of
memory) is called again, alone, and condemned when ``KILLS_MAX`` processes in a row have ended so.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

import msgspec

from hapax.core.errors import BatchAbortedError
from hapax.core.offset_commit import CommittedMetadata, Mark
from hapax.core.record_path import Batch
from hapax.core.records import size_of_all
from hapax.core.results import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import AppliesAll
    from hapax.core.record_path import Preset, Results
    from hapax.core.records import Record, TopicPartition
    from hapax.core.results import Result

KILLED = "Killed"
"""Reason of the dead letter."""
KILLS_MAX = 3


def marked(text: str | None, mark: Mark) -> str:
    known = CommittedMetadata.decode(text)
    return msgspec.structs.replace(known, deaths=mark.deaths, until=mark.until).encode()


def suspects_until(found: CommittedMetadata, first: int, records_max: int) -> int | None:
    """Return the end (exclusive) of the suspects; None when no process died here.

    found        the metadata of the committed offset when the partition was assigned
    first        offset of the first record at or after it
    records_max  most records of one batch

    Without a known end the range is twice as wide as a batch: control records and compaction leave
    gaps among the offsets.
    """
    if not found.deaths:
        return None
    return found.until if found.until is not None else first + 2 * records_max


class IsolationError(Exception):
    """There is no other process to make calls in."""


class Death(Exception):  # noqa: N818 - what happened, not a mistake
    """The other process ended, or did not return, inside of a call. The text has the details."""

    def __init__(self, how: str, *, hung: bool) -> None:
        super().__init__(how)
        self.hung = hung


class KilledFromOutside(Death):
    """It ended by a signal that others send, too."""


class Elsewhere(Protocol):
    """Makes calls of the transform in a process of its own."""

    def call(self, records: Sequence[Record]) -> Sequence[Result]:
        """Return the results, called together as far as allowed; raise Death or IsolationError."""

    def close(self) -> None:
        """End the process; the next call starts another one."""


class Isolation:
    """Sends suspects to another process, and all other records to ``transformer``.

    suspects  by partition: offset below which its records are suspects, and the deaths so far
    at_once   how many of them are called together, where calls overlap
    """

    def __init__(
        self,
        transformer: AppliesAll,
        elsewhere: Elsewhere,
        *,
        on_death: Callable[[Record, str, int], object],
        on_failure: Callable[[str], object],
        at_once: int = 1,
    ) -> None:
        self.suspects: dict[TopicPartition, tuple[int, int]] = {}
        self._transformer = transformer
        self._elsewhere = elsewhere
        self._on_death = on_death
        self._on_failure = on_failure
        self._hung: set[TopicPartition] = set()
        self._at_once = at_once

    def apply_all(self, batch: Batch, interrupt: Interrupt, preset: Preset) -> Results:
        """Return the results as the transformer does; without suspects no record pays for this."""
        if not self.suspects:
            return self._transformer.apply_all(batch, interrupt, preset)
        records = batch.records
        results: list[Result | None] = []
        called = False
        while len(results) < len(records):
            index = len(results)
            if index in preset:
                results.append(preset[index])
                continue
            if interrupt.due and called:
                break
            called = True
            group = self._together(records, index, preset)
            results += (
                self.call(group, interrupt) if group else [self._here(records[index], interrupt)]
            )
        return results

    def _together(
        self, records: Sequence[Record], index: int, preset: Container[int]
    ) -> list[Record]:
        """Return the suspects from ``index`` on that are called together; empty: it is none."""
        places = range(index, min(len(records), index + self._at_once))
        held = takewhile(lambda at: at not in preset and self.holds(records[at]), places)
        return [records[at] for at in held]

    def suspect(self, where: TopicPartition, until: int, deaths: int) -> None:
        self.suspects[where] = (until, deaths)

    def record_progress(self, where: TopicPartition, offset: int) -> None:
        """Take note that everything below has had its effect.

        After a call that hung the rest continues without isolation: what it waited for (a database
        that is away) may make every call hang, and each of them would be condemned.
        """
        known = self.suspects.get(where)
        if known is not None and (offset >= known[0] or where in self._hung):
            self.forget(where)

    def forget(self, where: TopicPartition) -> None:
        self._hung.discard(where)
        if self.suspects.pop(where, None) is not None and not self.suspects:
            self._elsewhere.close()

    def close(self) -> None:
        self._elsewhere.close()

    def holds(self, record: Record) -> bool:
        if not self.suspects:
            return False
        return record.offset < self.suspects.get((record.topic, record.partition), (0, 0))[0]

    def call(self, records: Sequence[Record], interrupt: Interrupt) -> list[Result | None]:
        """Return the results of suspects, called together.

        When their process dies each is called alone, from the first on: that names the culprit.
        Raises BatchAbortedError where there is no such process: they wait until there is one.
        """
        if len(records) > 1:
            with suppress(Death):
                return list(self._call(records, interrupt))
        results: list[Result | None] = []
        for record in records:
            if results and interrupt.due:
                break
            results.append(self._apply(record, interrupt))
        return results

    def _apply(self, record: Record, interrupt: Interrupt) -> Result | None:
        where = (record.topic, record.partition)
        until, deaths = self.suspects.get(where, (0, 0))
        if record.offset >= until:
            return self._here(record, interrupt)
        try:
            return self._alone(record, interrupt)  # an attempt has a limit of its own there
        except Death as death:
            if death.hung:
                self._hung.add(where)
                interrupt.due = True
            self._on_death(record, str(death), deaths + 1)
            return Failure(
                KILLED,
                f"killed its process {deaths + 1} times, the last time in one of its own: {death}",
                deaths + 1,
            )

    def _alone(self, record: Record, interrupt: Interrupt) -> Result:
        for _ in range(KILLS_MAX - 1):
            with suppress(KilledFromOutside):
                return self._call([record], interrupt)[0]
        return self._call([record], interrupt)[0]

    def _call(self, records: Sequence[Record], interrupt: Interrupt) -> Sequence[Result]:
        try:
            results = self._elsewhere.call(records)
        except IsolationError as error:
            self._on_failure(str(error))
            raise BatchAbortedError(str(error)) from error
        interrupt.weigh(interrupt.bytes + size_of_results(results))
        return results

    def _here(self, record: Record, interrupt: Interrupt) -> Result | None:
        return self._transformer.apply_all(Batch([record]), interrupt, {})[0]


def size_of_results(results: Sequence[Result | None]) -> int:
    """Return the bytes of their outputs, as a call that is made here counts them."""
    return sum(size_of_all(result) for result in results if isinstance(result, tuple))
