"""Composition of ``hapax lag``: a group's offsets to the records that it has not read yet.

1. committed  the group's offsets, in the topics that were named or in all that it has one in
2. logs       where these begin and end, asked after the offsets: none is beyond its log
3. records    the committed ones between both; where some offsets hold none, all of them as well
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from hapax.core.errors import PreflightError
from hapax.core.reader_lag import Counted, ReaderLag, shares, stretch
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import COUNTING, count_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.partition_offsets import LogOffsets
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.read.offsets_client import Isolation, OffsetsClient
    from hapax.operations.reading import Tell
    from hapax.settings import Settings

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
