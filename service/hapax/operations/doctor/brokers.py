"""Checks of how the brokers are set, and the grade of durability.

How safe a record is that was acknowledged to a writer with ``acks=all``, as this service writes:

    replicas  min.insync.replicas  grade
    2         1                    low      the leader alone may be in sync
    3         1                    medium   the leader alone may be in sync, two more follow
    3         2                    high     tolerates 1 broker being away
    3         3                    highest  tolerates 0: the first that is away stops writers
    5         3                    high     tolerates 2

What lies between follows from the same two questions: on how many brokers is a record when it is
acknowledged, at least, and how many may be away while records can still be written?
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

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
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import CheckContext, CheckResult

_COPIES_MANY = 3
GROUP_SESSION_MIN = "group.min.session.timeout.ms"
GROUP_SESSION_MAX = "group.max.session.timeout.ms"
OFFSETS_KEPT_MIN_MS = DAY_MS


class Level(IntEnum):
    """How hard it is to lose an acknowledged record; ordered."""

    LOWEST = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4
    HIGHEST = 5


def durability(*, replicas: int, in_sync_min: int) -> tuple[Level, int]:
    """Return the grade, and how many brokers may be away while records can still be written.

    Brokers ask for no more in-sync replicas than a partition has (measured with Kafka 4.3.1: a
    partition of one replica is written although two are asked for).
    """
    in_sync_min = min(in_sync_min, replicas)
    tolerates = replicas - in_sync_min
    if replicas <= 1:
        return Level.LOWEST, tolerates
    if in_sync_min <= 1:
        return Level.MEDIUM if replicas >= _COPIES_MANY else Level.LOW, tolerates
    everybody = tolerates == 0 and replicas >= _COPIES_MANY
    return Level.HIGHEST if everybody else Level.HIGH, tolerates


def replicas(topic: Topic) -> int:
    return min(len(each.replicas) for each in topic.partitions.values())


def in_sync_min(topic: Topic, otherwise: int | None = None) -> int | None:
    """Return ``min.insync.replicas`` of the topic, as far as it is reported."""
    told = number(topic.settings.get("min.insync.replicas"))
    return otherwise if told is None else told


def graded(what: str, count: int, in_sync: int, fix: str) -> CheckResult:
    level, tolerates = durability(replicas=count, in_sync_min=in_sync)
    ground = f"{what}: {count} replicas, acks=all, min.insync.replicas={in_sync}"
    saw = f"{ground}: {level.name.lower()}, brokers that may be away: {tolerates}"
    if level <= Level.LOW:
        return fail(f"{saw}; one lost disk can lose acknowledged records", fix)
    if level is Level.MEDIUM:
        return warn(f"{saw}; records that only the leader has are acknowledged", fix)
    if tolerates == 0:
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
    found = (number(text) for text in context.broker_settings(name).values())
    return [each for each in found if each is not None]


def _not_reported(context: CheckContext, name: str) -> CheckResult:
    why = next((why for what, why in context.kafka.untold.items() if "of broker" in what), "")
    return unknown(f"{name}: no broker returns it{why and ': '}{why}")
