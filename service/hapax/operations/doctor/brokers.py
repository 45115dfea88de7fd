"""Checks of how the brokers are set, and the grade of durability.

How safe an acknowledged record is: acks, replicas and min.insync.replicas in one grade.

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
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    check,
    fail,
    number,
    ok,
    unknown,
    warn,
)
from hapax.operations.doctor.check import number as read
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import CheckContext, CheckResult

Acks = Literal["0", "1", "all"]

_COPIES_MANY = 3
GROUP_SESSION_MIN, GROUP_SESSION_MAX = (
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
)
OFFSETS_KEPT_MIN_MS = DAY_MS


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
    if replicas <= 1:
        return Level.LOWEST
    return Level.MEDIUM if replicas >= _COPIES_MANY else Level.LOW


def replicas(topic: Topic) -> int:
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


# -- How the brokers are set -------------------------------------------------------------------


@check("transaction-timeout", at="outputs")
def _transaction_timeout(context: CheckContext) -> Iterator[CheckResult]:
    allowed = _least(context, "transaction.max.timeout.ms")
    ours = context.settings.transaction.timeout_ms
    if allowed is None:
        yield _not_reported(context, "transaction.max.timeout.ms")
    elif ours > allowed:
        yield fail(
            f"HAPAX_TRANSACTION__TIMEOUT={duration_text(ours)} is longer than "
            f"transaction.max.timeout.ms={allowed} allows: no producer can start",
            "lower the first or raise the second",
        )
    else:
        yield ok(f"HAPAX_TRANSACTION__TIMEOUT={duration_text(ours)} of at most {allowed} ms")


def _internal(
    context: CheckContext, topic: str, factor: str, in_sync: str
) -> Iterator[CheckResult]:
    found = context.kafka.topics.get(topic)
    count, least = _least(context, factor), _least(context, in_sync)
    if found is not None and found.partitions:
        count, least = replicas(found), in_sync_min(found, least)
    elif count is not None and count > len(context.kafka.listeners):
        yield fail(
            f"{factor}={count}, but there are {len(context.kafka.listeners)} brokers: {topic} "
            "cannot be created, and no process starts without it",
            f"start more brokers, or lower {factor}",
        )
        return
    if count is None or least is None:
        yield _not_reported(context, factor)
        return
    yield graded(topic, count, least, f"move {topic} to 3 replicas, and set min.insync.replicas=2")


_transaction_log = check("transaction-log", at="outputs")(
    partial(
        _internal,
        topic="__transaction_state",
        factor="transaction.state.log.replication.factor",
        in_sync="transaction.state.log.min.isr",
    )
)
_offsets_log = check("offsets-log")(
    partial(
        _internal,
        topic="__consumer_offsets",
        factor="offsets.topic.replication.factor",
        in_sync="min.insync.replicas",
    )
)


@check("transactional-id-expiry", at="outputs")
def _id_expiry(context: CheckContext) -> Iterator[CheckResult]:
    kept_ms = _least(context, "transactional.id.expiration.ms")
    if kept_ms is None:
        yield _not_reported(context, "transactional.id.expiration.ms")
    elif kept_ms < HOUR_MS:
        yield warn(
            f"transactional.id.expiration.ms={kept_ms}: a worker that is idle for this long "
            "loses its transactional id and starts again",
            "raise it to an hour or more; the default is 7 days",
        )
    else:
        yield ok(f"transactional ids are kept for {duration_text(kept_ms)}")


@check("offsets-retention")
def _offsets_kept(context: CheckContext) -> Iterator[CheckResult]:
    kept = _least(context, "offsets.retention.minutes")
    if kept is None:
        yield _not_reported(context, "offsets.retention.minutes")
    elif kept * MINUTE_MS < OFFSETS_KEPT_MIN_MS:
        yield fail(
            f"offsets.retention.minutes={kept}: a pipeline that is stopped for longer loses "
            f"{_lost(context)}",
            "raise it above the longest stop, to a day at least; the default is 7 days",
        )
    else:
        yield ok(f"positions of a stopped group are kept for {duration_text(kept * MINUTE_MS)}")


def _lost(context: CheckContext) -> str:
    begins = f"starts at HAPAX_INPUT__START={context.settings.input.start}"
    if context.side == "input":
        return (
            "the group's offsets; without them a start does not see that the progress on the "
            f"cluster of the outputs is lost, too, and {begins}"
        )
    if context.side == "outputs":
        return (
            "its progress: it refuses to start, or, where the group's offsets on the cluster of "
            f"the input are gone as well, {begins}"
        )
    return f"its offsets and {begins}"


@check("session-timeout", at="input")
def _session_timeout(context: CheckContext) -> Iterator[CheckResult]:
    ours = context.settings.group.session_timeout_ms
    if context.settings.group.protocol == "consumer":
        yield ok("HAPAX_GROUP__PROTOCOL=consumer: the brokers choose the session timeout")
        return
    lowest, highest = _most(context, GROUP_SESSION_MIN), _least(context, GROUP_SESSION_MAX)
    if lowest is None or highest is None:
        yield _not_reported(context, GROUP_SESSION_MIN)
    elif not lowest <= ours <= highest:
        yield fail(
            f"HAPAX_GROUP__SESSION_TIMEOUT={duration_text(ours)} is not within "
            f"{GROUP_SESSION_MIN}={lowest} and {GROUP_SESSION_MAX}={highest}: no member can join",
            "choose one that the brokers allow",
        )
    else:
        yield ok(f"HAPAX_GROUP__SESSION_TIMEOUT={duration_text(ours)} is allowed")


@check("auto-create")
def _auto_create(context: CheckContext) -> Iterator[CheckResult]:
    told = context.broker_settings("auto.create.topics.enable")
    if not told:
        yield _not_reported(context, "auto.create.topics.enable")
    elif "true" in told.values():
        yield warn(
            "auto.create.topics.enable=true: a misspelt topic is created with default "
            "replication, and a deleted one is recreated empty",
            "set auto.create.topics.enable=false on the brokers",
        )
    else:
        yield ok("topics are not created automatically")


def _least(context: CheckContext, name: str) -> int | None:
    return min(_numbers(context, name), default=None)


def _most(context: CheckContext, name: str) -> int | None:
    return max(_numbers(context, name), default=None)


def _numbers(context: CheckContext, name: str) -> list[int]:
    found = (read(text) for text in context.broker_settings(name).values())
    return [each for each in found if each is not None]


def _not_reported(context: CheckContext, name: str) -> CheckResult:
    why = next((why for what, why in context.kafka.untold.items() if "of broker" in what), "")
    return unknown(f"{name}: no broker returns it{why and ': '}{why}")
