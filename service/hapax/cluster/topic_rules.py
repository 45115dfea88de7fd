"""What a topic refuses of a record for its key or its timestamp, known before it is sent. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from hapax.core.headers import SOURCE, TRUNCATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Message

UNLIMITED: Final = (1 << 63) - 1
MARGIN_MS: Final = 5_000
"""The brokers' clocks may differ: what lies so close to a limit is for them to judge."""
NO_TIMESTAMP: Final = -1
"""Brokers take a record without a timestamp whatever the limits."""


class TopicRules(msgspec.Struct, frozen=True):
    """Which records a topic refuses.

    compacted            those without a key
    before_ms, after_ms  those whose timestamp lies further before or after the brokers' clock
    """

    compacted: bool = False
    before_ms: int = UNLIMITED
    after_ms: int = UNLIMITED

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TopicRules:
        """Return those of a topic with these settings; what is not among them refuses nothing."""
        compacted = "compact" in settings.get("cleanup.policy", "")
        if settings.get("message.timestamp.type") == "LogAppendTime":
            return cls(compacted)
        return cls(compacted, _limit_ms(settings, "before"), _limit_ms(settings, "after"))

    def refusal(
        self, topic: str, key: bytes | None, timestamp_ms: int | None, now_ms: int
    ) -> str | None:
        """Return the one sentence for all such records; None: taken, as far as is known."""
        if self.compacted and key is None:
            return _keyless(topic)
        if timestamp_ms is None or timestamp_ms == NO_TIMESTAMP:
            return None
        if timestamp_ms - now_ms - MARGIN_MS > self.after_ms:
            return _wrong_time(topic, "after", self.after_ms)
        if now_ms - timestamp_ms - MARGIN_MS > self.before_ms:
            return _wrong_time(topic, "before", self.before_ms)
        return None


def _limit_ms(settings: Mapping[str, str], side: str) -> int:
    own = int(settings.get(f"message.timestamp.{side}.max.ms", UNLIMITED))
    both = int(settings.get("message.timestamp.difference.max.ms", UNLIMITED))
    return both if own == UNLIMITED else own


@lru_cache(maxsize=64)
def _keyless(topic: str) -> str:
    return f"no key, and topic {topic} is compacted: give it a key, or set cleanup.policy=delete"


@lru_cache(maxsize=64)
def _wrong_time(topic: str, side: str, limit_ms: int) -> str:
    return (
        f"a timestamp that lies further {side} the brokers' clock than topic {topic} allows"
        f" (message.timestamp.{side}.max.ms={limit_ms}; timestamps are milliseconds): raise that"
        " limit, or send another timestamp (outputs of a function: HAPAX_OUTPUT__TIMESTAMP=now)"
    )


def amended(letter: Message, rules: TopicRules, now_ms: int) -> Message:
    """Return a dead letter as its topic takes it: written now, or with the coordinates as its key.

    Its header names what was replaced, as it does for what is cut from one of last resort.
    """
    headers = dict(letter.headers)
    left = [(headers.get(TRUNCATED) or b"").decode()] if TRUNCATED in headers else []
    key, timestamp_ms = letter.key, letter.timestamp_ms
    if rules.compacted and key is None:
        key = headers.get(SOURCE)
        left.append("key=0")
    if rules.refusal(letter.topic, key, timestamp_ms, now_ms):
        left.append(f"timestamp={timestamp_ms}")
        timestamp_ms = None
    kept = [pair for pair in letter.headers if pair[0] != TRUNCATED]
    kept.append((TRUNCATED, ",".join(left).encode()))
    return replace(letter, key=key, timestamp_ms=timestamp_ms, headers=kept)


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
        times = (*self.times_ms, *other.times_ms)
        return RowNeeds(
            min(self.partition_min, other.partition_min),
            max(self.partition_max, other.partition_max),
            max(self.bytes_max, other.bytes_max),
            self.keyless or other.keyless,
            (min(times), max(times)) if times else (),
        )


class TopicTakes(msgspec.Struct, frozen=True):
    """What a topic takes; ``bytes_max`` of a message, None: not known."""

    partitions: int
    bytes_max: int | None
    rules: TopicRules = TopicRules()


def needs_of_all(each: Iterable[Mapping[str, RowNeeds]]) -> dict[str, RowNeeds]:
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
