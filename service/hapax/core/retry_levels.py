"""Where a record waits: a timer wheel in the partitions of the retry topic. Pure arithmetic.

The number of a partition is its level, and all records of a level wait the same time from when they
were written. So the first of a partition never holds up those after it for longer than that, and a
record of 12 hours never holds up one of 5 seconds. A record goes to the highest level whose wait is
no longer than what is left of its delay. After that wait it goes to a level below, or again to the
highest while that much is left. In level 0 less than LOWEST_MS is left, and it waits until it is
due.

The levels are the same in every process and for every topic: processes that counted the partitions
and came to other waits would hold up each other's records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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


class Spot(NamedTuple):
    """A level of the wheel, and how long a record that is written to it waits there."""

    level: int
    wait_ms: int


def place(left_ms: int) -> Spot:
    """Return where a record with so much of its delay left waits next; at most all of it."""
    for level in range(LEVELS - 1, 0, -1):
        if WAITS_MS[level] <= left_ms:
            return Spot(level, WAITS_MS[level])
    return Spot(0, max(0, left_ms))


def create_command(topic: str, partitions: int = LEVELS, *, existing: bool = False) -> str:
    """Return the command that gives a topic the partitions that it needs."""
    if existing:
        return f"kafka-topics.sh --alter --topic {topic} --partitions {partitions}"
    return (
        f"kafka-topics.sh --create --topic {topic} --partitions {partitions}"
        " --config cleanup.policy=delete --config retention.ms=604800000"
    )
