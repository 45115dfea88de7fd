"""Checks of brokers and topics, and of how they are set; the grade of durability.

How safe a record is that was acknowledged to a writer with ``acks=all``, as this service writes:

    replicas  min.insync.replicas  grade
    2         1                    low      the leader alone may be in sync
    3         1                    medium   the leader alone may be in sync, two more follow
    3         2                    high     tolerates 1 broker being away
    3         3                    highest  tolerates 0: the first that is away stops writers
    5         3                    high     tolerates 2
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from hapax.cluster.cluster_state import IN_SYNC_MIN
from hapax.kafka.admin.topics import required_topics
from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    check,
    fail,
    in_files,
    listed,
    number,
    ok,
    set_topic,
    unknown,
    warn,
)
from hapax.processing.retry_later import create_command
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.cluster.cluster_state import Topic
    from hapax.operations.doctor.check import CheckContext, CheckResult

_COPIES_MANY = 3
GROUP_SESSION_MIN = "group.min.session.timeout.ms"
GROUP_SESSION_MAX = "group.max.session.timeout.ms"
OFFSETS_KEPT_MIN_MS = DAY_MS
_WEEK_MS = 7 * DAY_MS
REFUSED: Final = "AUTHORIZATION"
RECEIVED_MAX, RESPONSE_ADDED = 100_000_000, 1024
"""The client's ``receive.message.max.bytes``, and about what a response has around a record set."""
HEADERS_ADDED = 1024
"""About what the headers of Hapax take: names, coordinates, an id, the beginning of an error."""


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
    allowed = _limit(context, "transaction.max.timeout.ms")
    ours = context.settings.transaction.timeout_ms
    if ours > allowed:
        yield fail(
            f"HAPAX_TRANSACTION__TIMEOUT={duration_text(ours)} is longer than "
            f"transaction.max.timeout.ms={allowed} allows: no producer can start",
            f"set HAPAX_TRANSACTION__TIMEOUT={duration_text(allowed)}, or "
            + in_files(f"transaction.max.timeout.ms={ours}"),
        )
    else:
        yield ok(f"HAPAX_TRANSACTION__TIMEOUT={duration_text(ours)} of at most {allowed} ms")


def _internal_replicas(
    context: CheckContext, topic: str, factor: str, in_sync: str
) -> Iterator[CheckResult]:
    found = context.kafka.topics.get(topic)
    count, least = (min(_numbers(context, name), default=None) for name in (factor, in_sync))
    if found is not None and found.partitions:
        count, least = replicas(found), in_sync_min(found, least)
    elif count is not None and count > len(context.kafka.listeners):
        yield fail(
            f"{factor}={count}, but there are {len(context.kafka.listeners)} brokers: {topic} "
            "cannot be created, and no process starts without it",
            f"start more brokers, or {in_files(f'{factor}={len(context.kafka.listeners)}')}",
        )
        return
    if count is None or least is None:
        raise _not_reported(context, factor)
    yield graded(topic, count, least, f"move {topic} to 3 replicas, and set min.insync.replicas=2")


_transaction_log = check("transaction-log", at="outputs")(
    partial(
        _internal_replicas,
        topic="__transaction_state",
        factor="transaction.state.log.replication.factor",
        in_sync="transaction.state.log.min.isr",
    )
)
_offsets_log = check("offsets-log")(
    partial(
        _internal_replicas,
        topic="__consumer_offsets",
        factor="offsets.topic.replication.factor",
        in_sync="min.insync.replicas",
    )
)


@check("transactional-id-expiry", at="outputs")
def _id_expiry(context: CheckContext) -> Iterator[CheckResult]:
    kept_ms = _limit(context, "transactional.id.expiration.ms")
    if kept_ms < HOUR_MS:
        yield warn(
            f"transactional.id.expiration.ms={kept_ms}: a worker that is idle for this long "
            "loses its transactional id and starts again",
            in_files(f"transactional.id.expiration.ms={_WEEK_MS}"),
        )
    else:
        yield ok(f"transactional ids are kept for {duration_text(kept_ms)}")


