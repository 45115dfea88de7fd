"""How safe an acknowledged record is: acks, replicas and min.insync.replicas in one grade.

    replicas  acks  min.insync.replicas  grade
    any       0     any                  lowest   no broker has promised anything
    2         all   1                    low      the leader alone may be in sync
    3         1     1                    medium   the leader alone answers, two more follow
    3         all   2                    high     tolerates 1 broker being away
    3         all   3                    highest  tolerates 0: the first that is away stops writers
    5         all   3                    high     tolerates 2

The rows of the table are fixed points; what lies between follows from the same two questions: on
how many brokers is a record when it is acknowledged, at least, and how many may be away while
records can still be written?
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import msgspec

from hapax.operations.doctor.check import fail, number, ok, warn

if TYPE_CHECKING:
    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import CheckResult

Acks = Literal["0", "1", "all"]

_COPIES_MANY = 3


class Level(IntEnum):
    """How hard it is to lose an acknowledged record; ordered."""

    LOWEST = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4
    HIGHEST = 5


class Durability(msgspec.Struct, frozen=True):
    """The grade of one topic.

    copies     brokers that have an acknowledged record, at least
    tolerates  brokers that may be away while records can still be written
    """

    level: Level
    copies: int
    tolerates: int


def durability(*, replicas: int, acks: Acks, in_sync_min: int) -> Durability:
    """Grade a topic with so many replicas and this ``min.insync.replicas``.

    ``min.insync.replicas`` only binds producers with ``acks=all`` (Kafka's documentation, topic
    settings), and brokers ask for no more in-sync replicas than a partition has (measured with
    Kafka 4.3.1: a partition of one replica is written although two are asked for).
    """
    if acks != "all":
        spare = replicas - 1  # a new leader is elected from any replica that is in sync
        level = Level.LOWEST if acks == "0" else _level_of_leader(replicas)
        return Durability(level, copies=0 if acks == "0" else 1, tolerates=spare)
    in_sync_min = min(in_sync_min, replicas)
    tolerates = replicas - in_sync_min
    if in_sync_min <= 1:
        return Durability(_level_of_leader(replicas), copies=1, tolerates=tolerates)
    everybody = tolerates == 0 and replicas >= _COPIES_MANY
    level = Level.HIGHEST if everybody else Level.HIGH
    return Durability(level, copies=in_sync_min, tolerates=tolerates)


def _level_of_leader(replicas: int) -> Level:
    """Return the level where one broker's word is enough: the leader's."""
    if replicas <= 1:
        return Level.LOWEST
    return Level.MEDIUM if replicas >= _COPIES_MANY else Level.LOW


def replicas(topic: Topic) -> int:
    """Return the replicas of the partition that has the fewest."""
    return min(len(each.replicas) for each in topic.partitions.values())


def in_sync_min(topic: Topic, otherwise: int | None = None) -> int | None:
    """Return ``min.insync.replicas`` of the topic, as far as it is reported."""
    told = number(topic.settings.get("min.insync.replicas"))
    return otherwise if told is None else told


def graded(what: str, count: int, in_sync: int, fix: str) -> CheckResult:
    """Return the grade for writers with ``acks=all``, which is what this service writes with."""
    grade = durability(replicas=count, acks="all", in_sync_min=in_sync)
    ground = f"{what}: {count} replicas, acks=all, min.insync.replicas={in_sync}"
    saw = f"{ground}: {grade.level.name.lower()}, brokers that may be away: {grade.tolerates}"
    if grade.level <= Level.LOW:
        return fail(f"{saw}; one lost disk can lose acknowledged records", fix)
    if grade.level is Level.MEDIUM:
        return warn(f"{saw}; records that only the leader has are acknowledged", fix)
    if grade.tolerates == 0:
        return warn(f"{saw}: the first one that is away stops all writers", fix)
    return ok(saw)
