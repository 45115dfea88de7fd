"""What records and offsets say of the programs around a pipeline: who writes, and who reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.core.cluster_state import ReaderAtRest
from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.samples import sample_of
from hapax.kafka.read.range_reader import RangeReader
from hapax.kafka.read.worked import offsets_of_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.cluster_state import LastRecords, Topic
    from hapax.core.partition_offsets import LogOffsets
    from hapax.core.records import TopicPartition as Where
    from hapax.core.samples import Sampled
    from hapax.settings import Settings

EACH_MAX, ALL_MAX, WITHIN_S = 50, 5_000, 2.0
"""Offsets of one partition, about as many of all, and for how long."""


def last_records(
    settings: Settings, logs: Mapping[Where, LogOffsets], topics: Mapping[str, Topic]
) -> dict[str, LastRecords]:
    """Return what the last records of each input say, aborted ones as well.

    Raises PreflightError where one may not be read, or a set of records not be decoded.
    """
    each = max(1, min(EACH_MAX, ALL_MAX // max(1, len(logs))))
    spans = {
        where: (max(log.log_start, log.high_watermark - each), log.high_watermark)
        for where, log in logs.items()
        if where[0] in settings.input.topics
    }
    found: dict[str, list[Sampled]] = {topic: [] for topic, _number in spans}
    give_up_s = time.monotonic() + WITHIN_S
    for chunk in RangeReader(settings, "read_uncommitted").read(spans):
        for one, _readable in chunk:
            found[one.topic].append((one.partition, one.key, one.timestamp_ms))
        if time.monotonic() > give_up_s:
            break
    now_ms = int(time.time() * 1000)
    return {t: sample_of(seen, len(topics[t].partitions), now_ms) for t, seen in found.items()}


def readers_at_rest(
    settings: Settings, logs: Mapping[Where, LogOffsets]
) -> tuple[ReaderAtRest, ...]:
    """Return groups of others with nothing but markers and aborted records before them.

    Many clients commit one past the last record that they were given, and are never given what
    follows it. Raises KafkaException, PreflightError or TimeoutError: brokers do not answer so.
    """
    read, reader = settings.read_topics, RangeReader(settings)
    filled = [w for w, log in logs.items() if w[0] not in read and log.log_start < log.last_stable]
    before = [
        ReaderAtRest(group, *where, one.offset, logs[where].last_stable)
        for group, offsets in (offsets_of_groups(settings, filled) if filled else ())
        for one in offsets
        if logs[where := (one.topic, one.partition)].log_start
        < one.offset
        < logs[where].last_stable
        and CommittedMetadata.of(one) == CommittedMetadata()  # Hapax commits the very end
        and not group.startswith(f"{settings.app}--")  # markers of its own, in place of reading
    ]
    # The one that is furthest has no record before it, or none of them is at rest.
    furthest = {one[1:3]: one for one in sorted(before, key=lambda one: one.committed)}
    behind = reader.firsts({w: (one.committed, one.end) for w, one in furthest.items()}, WITHIN_S)
    ends = {where: furthest[where].committed for where, first in behind.items() if first is None}
    last = reader.firsts({where: (at - 1, at) for where, at in ends.items()}, WITHIN_S)
    return tuple(one for one in before if last.get(one[1:3]) and one.committed == ends[one[1:3]])
