"""What other groups have not read, counted from look to look for metrics."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from hapax.core.reader_lag import Counted, ReaderLag, shares, stretch
from hapax.kafka.read.offset_client import reader_properties
from hapax.kafka.read.offset_queries import REQUEST_TIMEOUT_S, OffsetQueries
from hapax.kafka.read.record_counts import COUNTING, count_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

LOOK_S = 5.0
"""Longest reading of one look."""
KEPT_MAX = 2_000_000
"""Offsets of one group about which is known whether they hold a record: 16 MB at the most."""
RENEWED_S = 600.0
"""So often the topics of a group are looked up, and what one look can read is counted again:
compaction may have removed records."""


def reader_probes(settings: Settings) -> dict[str, ReaderLagProbe]:
    """Return a probe for each group of HAPAX_TELEMETRY__READERS, on the cluster of the outputs."""
    properties, topic = reader_properties(settings.target), settings.output.topic
    return {
        group: ReaderLagProbe({**properties, "group.id": group}, topic)
        for group in settings.telemetry.readers or ()
    }


class ReaderLagProbe:
    """Keeps what it has read: a look reads what is new between the group's offset and the end."""

    def __init__(self, properties: Mapping[str, Any], topic: str) -> None:
        """Connect to nothing yet. ``properties``: with the id of the group, which is not joined.

        ``topic``: counts also while the group has no offset in it.
        """
        self._properties = properties
        self._topic = topic
        self._topics: list[str] = []
        self._renew_s = -math.inf
        self._queries: OffsetQueries | None = None
        self._counted: dict[Where, Counted] = {}

    def look(self, offsets_max: int) -> list[ReaderLag]:
        """Return the partitions whose brokers answer; read so many more offsets at the most.

        Raises KafkaException or PreflightError when the group or its records cannot be asked for.
        """
        queries = self._queries = self._queries or OffsetQueries({**self._properties, **COUNTING})
        answered = False
        try:
            lags = self._look(queries, offsets_max)
            answered = not queries.take_errors()
        finally:
            if not answered:  # replaced, with what it knows of leaders and connections
                queries.close()
                self._queries = None
        return lags

    def _look(self, queries: OffsetQueries, offsets_max: int) -> list[ReaderLag]:
        renewed = time.monotonic() >= self._renew_s
        if renewed:
            self._topics = self._topics_of_group(queries)
            self._renew_s = time.monotonic() + RENEWED_S
        places = [where for topic in self._topics for where in queries.partitions(topic)]
        committed = _committed(queries, places)
        logs = queries.log_offsets(committed)  # after the offsets: none is beyond its log
        stretches = {where: stretch(committed[where], log) for where, log in logs.items()}
        again = renewed and sum(end - start for start, end in stretches.values()) <= offsets_max
        self._counted = {
            where: self._kept(where, start, end, again=again)
            for where, (start, end) in stretches.items()
        }
        problems = count_records(
            queries,
            "read_committed",
            self._counted,
            self._ends(stretches, offsets_max),
            within_s=LOOK_S,
        )
        return [
            ReaderLag(
                *where,
                log=logs[where],
                committed=committed[where],
                records=one.total,
                uncounted=stretches[where][1] - one.end,
                problem=problems.get(where, ""),
            )
            for where, one in sorted(self._counted.items())
        ]

    def _topics_of_group(self, queries: OffsetQueries) -> list[str]:
        queries.forget_leaders()
        found = queries.read_uncommitted.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        places = [(name, number) for name, topic in found.items() for number in topic.partitions]
        committed = _committed(queries, places)
        read = {where[0] for where, offset in committed.items() if offset is not None}
        return sorted(read | ({self._topic} & found.keys()))

    def _kept(self, where: Where, start: int, end: int, *, again: bool) -> Counted:
        """Return what is known of a stretch; nothing after a rewind, or of another log."""
        one = self._counted.get(where)
        if again or one is None or start < one.start or end < one.end:
            return Counted(start)
        one.drop_before(start)
        return one

    def _ends(
        self, stretches: Mapping[Where, tuple[int, int]], offsets_max: int
    ) -> dict[Where, int]:
        kept = shares({w: end - start for w, (start, end) in stretches.items()}, KEPT_MAX)
        due = {w: max(0, one.start + kept[w] - one.end) for w, one in self._counted.items()}
        read = shares(due, offsets_max)
        return {where: one.end + read[where] for where, one in self._counted.items()}


def _committed(queries: OffsetQueries, places: list[Where]) -> dict[Where, int | None]:
    """Return the group's offsets, of the partitions that its coordinator answers for."""
    answers = queries.group_offsets(places, REQUEST_TIMEOUT_S, stable=False) if places else {}
    return {
        where: None if one.offset < 0 else one.offset
        for where, one in answers.items()
        if one.error is None
    }