@check("offsets-retention")
def _offsets_kept(context: CheckContext) -> Iterator[CheckResult]:
    kept = _limit(context, "offsets.retention.minutes")
    if kept * MINUTE_MS < OFFSETS_KEPT_MIN_MS:
        yield fail(
            f"offsets.retention.minutes={kept}: a pipeline that is stopped for longer loses "
            f"{_lost(context)}",
            in_files(f"offsets.retention.minutes={_WEEK_MS // MINUTE_MS}"),
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
    lowest = _limit(context, GROUP_SESSION_MIN, of=max)
    highest = _limit(context, GROUP_SESSION_MAX)
    if not lowest <= ours <= highest:
        yield fail(
            f"HAPAX_GROUP__SESSION_TIMEOUT={duration_text(ours)} is not within "
            f"{GROUP_SESSION_MIN}={lowest} and {GROUP_SESSION_MAX}={highest}: no member can join",
            f"set HAPAX_GROUP__SESSION_TIMEOUT={duration_text(min(max(ours, lowest), highest))}",
        )
    else:
        yield ok(f"HAPAX_GROUP__SESSION_TIMEOUT={duration_text(ours)} is allowed")


@check("auto-create")
def _auto_create(context: CheckContext) -> Iterator[CheckResult]:
    told = context.broker_settings("auto.create.topics.enable")
    if not told:
        raise _not_reported(context, "auto.create.topics.enable")
    if "true" in told.values():
        yield warn(
            "auto.create.topics.enable=true: a misspelt topic is created with default "
            "replication, and a deleted one is recreated empty",
            in_files("auto.create.topics.enable=false"),
        )
    else:
        yield ok("topics are not created automatically")


class NotReportedError(Exception):
    """What a check would judge is not known."""


def _limit(context: CheckContext, name: str, of: Callable[[list[int]], int] = min) -> int:
    if found := _numbers(context, name):
        return of(found)
    raise _not_reported(context, name)


def _numbers(context: CheckContext, name: str) -> list[int]:
    found = map(number, context.broker_settings(name).values())
    return [each for each in found if each is not None]


def _not_reported(context: CheckContext, name: str) -> NotReportedError:
    why = next((why for what, why in context.kafka.untold.items() if "of broker" in what), "")
    return NotReportedError(f"{name}: no broker returns it{why and ': '}{why}")


@check("topics", now=True)
def _topics(context: CheckContext) -> Iterator[CheckResult]:
    for name, setting in required_topics(context.settings).items():
        topic = context.kafka.topics.get(name)
        if topic is not None and topic.partitions:
            yield ok(f"{name}: {len(topic.partitions)} partitions")
        elif topic is not None and topic.problem and REFUSED in topic.problem:
            yield unknown(f"{name}: {topic.problem}")
        else:
            why = topic.problem if topic is not None and topic.problem else "it does not exist"
            fix = f"{_creating(name, context)}, or correct {setting}"
            yield fail(f"{setting}: topic {name}: {why}", fix)


def _creating(name: str, context: CheckContext) -> str:
    if name == context.settings.retry_topic:
        return create_command(name)
    most = max((len(topic.partitions) for topic in context.read.values()), default=None)
    partitions = "" if most is None else f" --partitions {most}"
    return f"kafka-topics.sh --create --topic {name}{partitions}"


@check("partitions", now=True)
def _partitions(context: CheckContext) -> Iterator[CheckResult]:
    topics = {**context.inputs, **context.outputs}
    topics |= {
        name: topic
        for name, topic in context.kafka.topics.items()
        if name.startswith("__") and topic.partitions
    }
    for name, topic in topics.items():
        least = max(1, in_sync_min(topic, 1) or 0)
        headless, stopped, behind = list[int](), list[int](), list[int]()
        held = topic.partitions.values()
        missing = {broker for each in held for broker in {*each.replicas} - {*each.in_sync}}
        for one, each in topic.partitions.items():
            if each.leader < 0:
                headless.append(one)
            elif len(each.in_sync) < min(least, len(each.replicas)):
                stopped.append(one)
            elif len(each.in_sync) < len(each.replicas):
                behind.append(one)
        fix = f"bring back what holds the missing replicas: brokers {listed(sorted(missing))}"
        if headless:
            yield fail(f"{name}: partitions {listed(headless)} have no leader", fix)
        if stopped:
            yield fail(
                f"{name}: partitions {listed(stopped)} have fewer in-sync replicas than "
                f"min.insync.replicas={least}: nothing can be written",
                fix,
            )
        if behind:
            yield warn(f"{name}: partitions {listed(behind)} are under-replicated", fix)
        if not headless + stopped + behind:
            yield ok(f"{name}: all replicas of all partitions are in sync")


@check("partition-counts", at="input")
def _counts(context: CheckContext) -> Iterator[CheckResult]:
    counts = {name: len(topic.partitions) for name, topic in context.read.items()}
    if len(set(counts.values())) > 1:
        yield warn(
            "the input topics differ in their partitions: "
            + listed(f"{name} has {count}" for name, count in counts.items()),
            "keys of one do not meet those of the other: kafka-topics.sh --alter --topic "
            f"{min(counts, key=counts.__getitem__)} --partitions {max(counts.values())}",
        )
    elif counts:
        yield ok(f"{max(counts.values())} input partitions")


# -- How topics are set ------------------------------------------------------------------------


@check("durability")
def _durability(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in {**context.inputs, **context.outputs}.items():
        least = in_sync_min(topic)
        if least is None:
            yield _settings_unknown(context, name)
            continue
        count = replicas(topic)
        fix = set_topic(name, "min.insync.replicas=2")
        if count < 3:  # noqa: PLR2004 - the table above
            fix = f"give {name} 3 replicas (kafka-reassign-partitions.sh), then {fix}"
        yield graded(name, count, least, fix)
    brokers = context.kafka.settings
    files = {(says, brokers[at][IN_SYNC_MIN]) for at, says in context.kafka.overridden.items()}
    for says, served in sorted(files):
        if (number(says) or 0) < (number(served) or 0):
            continue  # more is served than what the files ask for
        yield warn(
            f"the brokers' files say {IN_SYNC_MIN}={says}, the cluster serves {served} to topics "
            "without one of their own: its dynamic default counts, which clusters that were "
            "formatted by Kafka 4.1 or newer always have",
            f"kafka-configs.sh --alter --entity-type brokers --entity-default --add-config "
            f"{IN_SYNC_MIN}={says}, or set it on each topic",
        )


@check("unclean-election")
def _election(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in {**context.inputs, **context.outputs}.items():
        value = topic.settings.get("unclean.leader.election.enable")
        if value is None:
            yield _settings_unknown(context, name)
        elif value == "true":
            yield fail(
                f"{name}: unclean.leader.election.enable=true: a broker that lags may become the "
                "leader, and acknowledged records and offsets go back",
                set_topic(name, "unclean.leader.election.enable=false"),
            )
        else:
            yield ok(f"{name}: only replicas in sync become leaders")


@check("compaction")
def _compaction(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in {**context.inputs, **context.outputs}.items():
        policy = topic.settings.get("cleanup.policy")
        fix = set_topic(name, "cleanup.policy=delete")
        if policy is None:
            yield _settings_unknown(context, name)
        elif "compact" in policy and name == context.settings.dead_letter.topic:
            yield fail(
                f"{name}: cleanup.policy={policy}: of dead letters with one key only the last is "
                "kept, and one without a key is written under its coordinates",
                fix,
            )
        elif "compact" in policy and name in context.inputs:  # the retry topic has its own check
            lost = "records that are overwritten before they are read have no effect"
            if context.settings.dedup.enabled:
                lost += (
                    "; of copies of one event the one that is left has it, but for the cases under"
                    " Compacted topics in docs/guarantees.md, which a min.compaction.lag.ms longer"
                    " than any outage rules out"
                )
            yield warn(f"{name}: cleanup.policy={policy}: {lost}", fix)
        else:
            yield ok(f"{name}: cleanup.policy={policy}")


@check("fetch-size", at="input")
def _fetch_size(context: CheckContext) -> Iterator[CheckResult]:
    name = "receive.message.max.bytes"
    limit = int(context.settings.kafka.properties.get(name, RECEIVED_MAX))
    for topic, found in context.read.items():
        most = number(found.settings.get("max.message.bytes"))
        if most is None:
            yield _settings_unknown(context, topic)
        elif most + RESPONSE_ADDED > limit:
            yield fail(
                f"{topic}: max.message.bytes={most}, but the client takes responses up to "
                f"{name}={limit}: a larger record holds its partition up",
                f'HAPAX_KAFKA__PROPERTIES={{"{name}": {most + RESPONSE_ADDED}}}, or a smaller '
                "max.message.bytes of the topic",
            )
        else:
            yield ok(f"{topic}: the client takes the largest record that it may hold")


@check("message-size", at="outputs")
def _message_size(context: CheckContext) -> Iterator[CheckResult]:
    told = (number(topic.settings.get("max.message.bytes")) for topic in context.read.values())
    largest = max((most or 0 for most in told), default=0)
    for name, topic in context.outputs.items():
        if name in context.state:
            continue
        most = number(topic.settings.get("max.message.bytes"))
        if most is None or not largest:
            yield _settings_unknown(context, name)
        elif most < largest:
            yield warn(
                f"{name}: max.message.bytes={most}, the input allows {largest}: what is larger "
                "becomes a dead letter, where that is too large one without its value",
                set_topic(name, f"max.message.bytes={largest + HEADERS_ADDED}"),
            )
        else:
            yield ok(f"{name}: takes records as large as the input's, but for added headers")


def _settings_unknown(context: CheckContext, name: str) -> CheckResult:
    why = context.kafka.untold.get(f"settings of topic {name}", "the brokers do not report them")
    return unknown(f"settings of topic {name}: {why}")
