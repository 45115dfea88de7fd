"""Checks of how the brokers are set."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    check,
    fail,
    ok,
    unknown,
    warn,
)
from hapax.operations.doctor.check import number as read
from hapax.operations.doctor.durability import graded, in_sync_min, replicas
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult

GROUP_SESSION_MIN, GROUP_SESSION_MAX = (
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
)
OFFSETS_KEPT_MIN_MS = DAY_MS


@check(
    "transaction-timeout",
    "`transaction.max.timeout.ms` against `HAPAX_TRANSACTION__TIMEOUT`",
    "FAIL: the setting is longer.",
    at="outputs",
)
def _transaction_timeout(case: Case) -> Iterator[CheckResult]:
    allowed = _least(case, "transaction.max.timeout.ms")
    ours = case.settings.transaction.timeout_ms
    if allowed is None:
        yield _not_reported(case, "transaction.max.timeout.ms")
    elif ours > allowed:
        yield fail(
            f"HAPAX_TRANSACTION__TIMEOUT={duration_text(ours)} is longer than "
            f"transaction.max.timeout.ms={allowed} allows: no producer can start",
            "lower the first or raise the second",
        )
    else:
        yield ok(f"HAPAX_TRANSACTION__TIMEOUT={duration_text(ours)} of at most {allowed} ms")


def _internal(case: Case, topic: str, factor: str, in_sync: str) -> Iterator[CheckResult]:
    """Grade the topic as it is, or as the brokers would make it."""
    found = case.kafka.topics.get(topic)
    count, least = _least(case, factor), _least(case, in_sync)
    if found is not None and found.partitions:
        count, least = replicas(found), in_sync_min(found, least)
    elif count is not None and count > len(case.kafka.listeners):
        yield fail(
            f"{factor}={count}, but there are {len(case.kafka.listeners)} brokers: {topic} cannot "
            "be created, and no process starts without it",
            f"start more brokers, or lower {factor}",
        )
        return
    if count is None or least is None:
        yield _not_reported(case, factor)
        return
    yield graded(topic, count, least, f"move {topic} to 3 replicas, and set min.insync.replicas=2")


_transaction_log = check(
    "transaction-log",
    "replicas and in-sync minimum of `__transaction_state`",
    "As for durability. FAIL: fewer brokers than its replicas.",
    at="outputs",
)(
    partial(
        _internal,
        topic="__transaction_state",
        factor="transaction.state.log.replication.factor",
        in_sync="transaction.state.log.min.isr",
    )
)
_offsets_log = check(
    "offsets-log",
    "replicas and in-sync minimum of `__consumer_offsets`",
    "As for durability. FAIL: fewer brokers than its replicas.",
)(
    partial(
        _internal,
        topic="__consumer_offsets",
        factor="offsets.topic.replication.factor",
        in_sync="min.insync.replicas",
    )
)


@check(
    "transactional-id-expiry",
    "`transactional.id.expiration.ms`",
    "WARN: shorter than an hour.",
    at="outputs",
)
def _id_expiry(case: Case) -> Iterator[CheckResult]:
    kept_ms = _least(case, "transactional.id.expiration.ms")
    if kept_ms is None:
        yield _not_reported(case, "transactional.id.expiration.ms")
    elif kept_ms < HOUR_MS:
        yield warn(
            f"transactional.id.expiration.ms={kept_ms}: a worker that is idle for this long "
            "loses its transactional id and starts again",
            "raise it to an hour or more; the default is 7 days",
        )
    else:
        yield ok(f"transactional ids are kept for {duration_text(kept_ms)}")


@check(
    "offsets-retention",
    "`offsets.retention.minutes`",
    "FAIL: shorter than a day: a stopped pipeline loses its offsets.",
)
def _offsets_kept(case: Case) -> Iterator[CheckResult]:
    kept = _least(case, "offsets.retention.minutes")
    if kept is None:
        yield _not_reported(case, "offsets.retention.minutes")
    elif kept * MINUTE_MS < OFFSETS_KEPT_MIN_MS:
        yield fail(
            f"offsets.retention.minutes={kept}: a pipeline that is stopped for longer loses "
            f"{_lost(case)}",
            "raise it above the longest stop, to a day at least; the default is 7 days",
        )
    else:
        yield ok(f"positions of a stopped group are kept for {duration_text(kept * MINUTE_MS)}")


def _lost(case: Case) -> str:
    """Return what goes with the offsets on this cluster, and what the next start does."""
    begins = f"starts at HAPAX_INPUT__START={case.settings.input.start}"
    if case.side == "input":
        return (
            "the group's offsets; without them a start does not see that the progress on the "
            f"cluster of the outputs is lost, too, and {begins}"
        )
    if case.side == "outputs":
        return (
            "its progress: it refuses to start, or, where the group's offsets on the cluster of "
            f"the input are gone as well, {begins}"
        )
    return f"its offsets and {begins}"


@check(
    "session-timeout",
    "`HAPAX_GROUP__SESSION_TIMEOUT` against what the brokers allow",
    "FAIL: outside of it.",
    at="input",
)
def _session_timeout(case: Case) -> Iterator[CheckResult]:
    ours = case.settings.group.session_timeout_ms
    if case.settings.group.protocol == "consumer":
        yield ok("HAPAX_GROUP__PROTOCOL=consumer: the brokers choose the session timeout")
        return
    lowest, highest = _most(case, GROUP_SESSION_MIN), _least(case, GROUP_SESSION_MAX)
    if lowest is None or highest is None:
        yield _not_reported(case, GROUP_SESSION_MIN)
    elif not lowest <= ours <= highest:
        yield fail(
            f"HAPAX_GROUP__SESSION_TIMEOUT={duration_text(ours)} is not within "
            f"{GROUP_SESSION_MIN}={lowest} and {GROUP_SESSION_MAX}={highest}: no member can join",
            "choose one that the brokers allow",
        )
    else:
        yield ok(f"HAPAX_GROUP__SESSION_TIMEOUT={duration_text(ours)} is allowed")


@check("auto-create", "`auto.create.topics.enable`", "WARN: true.")
def _auto_create(case: Case) -> Iterator[CheckResult]:
    told = case.broker_settings("auto.create.topics.enable")
    if not told:
        yield _not_reported(case, "auto.create.topics.enable")
    elif "true" in told.values():
        yield warn(
            "auto.create.topics.enable=true: a misspelt topic is created with default "
            "replication, and a deleted one is recreated empty",
            "set auto.create.topics.enable=false on the brokers",
        )
    else:
        yield ok("topics are not created automatically")


def _least(case: Case, name: str) -> int | None:
    return min(_numbers(case, name), default=None)


def _most(case: Case, name: str) -> int | None:
    return max(_numbers(case, name), default=None)


def _numbers(case: Case, name: str) -> list[int]:
    found = (read(text) for text in case.broker_settings(name).values())
    return [each for each in found if each is not None]


def _not_reported(case: Case, name: str) -> CheckResult:
    why = next((why for what, why in case.kafka.untold.items() if "of broker" in what), "")
    return unknown(f"{name}: no broker returns it{why and ': '}{why}")
