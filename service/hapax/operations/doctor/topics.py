"""Checks of the topics that are read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import check, fail, listed, ok, output_topics, unknown, warn
from hapax.operations.doctor.durability import in_sync_min

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import Topic
    from hapax.operations.doctor.check import Case, CheckResult

REFUSED: Final = "AUTHORIZATION"


@check(
    "topics", "input, output, dead-letter and retry topics", "FAIL: one does not exist.", now=True
)
def _topics(case: Case) -> Iterator[CheckResult]:
    roles = dict.fromkeys(case.settings.input.topics, "HAPAX_INPUT__TOPICS")
    roles |= dict.fromkeys(output_topics(case.settings), "HAPAX_DEAD_LETTER__TOPIC")
    if not case.settings.elsewhere:
        roles[case.settings.output.topic] = "HAPAX_OUTPUT__TOPIC"
    if case.settings.retry_topic:
        roles[case.settings.retry_topic] = "HAPAX_RETRY__TOPIC"
    for name, setting in roles.items():
        topic = case.kafka.topics.get(name)
        if topic is not None and topic.partitions:
            yield ok(f"{name}: {len(topic.partitions)} partitions")
        elif topic is not None and topic.problem and REFUSED in topic.problem:
            yield unknown(f"{name}: {topic.problem}")
        else:
            why = topic.problem if topic is not None and topic.problem else "it does not exist"
            yield fail(f"{setting}: topic {name}: {why}", "create the topic, or fix the name")


@check(
    "partitions",
    "leaders and in-sync replicas of these topics and of the brokers' own",
    "FAIL: no leader, or fewer in sync than `min.insync.replicas`. WARN: under-replicated.",
    now=True,
)
def _partitions(case: Case) -> Iterator[CheckResult]:
    for name, topic in {**case.inputs, **case.outputs, **_internal(case)}.items():
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


@check("leaders", "whether the preferred brokers lead", "WARN: another one does.")
def _leaders(case: Case) -> Iterator[CheckResult]:
    for name, topic in {**case.inputs, **case.outputs}.items():
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


@check(
    "partition-counts",
    "partitions of the inputs and of the output",
    "WARN: inputs differ, or the output has fewer.",
)
def _counts(case: Case) -> Iterator[CheckResult]:
    counts = {name: len(topic.partitions) for name, topic in case.read.items()}
    if len(set(counts.values())) > 1 and case.side != "outputs":
        yield warn(
            "the input topics differ in their partitions: "
            + listed(f"{name} has {count}" for name, count in counts.items()),
            "give them the same number, or keys of one do not meet those of the other",
        )
    target = case.outputs.get(case.settings.output.topic)
    if target is None or not counts:
        return
    most, out = max(counts.values()), len(target.partitions)
    if out < most:
        yield warn(
            f"{case.settings.output.topic} has {out} partitions, the input {most}: its readers "
            "cannot keep up with as many as its writers",
            f"kafka-topics.sh --alter --topic {case.settings.output.topic} --partitions {most}; "
            "do it before the first record, for keys move",
        )
    elif len(set(counts.values())) == 1:
        yield ok(f"{most} input partitions, {out} output partitions")


@check(
    "partitioner",
    "`HAPAX_OUTPUT__PARTITIONER`: whether a key has the partition that Java gives it",
    "WARN: it has not.",
    needs="process",
)
def _partitioner(case: Case) -> Iterator[CheckResult]:
    chosen = case.settings.output.partitioner
    if chosen == "murmur2":
        yield ok("HAPAX_OUTPUT__PARTITIONER=murmur2: a key has the partition that Java gives it")
    else:
        yield warn(
            f"HAPAX_OUTPUT__PARTITIONER={chosen}: Java producers put the same key elsewhere, so "
            "that joins miss and order of a key holds for one of the two writers only",
            "set HAPAX_OUTPUT__PARTITIONER=murmur2 unless nothing in Java writes or joins there",
        )


def _internal(case: Case) -> dict[str, Topic]:
    return {
        name: topic
        for name, topic in case.kafka.topics.items()
        if name.startswith("__") and topic.partitions
    }
