"""What rows ask of the topics that they go to, known before any of them is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.topic_rules import TopicRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class RowNeeds(msgspec.Struct, frozen=True):
    """Of all rows for one topic together.

    partition_min, partition_max  of the partitions that rows name; -1: none names one
    bytes_max  of key, value and headers of the largest
    keyless    whether a row has no key
    times_ms   the earliest and the latest timestamp; none: rows name none
    """

    partition_min: int = -1
    partition_max: int = -1
    bytes_max: int = 0
    keyless: bool = False
    times_ms: tuple[int, ...] = ()

    def and_also(self, other: RowNeeds) -> RowNeeds:
        """Return the needs of both."""
        times = (*self.times_ms, *other.times_ms)
        return RowNeeds(
            min(self.partition_min, other.partition_min),
            max(self.partition_max, other.partition_max),
            max(self.bytes_max, other.bytes_max),
            self.keyless or other.keyless,
            (min(times), max(times)) if times else (),
        )


class TopicTakes(msgspec.Struct, frozen=True):
    """What a topic takes; ``bytes_max`` None: not known."""

    partitions: int
    bytes_max: int | None
    rules: TopicRules = TopicRules()


def needs_of_all(each: Iterable[Mapping[str, RowNeeds]]) -> dict[str, RowNeeds]:
    """Return by topic what all of these need."""
    found: dict[str, RowNeeds] = {}
    for needs in each:
        for topic, one in needs.items():
            found[topic] = found.get(topic, RowNeeds()).and_also(one)
    return found


def row_problems(
    needs: Mapping[str, RowNeeds], takes: Mapping[str, TopicTakes], set_bytes: int, now_ms: int
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
        key = None if need.keyless else b""
        refusals = [
            topic_takes.rules.refusal(topic, key, time_ms, now_ms)
            for time_ms in need.times_ms or (None,)
        ]
        problems += [f"a row has {why}" for why in dict.fromkeys(refusals) if why]
    return problems
