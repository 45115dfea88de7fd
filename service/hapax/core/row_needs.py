"""What rows ask of the topics that they go to, known before any of them is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class RowNeeds(msgspec.Struct, frozen=True):
    """Of all rows for one topic together.

    partition_min, partition_max  of the partitions that rows name; -1: none names one
    bytes_max  of key, value and headers of the largest
    keyless    whether a row has no key
    """

    partition_min: int = -1
    partition_max: int = -1
    bytes_max: int = 0
    keyless: bool = False

    def and_also(self, other: RowNeeds) -> RowNeeds:
        """Return the needs of both."""
        return RowNeeds(
            min(self.partition_min, other.partition_min),
            max(self.partition_max, other.partition_max),
            max(self.bytes_max, other.bytes_max),
            self.keyless or other.keyless,
        )


class TopicTakes(msgspec.Struct, frozen=True):
    """What a topic takes; ``bytes_max`` None: not known."""

    partitions: int
    bytes_max: int | None
    compacted: bool


def needs_of_all(each: Iterable[Mapping[str, RowNeeds]]) -> dict[str, RowNeeds]:
    """Return by topic what all of these need."""
    found: dict[str, RowNeeds] = {}
    for needs in each:
        for topic, one in needs.items():
            found[topic] = found.get(topic, RowNeeds()).and_also(one)
    return found


def row_problems(
    needs: Mapping[str, RowNeeds], takes: Mapping[str, TopicTakes], set_bytes: int
) -> list[str]:
    """Return a sentence for each topic that would refuse a row, and for one that does not exist."""
    problems = []
    for topic, need in sorted(needs.items()):
        topic_takes = takes.get(topic)
        if topic_takes is None:
            problems.append(f"topic {topic} does not exist or may not be written")
            continue
        count, limit = topic_takes.partitions, topic_takes.bytes_max
        if need.partition_max >= count or need.partition_min < -1:
            wrong = need.partition_min if need.partition_min < -1 else need.partition_max
            problems.append(f"a row names partition {wrong} of topic {topic}, which has {count}")
        if limit is not None and need.bytes_max + set_bytes > limit:
            problems.append(
                f"a row has {need.bytes_max:,} bytes, and topic {topic} takes {limit:,}"
                " (max.message.bytes)"
            )
        if need.keyless and topic_takes.compacted:
            problems.append(f"a row has no key, and topic {topic} is compacted")
    return problems
