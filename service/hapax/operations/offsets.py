"""Composition of ``hapax offsets``: settings to how every input partition stands."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.core.changes import Stuck  # noqa: TC001 - msgspec reads the types
from hapax.core.partition_offsets import PartitionOffsets
from hapax.kafka.read.group_start import positions
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.records import TopicPartition
    from hapax.kafka.read.range_reader import ReadRecord
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
        """Return them by topic and partition. Raises PreflightError."""
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
    """Open it for the block; close its connections afterwards."""
    with closing(BlockingOffsets(settings)) as client:
        yield Looks(settings, client)
