"""Composition of ``hapax offsets`` and ``hapax lag``: where a group is, what it has not read.

For lag in records:

1. committed  the group's offsets, in the topics that were named or in all that it has one in
2. logs       where these begin and end, asked after the offsets: none is beyond its log
3. records    the committed ones between both; where some offsets hold none, all of them as well
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.core.changes import Stuck  # noqa: TC001 - msgspec reads the types
from hapax.core.errors import PreflightError
from hapax.core.partition_offsets import PartitionOffsets
from hapax.core.reader_lag import Counted, ReaderLag, shares, stretch
from hapax.kafka.read.group_start import positions
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import COUNTING, RangeReader, count_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hapax.core.partition_offsets import LogOffsets
    from hapax.core.records import TopicPartition
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.read.offsets_client import Isolation, OffsetsClient
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.operations.reading import Tell
    from hapax.settings import Settings

OLDEST_WITHIN_S = 5.0


class Look(PartitionOffsets, frozen=True, kw_only=True):
    """One input partition with the age of what is unread.

    oldest_ms  timestamp of the oldest unread record, Unix time; None: none, or not known
    stuck      the set at the next offset, which cannot be decoded; None: none is known
    empty      whether the unread offsets hold no record, only markers and aborted ones
    """

    oldest_ms: int | None = None
    empty: bool = False
    stuck: Stuck | None = None

    def lag_s(self, now_ms: int) -> float | None:
        """Age of the oldest unread record; 0.0 when nothing is unread, None: not known."""
        if not self.lag or self.empty:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1000)


class Looks:
    """Looks at all input partitions, as often as it is asked to."""

    def __init__(self, settings: Settings, client: BlockingOffsets) -> None:
        self._settings = settings
        self._client = client
        self._reader = RangeReader(settings)

    def look(self) -> list[Look]:
        client = self._client
        places = client.partitions(self._settings.input.topics)
        answers = client.answers(places, stable=False)
        # After what they are compared with, so that no committed offset is beyond its log.
        logs = client.log_offsets(places)
        nexts = positions(self._settings, answers, logs)
        found = [
            Look(
                topic=where[0],
                partition=where[1],
                log=logs[where],
                committed=answers[where].offset if answers[where].offset >= 0 else None,
                position=nexts[where],
            )
            for where in places
        ]
        return self._dated(found)

    def _dated(self, found: list[Look]) -> list[Look]:
        unread = {
            one.where: (max(one.position or 0, one.log.log_start), one.log.last_stable)
            for one in found
            if one.lag
        }
        self._reader.undecodable.clear()
        oldest = self._reader.firsts(unread, OLDEST_WITHIN_S)
        stuck = self._reader.undecodable
        return [
            msgspec.structs.replace(_dated(one, oldest), stuck=stuck.get(one.where))
            for one in found
        ]


def _dated(one: Look, oldest: dict[TopicPartition, ReadRecord | None]) -> Look:
    """Return it with the age of its oldest unread record, as far as its broker answered."""
    if one.where not in oldest:
        return one
    first = oldest[one.where]
    if first is None:
        return msgspec.structs.replace(one, empty=True)
    return msgspec.structs.replace(one, oldest_ms=first.record.timestamp_ms)


@contextmanager
def looks(settings: Settings) -> Iterator[Looks]:
    with closing(BlockingOffsets(settings)) as client:
        yield Looks(settings, client)


# -- Lag of a reader in records ----------------------------------------------------------------

READ_MAX = 500_000
"""Offsets that one look reads, unless it is to be exact: a few seconds."""


def reader_lags(
    settings: Settings, group: str, topics: Sequence[str], tell: Tell, *, exact: bool = False
) -> list[ReaderLag]:
    """Return how far a group is behind, by topic and partition. ``topics``: none for all.

    Raises PreflightError where brokers do not answer, or do not let us.
    """
    settings = settings.model_copy(update={"app": group})
    with closing(BlockingOffsets(settings, COUNTING)) as client:
        places = client.partitions(topics or None)
        committed = client.committed(places, stable=False)
        if not topics:
            read = {where[0] for where, offset in committed.items() if offset is not None}
            committed = {where: at for where, at in committed.items() if where[0] in read}
        if not committed:
            problem = (
                f"group {group} has no committed offset in any topic that may be seen here: check"
                " its name, or name a topic by --topic"
            )
            raise PreflightError([problem])
        logs = client.log_offsets(committed)
        return _Look(client, committed, logs, tell).lags(exact=exact)


class _Look:
    """Reads what lies between a group's offsets and the ends."""

    def __init__(
        self,
        queries: OffsetsClient,
        committed: Mapping[Where, int | None],
        logs: Mapping[Where, LogOffsets],
        tell: Tell,
    ) -> None:
        self._queries = queries
        self._committed, self._logs = committed, logs
        self._tell = tell
        self._stretches = {where: stretch(at, logs[where]) for where, at in committed.items()}
        self._done = 0

    def lags(self, *, exact: bool) -> list[ReaderLag]:
        lengths = {where: end - start for where, (start, end) in self._stretches.items()}
        read = lengths if exact else shares(lengths, READ_MAX)
        ends = {where: self._stretches[where][0] + length for where, length in read.items()}
        committed = {where: Counted(self._stretches[where][0]) for where in ends}
        problems = self._count("read_committed", committed, ends)
        # Aborted records can only lie where no committed ones were found.
        gaps = {where: one.gap for where, one in committed.items()}
        every = {where: Counted(start) for where, (start, end) in gaps.items() if start < end}
        self._count("read_uncommitted", every, {where: gaps[where][1] for where in every})
        found = []
        for where, one in sorted(committed.items()):
            holes = one.end - one.start - one.total
            start, end = gaps[where]
            aborted = max(0, every[where].total - (end - start - holes)) if where in every else 0
            found.append(
                ReaderLag(
                    topic=where[0],
                    partition=where[1],
                    log=self._logs[where],
                    committed=self._committed[where],
                    records=one.total,
                    uncounted=self._stretches[where][1] - one.end,
                    aborted=aborted,
                    markers=holes - aborted,
                    problem=problems.get(where, ""),
                )
            )
        return found

    def _count(
        self, isolation: Isolation, counted: dict[Where, Counted], ends: Mapping[Where, int]
    ) -> dict[Where, str]:
        return count_records(self._queries, isolation, counted, ends, self._progress)

    def _progress(self, count: int) -> None:
        self._done += count
        self._tell(f"{self._done:,} records read")
