"""Durability in words, for topics of the pipeline and for those of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.operations.doctor.check import fail, good, number, warn
from hapax.operations.doctor.durability import Level, durability

if TYPE_CHECKING:
    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import Said


def replicas(topic: Topic) -> int:
    """Return the replicas of the partition that has the fewest."""
    return min(len(each.replicas) for each in topic.partitions.values())


def in_sync_min(topic: Topic, otherwise: int | None = None) -> int | None:
    """Return ``min.insync.replicas`` of the topic, as far as it is told."""
    told = number(topic.settings.get("min.insync.replicas"))
    return otherwise if told is None else told


def graded(what: str, count: int, in_sync: int, fix: str) -> Said:
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
    return good(saw)
