"""A pipeline that is well, as facts; tests plant one fault and see who names it."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from hapax.claims.redis_health import judged_health
from hapax.cluster import cluster_state
from hapax.cluster.partition_offsets import LogOffsets
from hapax.kafka.admin.topics import target_settings
from hapax.operations.doctor.check import CheckContext, Finding, Verdict
from hapax.operations.doctor.examination import judge
from hapax.processing.retry_later import LEVELS
from hapax.settings import load_settings

ENVIRON = {
    "HAPAX_APP": "shop",
    "HAPAX_INSTANCE": "0",
    "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "kafka-0:9092,kafka-1:9092",
    "HAPAX_INPUT__TOPICS": "in",
    "HAPAX_OUTPUT__TOPIC": "out",
    "HAPAX_DEAD_LETTER__TOPIC": "dead",
    "HAPAX_KAFKA__SECURITY__PROTOCOL": "ssl",
    "HAPAX_DEDUP__REDIS_URL": "rediss://cache:6379/0",
    "HAPAX_DEDUP__TTL": "8d",
}
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
EVERYTHING = ("ALL", "DESCRIBE", "READ", "WRITE")

TOPIC = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY_MS),
    "segment.ms": str(7 * DAY_MS),
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
}
BROKER = {
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "transactional.id.expiration.ms": "604800000",
    "offsets.retention.minutes": "10080",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "auto.create.topics.enable": "false",
}
SOUND = cluster_state.Partition(leader=1, replicas=(1, 2, 3), in_sync=(1, 2, 3))
LOG = cluster_state.Log(
    offsets=LogOffsets(5, 10, 10),
    last_stable_later=10,
    committed=10,
    since={HOUR_MS: 8},
    cluster_id="ours",
)
SEEN_MS = 1_795_780_000_000
SAMPLE = cluster_state.LastRecords(
    partitions=2,
    placed={"murmur2": 20, "murmur2,crc32": 20},
    timestamps_ms=(SEEN_MS - HOUR_MS, SEEN_MS),
    seen_ms=SEEN_MS,
)
MEMBER = cluster_state.GroupMember("shop-0", "/10.0.0.1", "shop-0", ("in",), 2)


def topic(*partitions: cluster_state.Partition, **settings: str) -> cluster_state.Topic:
    """Return a topic; ``__`` in a name stands for a dot."""
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    return cluster_state.Topic(
        partitions=dict(enumerate(partitions or (SOUND, SOUND))),
        settings={**TOPIC, **changed},
        operations=EVERYTHING,
    )


KAFKA = cluster_state.ClusterState(
    bootstrap=(cluster_state.Address("kafka-0:9092"), cluster_state.Address("kafka-1:9092")),
    listeners={number: cluster_state.Address(f"kafka-{number}:9092") for number in (1, 2, 3)},
    apis={"TxnOffsetCommit": 5, "ConsumerGroupHeartbeat": 1, "EndTxn": 5},
    controller=1,
    cluster_id="ours",
    topics={name: topic() for name in ("in", "out", "dead", "__transaction_state")},
    settings=dict.fromkeys((1, 2, 3), BROKER),
    group=cluster_state.ConsumerGroup(
        "STABLE", "classic", "cooperative-sticky", (MEMBER,), EVERYTHING
    ),
    logs={(name, number): LOG for name in ("in", "out", "dead") for number in (0, 1)},
    ids={"shop:0": ""},
    samples={"in": SAMPLE},
)
CLAIMS_FACTS: dict[str, Any] = {"skew_ms": 3, "claimed": True, "cluster_id": "ours"}
CLAIMS = judged_health(
    "cache:6379/0",
    info={
        "redis_version": "7.0.15",
        "role": "master",
        "connected_slaves": "1",
        "aof_enabled": "1",
        "used_memory": "1000000",
        "maxmemory": "0",
        "total_system_memory": "8000000000",
    },
    settings={
        "maxmemory-policy": "noeviction",
        "appendfsync": "always",
        "save": "",
        "min-replicas-to-write": "1",
    },
    **CLAIMS_FACTS,
)
PROCESS = cluster_state.ProcessState(librdkafka="2.16.0", libraries={}, files_max=20_000)


def healthy(**environ: str) -> CheckContext:
    return CheckContext(load_settings({**ENVIRON, **environ}), KAFKA, CLAIMS, PROCESS)


ELSEWHERE = {
    "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "there-0:9092",
    "HAPAX_OUTPUT__KAFKA__SECURITY__PROTOCOL": "ssl",
}
KAFKA_HERE = replace(
    KAFKA,
    topics={name: topic() for name in ("in", "__consumer_offsets")},
    logs={("in", number): LOG for number in (0, 1)},
    ids={},
)
KAFKA_THERE = replace(
    KAFKA,
    bootstrap=(cluster_state.Address("there-0:9092"),),
    cluster_id="theirs",
    topics={name: topic() for name in ("out", "dead", "__transaction_state")},
    group=cluster_state.ConsumerGroup("EMPTY", "classic", "", (), EVERYTHING),
    logs={(name, number): LOG for name in ("out", "dead") for number in (0, 1)},
    ids={"shop/from/doctor": ""},
    samples={},
)


def healthy_there(**environ: str) -> CheckContext:
    """Return the case on the cluster of the outputs of a pipeline between two, without a fault."""
    here = healthy(**{**ELSEWHERE, **environ})._replace(kafka=KAFKA_HERE)
    return CheckContext(target_settings(here.settings), KAFKA_THERE, None, PROCESS, here)


def with_topic(
    name: str, *partitions: cluster_state.Partition, **settings: str
) -> Callable[[CheckContext], CheckContext]:
    def change(case: CheckContext) -> CheckContext:
        topics = {**case.kafka.topics, name: topic(*partitions, **settings)}
        return case._replace(kafka=replace(case.kafka, topics=topics))

    return change


def with_retry(partitions: int = LEVELS, **settings: str) -> Callable[[CheckContext], CheckContext]:
    """Return what lets records wait for a later try, in a topic so set; no partitions: in none."""

    def change(case: CheckContext) -> CheckContext:
        topics = dict(case.kafka.topics)
        if partitions:
            topics["shop-retry"] = topic(*[SOUND] * partitions, **settings)
        logs = {("shop-retry", number): LOG for number in range(partitions)}
        facts = replace(case.kafka, topics=topics, logs={**case.kafka.logs, **logs})
        return case._replace(
            settings=load_settings({**ENVIRON, "HAPAX_RETRY__LATER": "OSError"}), kafka=facts
        )

    return change


def with_state(
    partitions: int = 2,
    folder: str | None = ".",
    size: str = "1MiB",
    low: int = 0,
    **settings: str,
) -> Callable[[CheckContext], CheckContext]:
    """Return what lets the transform keep state, in a topic so set; no partitions: in none."""
    environ = ENVIRON | {"HAPAX_STATE__SIZE_MAX": size}
    if folder is not None:
        environ |= {"HAPAX_STATE__DIR": folder}
    given = {"cleanup__policy": "compact", "delete__retention__ms": str(DAY_MS)} | settings

    def change(case: CheckContext) -> CheckContext:
        topics = dict(case.kafka.topics)
        if partitions:
            topics["shop-state"] = topic(*[SOUND] * partitions, **given)
        log = replace(LOG, offsets=LogOffsets(low, 10, 10))
        logs = {("shop-state", number): log for number in range(partitions)}
        facts = replace(case.kafka, topics=topics, logs={**case.kafka.logs, **logs})
        return case._replace(settings=load_settings(environ), kafka=facts, state=("shop-state",))

    return change


def with_two_inputs(case: CheckContext) -> CheckContext:
    """Let the second one have one partition."""
    facts = replace(
        case.kafka,
        topics={**case.kafka.topics, "more": topic(SOUND)},
        logs={**case.kafka.logs, ("more", 0): LOG},
        samples={**case.kafka.samples, "more": SAMPLE},
    )
    environ = {**ENVIRON, "HAPAX_INPUT__TOPICS": "in,more"}
    return case._replace(settings=load_settings(environ), kafka=facts)


def with_kafka(**facts: Any) -> Callable[[CheckContext], CheckContext]:
    return lambda case: case._replace(kafka=replace(case.kafka, **facts))


def with_broker(**settings: str) -> Callable[[CheckContext], CheckContext]:
    """Return what sets one broker; ``__`` in a name stands for a dot."""
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    return with_kafka(settings={1: BROKER, 2: {**BROKER, **changed}})


def with_log(name: str, **offsets: Any) -> Callable[[CheckContext], CheckContext]:
    """Return what sets the offsets of the first partition of a topic."""
    assert LOG.offsets is not None
    ends = {name: offsets.pop(name) for name in LogOffsets.__struct_fields__ if name in offsets}
    log = replace(LOG, offsets=replace(LOG.offsets, **ends), **offsets)
    return with_kafka(logs={**KAFKA.logs, (name, 0): log})


def with_sample(name: str = "in", **facts: Any) -> Callable[[CheckContext], CheckContext]:
    return with_kafka(samples={name: replace(SAMPLE, **facts)})


def with_group(**facts: Any) -> Callable[[CheckContext], CheckContext]:
    group = KAFKA.group
    assert group is not None
    return with_kafka(group=replace(group, **facts))


def with_claims(
    info: dict[str, str] | None = None, settings: dict[str, str] | None = None, **facts: Any
) -> Callable[[CheckContext], CheckContext]:
    def change(case: CheckContext) -> CheckContext:
        found = judged_health(
            CLAIMS.place,
            info={**CLAIMS.info, **(info or {})},
            settings={**CLAIMS.settings, **(settings or {})},
            **{**CLAIMS_FACTS, **facts},
        )
        return case._replace(claims=found)

    return change


def with_process(**facts: Any) -> Callable[[CheckContext], CheckContext]:
    return lambda case: case._replace(process=replace(PROCESS, **facts))


def troubles(findings: Iterable[Finding]) -> dict[str, Verdict]:
    found = [one for one in findings if one.verdict in {Verdict.WARN, Verdict.FAIL}]
    assert all(one.fix for one in found), found
    worst: dict[str, Verdict] = {}
    for one in found:
        worst[one.check] = (
            Verdict.FAIL if Verdict.FAIL in {one.verdict, worst.get(one.check)} else Verdict.WARN
        )
    return worst


def judged(case: CheckContext) -> list[Finding]:
    return list(judge(case))
