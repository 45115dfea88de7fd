"""Retry later: a record whose call failed waits in the retry topic, and is called again when due.

It is written there in the transaction of its offset, as a dead letter is, and is read back with the
inputs. Readers see it as it first came, with its coordinates of then. Three steps:

Transformer  what was raised becomes ``Later``, after the attempts that follow each other at once
LaterTries   has the clock and knows the attempts: ``Later`` becomes ``Put``, or a Failure after the
             last one; a record that is read back before it is due is ``Put`` again without a call
Planner      writes what is ``Put`` to its level

The partitions of the retry topic are a timer wheel: the number of a partition is its level, and all
records of a level wait the same time from when they were written. So the first of a partition never
holds up those after it for longer than that. A record goes to the highest level whose wait is no
longer than what is left of its delay, and after that wait to a level below, or again to the highest
while that much is left. In level 0 less than LOWEST_MS is left, and it waits until it is due.

The levels are the same in every process and for every topic: processes that counted the partitions
and came to other waits would hold up each other's records.
"""

from __future__ import annotations

from bisect import bisect_right
from random import uniform
from typing import TYPE_CHECKING, Final

import msgspec

from hapax.core.durations import given_ms
from hapax.core.errors import Poison, RetryLater
from hapax.core.headers import Retried, without_retry
from hapax.core.records import Coordinates, Record
from hapax.core.results import Failure, Later, Put
from hapax.processing.dead_letters import REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from hapax.core.results import Result

SECOND_MS: Final = 1_000
SHORTEST_MS, LONGEST_MS = SECOND_MS, 86_400_000
"""The delays that may be asked for: 1 s to 24 h."""
LOWEST_MS: Final = 250
"""Wait of level 1; also how long the first record of level 0 may hold up another one."""
FACTOR: Final = 4
WAITS_MS: Final = (0, *(LOWEST_MS * FACTOR**power for power in range(10)))
"""By level; of level 0 what is left. 0.25, 1, 4, 16 and 64 s, 4.3, 17 and 68 min, 4.6 and 18.2 h:
a delay of 24 h is moved at most 3 times in each of them."""
LEVELS: Final = len(WAITS_MS)
COMPACTED = "of records with one key that wait all but the last are deleted"
"""What compaction does to a retry topic."""
JITTER = 0.1
"""Of a delay by policy: what chance may add, so that records do not all come back at once."""
PAUSE_MAX_S = 1.0
"""Longest pause between two attempts that follow each other."""
OFF = "no later try is set up: set HAPAX_RETRY__TOPIC, or HAPAX_RETRY__LATER for types of errors"
NOT_OURS = "it is in the retry topic, and its headers name no record of HAPAX_INPUT__TOPICS"


def place(left_ms: int) -> tuple[int, int]:
    """Return the level where a record with so much left waits next, and how long; at most all."""
    level = bisect_right(WAITS_MS, left_ms) - 1
    return (level, WAITS_MS[level]) if level > 0 else (0, max(0, left_ms))


def create_command(topic: str, *, existing: bool = False) -> str:
    if existing:
        return f"kafka-topics.sh --alter --topic {topic} --partitions {LEVELS}"
    return (
        f"kafka-topics.sh --create --topic {topic} --partitions {LEVELS}"
        " --config cleanup.policy=delete --config retention.ms=604800000"
    )


class RetryTopic(msgspec.Struct, frozen=True):
    """The retry topic, and the inputs whose records may wait in it."""

    name: str
    inputs: frozenset[str]

    def read(self, record: Record) -> Retried | None:
        """Return its wait; None: any other record, or one that names no record of the inputs."""
        if record.topic != self.name:
            return None
        found = Retried.decode(dict(record.headers))
        if found is None or Coordinates.parse(found.of).topic not in self.inputs:
            return None
        return found

    def restored(self, record: Record) -> Record:
        """Return a record as it first came; any other as it is."""
        found = self.read(record)
        if found is None:
            return record
        return Record(
            *Coordinates.parse(found.of),
            record.key,
            record.value,
            without_retry(record.headers),
            found.timestamp,
            record.event_id,
        )

    def all_restored(self, records: Iterable[Record]) -> list[Record]:
        return [self.restored(each) if each.topic == self.name else each for each in records]


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a call that failed.

    backoff_ms        first pause between attempts that follow each other; it doubles
    topic             where records wait; None: RetryLater is a mistake, the policy is off
    later             types of errors after which a record waits, by name, or with their module
    later_attempts    later tries of one record before it becomes a dead letter
    delay_ms, delay_max_ms  first delay by policy, which doubles, and the longest one
    """

    backoff_ms: int = 0
    topic: RetryTopic | None = None
    later: tuple[str, ...] = ()
    later_attempts: int = 8
    delay_ms: int = 10_000
    delay_max_ms: int = 3_600_000

    def pause_s(self, attempts: int) -> float:
        """Return how long to pause after so many attempts: half of it is left to chance."""
        longest_s = min(PAUSE_MAX_S, self.backoff_ms / 1000 * 2 ** min(attempts - 1, 20))
        return uniform(longest_s / 2, longest_s)  # noqa: S311 - not to come back in step

    def asks(self, error: Exception) -> bool:
        if self.topic is None or isinstance(error, Poison):
            return False
        if isinstance(error, RetryLater):
            return True
        return bool(self.later) and any(
            kind.__name__ in self.later or f"{kind.__module__}.{kind.__qualname__}" in self.later
            for kind in type(error).__mro__
        )

    def delay_after(self, attempt: int) -> int:
        """Return the policy's delay before this later try, in milliseconds."""
        delay: int = self.delay_ms * 2 ** min(attempt - 1, 30)
        delay += round(delay * uniform(0, JITTER))  # noqa: S311 - as above
        return min(max(delay, SHORTEST_MS), self.delay_max_ms, LONGEST_MS)


