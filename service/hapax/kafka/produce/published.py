"""Whether the output topics hold records that micro-batches of this app have published.

Asked once in the life of an app, before its first micro-batch: where checkpoint and marker are both
gone, only the output still knows that there was a query before.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from hapax.core.micro_batches import PublishedRecord
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.records import Progress
    from hapax.settings import Settings

NEAR_OFFSETS = 100
"""How far back from the last stable offset each partition is read first."""
FAR_OFFSETS, FAR_OFFSETS_ALL = 10_000, 200_000
"""How far then: of one partition, and of all together."""


class PublishedRecords:
    """Looks at the ends of output topics; what lies further back is not found."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find(self, topics: Iterable[str]) -> PublishedRecord | None:
        """Return a visible record of this app, of those at the ends of the topics that are there.

        Raises PreflightError when brokers do not answer, or do not let us read.
        """
        wanted = set(topics)
        with closing(BlockingOffsets(self._settings)) as client:
            partitions = client.partitions(sorted(wanted - client.absent(wanted)))
            lows, ends = client.log_starts(partitions), client.last_stable(partitions)
        far = min(FAR_OFFSETS, FAR_OFFSETS_ALL // max(1, len(partitions)))
        near = {where: max(lows[where], end - NEAR_OFFSETS) for where, end in ends.items()}
        beyond = {where: max(lows[where], end - far) for where, end in ends.items()}
        return self._within(near, ends) or self._within(beyond, near)

    def _within(self, starts: Progress, ends: Progress) -> PublishedRecord | None:
        spans = {where: (start, ends[where]) for where, start in starts.items()}
        for seen in RangeReader(self._settings).read(spans):
            for one in seen:
                found = PublishedRecord.parse(one.record, self._settings.app)
                if found is not None:
                    return found
        return None
