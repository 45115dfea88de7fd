"""Checks of the topics that are read and written, and of how they are set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.cluster_state import IN_SYNC_MIN
from hapax.kafka.admin.preflight import required_topics
from hapax.operations.doctor.brokers import graded, in_sync_min, replicas
from hapax.operations.doctor.check import (
    check,
    fail,
    listed,
    number,
    ok,
    set_topic,
    unknown,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import CheckContext, CheckResult

REFUSED: Final = "AUTHORIZATION"
FLUSH_LEAST: Final = {"flush.messages": 1000, "flush.ms": 1000}
"""Below it the brokers sync their disks all the time; replication is what protects records."""
RECEIVED_MAX, RESPONSE_ADDED = 100_000_000, 1024
"""The client's ``receive.message.max.bytes``, and about what a response has around a record set."""
HEADERS_ADDED = 1024
"""About what the headers of Hapax take: names, coordinates, an id, the beginning of an error."""


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
            yield fail(f"{setting}: topic {name}: {why}", "create the topic, or fix the name")


@check("partitions", now=True)
def _partitions(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in {**context.inputs, **context.outputs, **_internal(context)}.items():
        headless = [one for one, each in topic.partitions.items() if each.leader < 0]
        least = max(1, in_sync_min(topic, 1) or 0)
        stopped = [
            one
            for one, each in topic.partitions.items()
            if one not in headless and len(each.in_sync) < min(least, len(each.replicas))
        ]
        behind = [
            one
            for one, each in topic.partitions.items()
            if one not in headless + stopped and len(each.in_sync) < len(each.replicas)
        ]
        fix = "bring back the brokers that hold the missing replicas"
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


@check("leaders")
def _leaders(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in {**context.inputs, **context.outputs}.items():
        moved = [
            one
            for one, each in topic.partitions.items()
            if each.replicas and each.leader >= 0 and each.leader != each.replicas[0]
        ]
        if moved:
            yield warn(
                f"{name}: partitions {listed(moved)} are not led by their preferred broker",
                "kafka-leader-election.sh --election-type preferred --all-topic-partitions",
            )
        else:
            yield ok(f"{name}: every partition is led by its preferred broker")


@check("partition-counts")
def _counts(context: CheckContext) -> Iterator[CheckResult]:
    counts = {name: len(topic.partitions) for name, topic in context.read.items()}
    if len(set(counts.values())) > 1 and context.side != "outputs":
        yield warn(
            "the input topics differ in their partitions: "
            + listed(f"{name} has {count}" for name, count in counts.items()),
            "give them the same number, or keys of one do not meet those of the other",
        )
    target = context.outputs.get(context.settings.output.topic)
    if target is None or not counts:
        return
    most, out = max(counts.values()), len(target.partitions)
    if out < most:
        yield warn(
            f"{context.settings.output.topic} has {out} partitions, the input {most}: its readers "
            "cannot keep up with as many as its writers",
            f"kafka-topics.sh --alter --topic {context.settings.output.topic} --partitions {most}; "
            "do it before the first record, for keys move",
        )
    elif len(set(counts.values())) == 1:
        yield ok(f"{most} input partitions, {out} output partitions")


@check("partitioner", needs="process")
def _partitioner(context: CheckContext) -> Iterator[CheckResult]:
    chosen = context.settings.output.partitioner
    if chosen == "murmur2":
        yield ok("HAPAX_OUTPUT__PARTITIONER=murmur2: a key has the partition that Java gives it")
    else:
        yield warn(
            f"HAPAX_OUTPUT__PARTITIONER={chosen}: Java producers put the same key elsewhere, so "
            "that joins miss and order of a key holds for one of the two writers only",
            "set HAPAX_OUTPUT__PARTITIONER=murmur2 unless nothing in Java writes or joins there",
        )


def _internal(context: CheckContext) -> dict[str, Topic]:
    return {
        name: topic
        for name, topic in context.kafka.topics.items()
        if name.startswith("__") and topic.partitions
    }


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
        if count < 3:  # noqa: PLR2004 - the table of hapax.operations.doctor.brokers
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


@check("flush")
def _flush(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in {**context.inputs, **context.outputs}.items():
        told = {key: number(topic.settings.get(key)) for key in FLUSH_LEAST}
        if None in told.values():
            yield _settings_unknown(context, name)
            continue
        low = [f"{key}={value}" for key, value in told.items() if (value or 0) < FLUSH_LEAST[key]]
        if low:
            yield warn(
                f"{name}: {listed(low)}: the broker syncs its disk all the time, and every "
                "transaction waits for it",
                f"remove {listed(FLUSH_LEAST)} from the topic; replicas protect records, not syncs",
            )
        else:
            yield ok(f"{name}: the operating system decides when to write to the disk")


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