def delay_of(error: RetryLater) -> int:
    """Return the milliseconds that business code asks for; raise Poison for what is no delay."""
    after = error.after
    try:
        delay = given_ms(after)
    except (TypeError, ValueError, OverflowError) as wrong:
        raise Poison(f"RetryLater(after={after!r:.99}): {wrong}") from error
    if not SHORTEST_MS <= delay <= LONGEST_MS:
        raise Poison(f"RetryLater(after={after!r:.99}): it must lie between 1s and 24h")
    return delay


def put(record: Record, before: Retried | None, after_ms: int, calls: int, now_ms: int) -> Put:
    """Return where a record waits for its next try; ``before``: what it waited for until now."""
    level, wait_ms = place(after_ms)
    return Put(
        Retried(
            of=before.of if before else str(record.coordinates),
            timestamp=before.timestamp if before else record.timestamp_ms,
            attempt=before.attempt + 1 if before else 1,
            calls=calls,
            move=before.move + 1 if before else 1,
            until=now_ms + wait_ms,
            due=now_ms + after_ms,
        ),
        level,
        called=True,
    )


def put_again(retried: Retried, now_ms: int) -> Put:
    level, wait_ms = place(retried.due - now_ms)
    moved = msgspec.structs.replace(retried, move=retried.move + 1, until=now_ms + wait_ms)
    return Put(moved, level, called=False)


class LaterTries:
    """Around calls: a record that is not due is not called, one that asks for more time gets it.

    ``now_ms``: Unix time in milliseconds, for due times outlive the process.
    """

    def __init__(self, retrying: Retrying, *, now_ms: Callable[[], int]) -> None:
        assert retrying.topic is not None
        self._retrying = retrying
        self._topic = retrying.topic
        self._now_ms = now_ms

    def before(self, records: Sequence[Record]) -> dict[int, Result | None]:
        topic, now_ms = self._topic, self._now_ms()
        known: dict[int, Result | None] = {}
        for index, record in enumerate(records):
            if record.topic != topic.name:
                continue
            found = topic.read(record)
            if found is None:
                known[index] = Failure("Poison", NOT_OURS, 1)
            elif found.due > now_ms:
                known[index] = put_again(found, now_ms)
        return known

    def after(
        self, records: Sequence[Record], results: list[Result | None], preset: Collection[int]
    ) -> list[Result | None]:
        """Return results with the place where each record waits that asked for a later try.

        A failure that is ``preset`` was counted together with the calls before it, unless the
        brokers have refused an output.
        """
        for index, result in enumerate(results):
            if not isinstance(result, Later | Failure):
                continue
            if isinstance(result, Failure) and (
                result.cut or (index in preset and result.reason != REFUSED)
            ):
                continue
            before = self._topic.read(records[index])
            if isinstance(result, Later):
                results[index] = self._later(records[index], before, result)
            elif before is not None:
                calls = before.calls + result.attempts
                results[index] = msgspec.structs.replace(result, attempts=calls)
        return results

    def _later(self, record: Record, before: Retried | None, asked: Later) -> Result:
        attempt = before.attempt + 1 if before else 1
        calls = asked.attempts + (before.calls if before else 0)
        if attempt > self._retrying.later_attempts:
            return Failure(asked.reason, asked.text, calls)
        after_ms = asked.after_ms
        if after_ms is None:
            after_ms = self._retrying.delay_after(attempt)
        return put(record, before, after_ms, calls, self._now_ms())
