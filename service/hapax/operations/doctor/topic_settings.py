"""Checks of how the topics are set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.cluster_state import IN_SYNC_MIN
from hapax.operations.doctor.check import check, fail, listed, number, ok, set_topic, unknown, warn
from hapax.operations.doctor.durability import graded, in_sync_min, replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult

FLUSH_LEAST: Final = {"flush.messages": 1000, "flush.ms": 1000}
"""Below it the brokers sync their disks all the time; replication is what protects records."""


@check(
    "durability",
    "acks, replicas and `min.insync.replicas` of these topics (see below)",
    "FAIL: lowest or low. WARN: medium, or no broker may be away, or the brokers' files ask for "
    "more in sync than the cluster does.",
)
def _durability(case: Case) -> Iterator[CheckResult]:
    for name, topic in {**case.inputs, **case.outputs}.items():
        least = in_sync_min(topic)
        if least is None:
            yield _not_reported(case, name)
            continue
        count = replicas(topic)
        fix = set_topic(name, "min.insync.replicas=2")
        if count < 3:  # noqa: PLR2004 - the table of hapax.operations.doctor.durability
            fix = f"give {name} 3 replicas (kafka-reassign-partitions.sh), then {fix}"
        yield graded(name, count, least, fix)
    brokers = case.kafka.settings
    files = {(says, brokers[at][IN_SYNC_MIN]) for at, says in case.kafka.overridden.items()}
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


@check("unclean-election", "`unclean.leader.election.enable`", "FAIL: true.")
def _election(case: Case) -> Iterator[CheckResult]:
    for name, topic in {**case.inputs, **case.outputs}.items():
        value = topic.settings.get("unclean.leader.election.enable")
        if value is None:
            yield _not_reported(case, name)
        elif value == "true":
            yield fail(
                f"{name}: unclean.leader.election.enable=true: a broker that lags may become the "
                "leader, and acknowledged records and offsets go back",
                set_topic(name, "unclean.leader.election.enable=false"),
            )
        else:
            yield ok(f"{name}: only replicas in sync become leaders")


@check(
    "flush",
    "`flush.messages`, `flush.ms`",
    "WARN: below 1000, so that the broker syncs its disk all the time.",
)
def _flush(case: Case) -> Iterator[CheckResult]:
    for name, topic in {**case.inputs, **case.outputs}.items():
        told = {key: number(topic.settings.get(key)) for key in FLUSH_LEAST}
        if None in told.values():
            yield _not_reported(case, name)
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


@check(
    "compaction",
    "`cleanup.policy` of input and dead letters",
    "FAIL: compacted dead letters. WARN: a compacted input.",
)
def _compaction(case: Case) -> Iterator[CheckResult]:
    for name, topic in {**case.inputs, **case.outputs}.items():
        policy = topic.settings.get("cleanup.policy")
        fix = set_topic(name, "cleanup.policy=delete")
        if policy is None:
            yield _not_reported(case, name)
        elif "compact" in policy and name == case.settings.dead_letter.topic:
            yield fail(
                f"{name}: cleanup.policy={policy}: of dead letters with one key only the last is "
                "kept, and one without a key is written under its coordinates",
                fix,
            )
        elif "compact" in policy and name in case.inputs:  # the retry topic has its own check
            lost = "records that are overwritten before they are read have no effect"
            if case.settings.dedup.enabled:
                lost += (
                    "; of copies of one event the one that is left has it, but for the cases under"
                    " Compacted topics in docs/guarantees.md, which a min.compaction.lag.ms longer"
                    " than any outage rules out"
                )
            yield warn(f"{name}: cleanup.policy={policy}: {lost}", fix)
        else:
            yield ok(f"{name}: cleanup.policy={policy}")


RECEIVED_MAX, RESPONSE_ADDED = 100_000_000, 1024
"""The client's ``receive.message.max.bytes``, and about what a response has around a record set."""


@check(
    "fetch-size",
    "the client's `receive.message.max.bytes` against `max.message.bytes` of the input",
    "FAIL: smaller, so that a record may be larger than the client takes.",
    at="input",
)
def _fetch_size(case: Case) -> Iterator[CheckResult]:
    name = "receive.message.max.bytes"
    limit = int(case.settings.kafka.properties.get(name, RECEIVED_MAX))
    for topic, found in case.read.items():
        most = number(found.settings.get("max.message.bytes"))
        if most is None:
            yield _not_reported(case, topic)
        elif most + RESPONSE_ADDED > limit:
            yield fail(
                f"{topic}: max.message.bytes={most}, but the client takes responses up to "
                f"{name}={limit}: a larger record holds its partition up",
                f'HAPAX_KAFKA__PROPERTIES={{"{name}": {most + RESPONSE_ADDED}}}, or a smaller '
                "max.message.bytes of the topic",
            )
        else:
            yield ok(f"{topic}: the client takes the largest record that it may hold")


HEADERS_ADDED = 1024
"""About what our headers take: names, coordinates, an id, the beginning of an error."""


@check(
    "message-size",
    "`max.message.bytes` of output and dead letters against the input's",
    "WARN: smaller.",
    at="outputs",
)
def _message_size(case: Case) -> Iterator[CheckResult]:
    told = (number(topic.settings.get("max.message.bytes")) for topic in case.read.values())
    largest = max((most or 0 for most in told), default=0)
    for name, topic in case.outputs.items():
        most = number(topic.settings.get("max.message.bytes"))
        if most is None or not largest:
            yield _not_reported(case, name)
        elif most < largest:
            yield warn(
                f"{name}: max.message.bytes={most}, the input allows {largest}: what is larger "
                "becomes a dead letter, where that is too large one without its value",
                set_topic(name, f"max.message.bytes={largest + HEADERS_ADDED}"),
            )
        else:
            yield ok(f"{name}: takes records as large as the input's, but for added headers")


def _not_reported(case: Case, name: str) -> CheckResult:
    why = case.kafka.untold.get(f"settings of topic {name}", "the brokers do not report them")
    return unknown(f"settings of topic {name}: {why}")
