"""Faults planted into a live pipeline: the doctor names each; a sound one gets no word."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from hapax.commands.tree import app as commands
from hapax.core.offset_commit import CommittedMetadata
from hapax.sandbox import Sandbox
from hapax.sandbox.processes import Ports
from hapax.sandbox.servers import Redis
from tests.fault.cluster import Cluster
from tests.kit.claim_stores import admin, redis_server, tell
from tests.kit.commands import run_captured
from tests.kit.managed_process import required
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.raw_offsets import commit_raw
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce, produce_aborted, produce_committed, produce_open
from tests.kit.waiting import await_

# A pipeline that is well on three brokers and two Redis, and the doctor that looks at it.


DAY_MS = 86_400_000
PARTITIONS = 2
KEPT = {"retention.ms": str(7 * DAY_MS)}
TROUBLE = {"WARN", "FAIL"}


class Clinic:
    """One healthy pipeline; ``examine`` runs the command with some of its environment changed."""

    def __init__(self, cluster: Sandbox, folder: Path, stores: tuple[Redis, Redis]) -> None:
        self.cluster = cluster
        self.primary, self.replica = stores
        self.route = PipelineUnderTest(cluster, folder, partitions=PARTITIONS)
        self.environ = required(
            app=self.route.app,
            servers=cluster.bootstrap_servers,
            source=self.route.source,
            target=self.route.target,
            INSTANCE="w-0",
            DEAD_LETTER__TOPIC=self.route.dead_letters,
            DEDUP__REDIS_URL=self.primary.url,
            DEDUP__TTL="8d",
            TELEMETRY__PORT="0",
        )

    def topic(self, partitions: int = PARTITIONS, **config: str) -> str:
        name = f"clinic-{uuid.uuid4().hex[:12]}"
        changed = {key.replace("__", "."): value for key, value in config.items()}
        self.cluster.create_topic(name, partitions, {**KEPT, **changed})
        return name

    def run(self, *words: str, **environ: str) -> Any:
        given = {f"HAPAX_{name}": value for name, value in environ.items()}
        return CliRunner().invoke(commands, ["doctor", *words], env={**self.environ, **given})

    def troubles(self, **environ: str) -> set[str]:
        """Return the names of the checks that found something; each must say how it is mended."""
        done = self.run("--json", **environ)
        found = [each for each in json.loads(done.stdout)["findings"] if each["verdict"] in TROUBLE]
        assert all(each["fix"] for each in found), found
        code = 1 if any(each["verdict"] == "FAIL" for each in found) else 0
        if any(each["check"] == "settings" for each in found):
            code = 2
        assert done.exit_code == code, done.output
        return {each["check"] for each in found}

    def checks(self, verdict: str) -> set[str]:
        found = json.loads(self.run("--json").stdout)["findings"]
        return {each["check"] for each in found if each["verdict"] == verdict}

    @contextmanager
    def store(self, **settings: str) -> Iterator[None]:
        """Set the claim store differently for a while; ``__`` in a name stands for a dash."""
        names = [name.replace("__", "-") for name in settings]
        client: Any = admin(self.primary)
        before = {name: client.config_get(name)[name] for name in names}
        for name, value in zip(names, settings.values(), strict=True):
            tell(self.primary, "CONFIG", "SET", name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                tell(self.primary, "CONFIG", "SET", name, value)


@contextmanager
def clinic(cluster: Sandbox, folder: Path) -> Iterator[Clinic]:
    with ExitStack() as stack:
        stores = tuple(
            stack.enter_context(redis_server(folder / name)) for name in ("primary", "replica")
        )
        for each in stores:
            tell(each, "CONFIG", "SET", "appendfsync", "always")
        tell(stores[1], "REPLICAOF", "127.0.0.1", stores[0].port)
        tell(
            stores[0], "CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "600"
        )
        client: Any = admin(stores[0])
        await_(
            lambda: client.info("replication").get("min_slaves_good_slaves") == 1,
            60.0,
            lambda: str(client.info("replication")),
        )
        await_(Cluster(cluster).in_step, 90.0, lambda: "the brokers are not in step")
        made = Clinic(cluster, folder, (stores[0], stores[1]))
        stack.callback(made.route.close)
        made.route.create(source=KEPT, target=KEPT, dead_letters=KEPT)
        records = [Given(b"{}", headers=(("message-id", b"%d" % one),)) for one in range(3)]
        produce(cluster.bootstrap_servers, made.route.source, *records)
        made.route.run_to_end(DEDUP__REDIS_URL=stores[0].url, DEDUP__TTL="8d", TRANSFORM=None)
        yield made


Fault = Callable[[Clinic], AbstractContextManager[dict[str, str]]]
HOUR_MS = 3_600_000
PATIENCE_S = 60.0
"""On a busy machine a broker may be out of step for a moment, and that is said, too."""


@pytest.fixture(scope="module")
def sound(cluster, tmp_path_factory):
    with clinic(cluster, tmp_path_factory.mktemp("clinic")) as made:
        yield made


def test_a_sound_pipeline_gets_the_names_of_what_passed_and_one_line(sound):
    await_(lambda: sound.troubles() == set(), PATIENCE_S, lambda: sound.run().output)
    done = sound.run()
    assert done.exit_code == 0, done.output
    fine, line = done.stdout.splitlines()
    assert (fine[:6], line[:4]) == ("Fine: ", "All ")


def test_every_check_has_an_answer_from_a_live_cluster(sound):
    await_(lambda: sound.checks("UNTOLD") == set(), PATIENCE_S, lambda: sound.run("--all").output)


def test_the_command_writes_nothing_but_its_findings(sound: Clinic) -> None:
    # A process of its own: the client's library writes to standard error past Python.
    done = subprocess.run(
        [sys.executable, "-m", "hapax", "doctor"],
        env={**os.environ, **sound.environ},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == b""
    assert done.stdout.startswith(b"Fine: "), done.stdout


def setting(**environ: str) -> Fault:
    return lambda _: nullcontext(environ)


def topic(role: str, partitions: int = 2, **config: str) -> Fault:
    """A topic of its own in that role; another input belongs to another group."""

    @contextmanager
    def plant(one: Clinic) -> Iterator[dict[str, str]]:
        name = one.topic(partitions, **config)
        yield {role: name} | ({"APP": name} if role == "INPUT__TOPICS" else {})

    return plant


def store(**settings: str) -> Fault:
    @contextmanager
    def plant(one: Clinic) -> Iterator[dict[str, str]]:
        with one.store(**settings):
            yield {}

    return plant


@contextmanager
def dead_address(one: Clinic) -> Iterator[dict[str, str]]:
    ports = Ports()
    servers = f"{one.cluster.bootstrap_servers},127.0.0.1:{ports.reserve()}"
    yield {"KAFKA__BOOTSTRAP_SERVERS": servers}
    ports.close()


@contextmanager
def unknown_name(one: Clinic) -> Iterator[dict[str, str]]:
    yield {"KAFKA__BOOTSTRAP_SERVERS": f"{one.cluster.bootstrap_servers},nowhere.invalid:9092"}


@contextmanager
def dead_listeners(one: Clinic) -> Iterator[dict[str, str]]:
    """Brokers that advertise ports of proxies that are not there."""
    port = one.cluster.kafka.brokers[0].proxy_target_port
    yield {"KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"}


@contextmanager
def open_transaction(one: Clinic) -> Iterator[dict[str, str]]:
    name, then_ms = one.topic(), int(time.time() * 1000) - HOUR_MS
    with produce_open(one.cluster.bootstrap_servers, name, Given(b"v", timestamp_ms=then_ms)):
        yield {"OUTPUT__TOPIC": name}


@contextmanager
def late_reader(one: Clinic) -> Iterator[dict[str, str]]:
    """A group that stopped before records that retention is about to delete."""
    name = one.topic(retention__ms=str(HOUR_MS))
    then_ms = int(time.time() * 1000) - HOUR_MS * 95 // 100
    produce(one.cluster.bootstrap_servers, name, Given(b"v", partition=0, timestamp_ms=then_ms))
    _commit(one, name, 0)
    yield {"INPUT__TOPICS": name, "APP": name}


@contextmanager
def lost_position(one: Clinic) -> Iterator[dict[str, str]]:
    """A group that stands behind the end: its topic was made again."""
    name = one.topic()
    produce(one.cluster.bootstrap_servers, name, Given(b"v", partition=0))
    _commit(one, name, 100)
    yield {"INPUT__TOPICS": name, "APP": name, "DEDUP__REDIS_URL": ""}


@contextmanager
def foreign_offsets(one: Clinic) -> Iterator[dict[str, str]]:
    """A group that was committed on another cluster, as a mirror or another DNS entry makes it."""
    name = one.topic()
    _commit(one, name, 0, CommittedMetadata(cluster_id="another").encode())
    yield {"INPUT__TOPICS": name, "APP": name, "DEDUP__REDIS_URL": ""}


@contextmanager
def foreign_claims(one: Clinic) -> Iterator[dict[str, str]]:
    key = f"hapax:{{{one.route.app}}}:claims:meta"
    client: Any = admin(one.primary)
    before = client.hget(key, "cluster")
    client.hset(key, "cluster", "another")
    yield {}
    if before is None:
        client.hdel(key, "cluster")
    else:
        client.hset(key, "cluster", before)


@contextmanager
def stranger(one: Clinic) -> Iterator[dict[str, str]]:
    """A program of somebody else in our group."""
    name = one.topic()
    consumer = _consumer(one, name, "partition.assignment.strategy")
    try:
        consumer.subscribe([name])
        await_(lambda: _assigned(consumer), 60.0, lambda: "it never joined")
        yield {"INPUT__TOPICS": name, "APP": name}
    finally:
        consumer.close()


@contextmanager
def nearly_full(one: Clinic) -> Iterator[dict[str, str]]:
    used: Any = admin(one.primary).info("memory")["used_memory"]
    with one.store(maxmemory=str(int(used * 1.12))):
        yield {}


@contextmanager
def stopped_store(_: Clinic) -> Iterator[dict[str, str]]:
    ports = Ports()
    yield {"DEDUP__REDIS_URL": f"redis://127.0.0.1:{ports.reserve()}/0"}
    ports.close()


HAPAX = CommittedMetadata(began=2).encode()


def _commit(one: Clinic, name: str, offset: int, beside: str = HAPAX) -> None:
    consumer = _consumer(one, name)
    place = TopicPartition(name, 0, offset, metadata=beside)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def _consumer(one: Clinic, group: str, *more: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": one.cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "somebody",
            "enable.auto.commit": False,
            "log_level": 0,
            **dict.fromkeys(more, "range"),
        }
    )


def _assigned(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return len(consumer.assignment()) == 2


FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "settings that contradict each other": (setting(TRANSACTION__TIMEOUT="50s"), {"settings"}),
    "a bootstrap address that nobody listens at": (dead_address, {"bootstrap"}),
    "a bootstrap name that nobody knows": (unknown_name, {"bootstrap"}),
    "brokers that advertise dead listeners": (dead_listeners, {"listeners"}),
    "an output topic that is not there": (setting(OUTPUT__TOPIC="nowhere"), {"topics"}),
    "an output that one broker may acknowledge": (
        topic("OUTPUT__TOPIC", min__insync__replicas="1"),
        {"durability"},
    ),
    "an output whose writers stop with one broker": (
        topic("OUTPUT__TOPIC", min__insync__replicas="3"),
        {"durability"},
    ),
    "unclean election": (
        topic("OUTPUT__TOPIC", unclean__leader__election__enable="true"),
        {"unclean-election"},
    ),
    "a compacted input": (topic("INPUT__TOPICS", cleanup__policy="compact,delete"), {"compaction"}),
    "an input that is cut off by size": (
        topic("INPUT__TOPICS", retention__bytes="1000000"),
        {"retention-bytes"},
    ),
    "unread records that are about to be deleted": (late_reader, {"retention", "group-state"}),
    "a position that is not in the log": (lost_position, {"positions"}),
    "claims that end before the records do": (setting(DEDUP__TTL="24h"), {"claim-ttl"}),
    "dead letters that are gone within an hour": (
        topic("DEAD_LETTER__TOPIC", retention__ms=str(HOUR_MS)),
        {"dead-letter-retention"},
    ),
    "dead letters that do not fit": (
        topic("DEAD_LETTER__TOPIC", max__message__bytes="1000"),
        {"message-size"},
    ),
    "a transaction that nobody ends": (open_transaction, {"open-transactions"}),
    "a stranger in the group": (stranger, {"group-members"}),
    "a Redis whose certificate is not verified": (
        lambda one: nullcontext(
            {"DEDUP__REDIS_URL": f"rediss://127.0.0.1:{one.primary.port}/0?ssl_cert_reqs=none"}
        ),
        {"redis-encryption", "claim-store"},  # this one has no TLS at all
    ),
    "brokers whose certificates are not verified": (
        setting(
            KAFKA__SECURITY__PROTOCOL="ssl",
            KAFKA__PROPERTIES='{"enable.ssl.certificate.verification": false}',
        ),
        {"kafka-verification", "brokers"},  # these have no TLS at all
    ),
    "offsets of another cluster": (foreign_offsets, {"cluster-offsets"}),
    "claims of another cluster": (foreign_claims, {"claim-cluster"}),
    "a Redis that is stopped": (stopped_store, {"claim-store"}),
    "a Redis that refuses our password": (
        lambda one: nullcontext({"DEDUP__REDIS_URL": f"redis://:no@127.0.0.1:{one.primary.port}"}),
        {"claim-store"},
    ),
    "a Redis that evicts": (store(maxmemory__policy="allkeys-lru"), {"claim-eviction"}),
    "a Redis without a disk": (store(appendonly="no"), {"claim-persistence"}),
    "a Redis that syncs every second": (store(appendfsync="everysec"), {"claim-persistence"}),
    "a Redis that does not wait for its replica": (
        store(min__replicas__to__write="0"),
        {"claim-replicas"},
    ),
    "a Redis that is nearly full": (nearly_full, {"claim-memory"}),
    "a Redis that is a replica": (
        lambda one: nullcontext({"DEDUP__REDIS_URL": one.replica.url}),
        {"claim-role"},
    ),
    "a Redis that was emptied": (
        lambda one: nullcontext({"DEDUP__REDIS_URL": one.primary.url[:-1] + "1"}),
        {"claims-present"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_live_pipeline_is_named(sound, fault):
    plant, checks = FAULTS[fault]
    with plant(sound) as environ:
        await_(
            lambda: sound.troubles(**environ) == checks,
            PATIENCE_S,
            lambda: sound.run(**environ).output,
        )


@pytest.mark.long
def test_a_broker_that_hangs_and_one_that_is_gone_are_named(sound):
    broker = sound.cluster.kafka.brokers[-1]
    try:
        broker.pause()
        await_(
            lambda: "listeners" in sound.troubles(), PATIENCE_S, lambda: sound.run("--all").output
        )
        broker.kill()
        gone = {"bootstrap", "partitions"}
        await_(lambda: gone <= sound.troubles(), PATIENCE_S, lambda: sound.run("--all").output)
    finally:
        Cluster(sound.cluster).restore()
    assert Cluster(sound.cluster).await_in_step()


# -- What the doctor says of the programs around a pipeline: its writers, its readers, its group.


KEYS = [b"customer-%d" % number for number in range(60)]
route = a_route(created=False, partitions=4)


def told(route, check: str, **settings: str) -> list[tuple[str, str]]:
    """Return verdicts and sentences of one check; what is wrong must name its fix."""
    words = [sys.executable, "-m", "hapax", "doctor", "--json"]
    found = json.loads(run_captured(words, env=route.environment(**settings)).stdout)["findings"]
    assert all(one["fix"] for one in found if one["verdict"] in {"WARN", "FAIL"})
    return [(one["verdict"], one["saw"]) for one in found if one["check"] == check]


def judged(route, check: str, verdict: str) -> str:
    """Return the one sentence of a check, which must come to this verdict."""
    [(found, saw)] = told(route, check)
    assert found == verdict
    return saw


def write_by(route, partitioner: str, *keys: bytes | None) -> None:
    """Write a record of each key with librdkafka's partitioner of that name."""
    given = {"bootstrap.servers": route.bootstrap, "partitioner": partitioner}
    producer = Producer({**given, "sticky.partitioning.linger.ms": 0})
    for key in keys:
        producer.produce(route.source, value=b"{}", key=key)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("partitioner", "whose", "outputs"),
    [
        ("murmur2_random", "where Java's partitioner puts them", ""),
        ("consistent_random", "where CRC32", "murmur2 puts those of outputs elsewhere"),
        ("fnv1a_random", "where FNV-1a", "murmur2 puts those of outputs elsewhere"),
    ],
)
def test_the_partitioner_that_explains_all_keys_is_named_without_a_warning(
    route, partitioner, whose, outputs
):
    route.create()
    write_by(route, partitioner, *KEYS, *[None] * 20)
    saw = judged(route, "keys", "PASS")
    assert "60 sampled keys" in saw, "a record without a key is no evidence"
    assert whose in saw
    assert outputs in saw


def test_keys_of_two_partitioners_in_one_topic_are_a_warning_that_names_the_other_one(route):
    route.create()
    write_by(route, "murmur2_random", *KEYS[:30])
    write_by(route, "consistent_random", *KEYS[30:])
    saw = judged(route, "keys", "WARN")
    assert "60 sampled keys:" in saw
    assert "a producer uses CRC32" in saw


def test_a_key_in_two_partitions_is_a_warning_whoever_wrote_it(route):
    route.create()
    route.write(*[Given(b"{}", key, partition=at) for key in KEYS[:3] for at in (0, 1)])
    assert "3 are seen in two partitions" in judged(route, "keys", "WARN")


def test_timestamps_out_of_the_range_of_either_topic_are_named(route):
    forever = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    limits = {f"message.timestamp.{side}.max.ms": str(2 * DAY_MS) for side in ("before", "after")}
    now_ms = int(time.time() * 1000)
    route.create(
        source={**forever, "retention.ms": str(DAY_MS)}, target={**limits, "retention.ms": "-1"}
    )
    stamps = (now_ms, now_ms + 3 * DAY_MS, now_ms - 9 * DAY_MS, -1)
    route.write(*[Given(b"{}", partition=0, timestamp_ms=one) for one in stamps])
    ahead, none, old = told(route, "timestamps")
    assert {ahead[0], none[0], old[0]} == {"WARN"}
    assert "of 4 sampled records 1 have timestamps in the future, by up to 3.0 days" in ahead[1]
    assert "1 have no timestamp" in none[1]
    assert "up to 9.0 days old, were older than retention.ms=86400000" in old[1]

    saw = judged(route, "output-timestamps", "WARN")
    assert "2 sampled records of the input have a timestamp" in saw, "one ahead, one behind"
    assert told(route, "output-timestamps", OUTPUT__TIMESTAMP="now")[0][0] == "PASS"


def test_an_output_that_takes_no_record_as_old_as_the_input_keeps_them_is_named(route):
    limit = {"message.timestamp.before.max.ms": str(DAY_MS)}
    route.create(target=limit, source={"retention.ms": str(2 * DAY_MS)})
    assert "and the input keeps records for longer" in judged(route, "output-timestamps", "WARN")


def reader(route, group: str, count: int) -> None:
    """Read so many outputs with a group, and commit as librdkafka does: one past the last one."""
    given: dict[str, Any] = {"bootstrap.servers": route.bootstrap, "group.id": group}
    client = Consumer({**given, "enable.auto.commit": False})
    client.assign([TopicPartition(route.target, 0, OFFSET_BEGINNING)])
    try:
        for _ in range(count):
            assert client.consume(1, 60.0)[0].error() is None
        client.commit(asynchronous=False)
    finally:
        client.close()


def test_a_reader_that_markers_keep_from_the_end_is_named_with_its_number(route):
    route.create()
    for at in (0, 1):
        records = [Given(b"%d" % number, partition=at) for number in range(10)]
        produce_committed(route.bootstrap, route.target, *records)
        produce_aborted(route.bootstrap, route.target, *records[:5])
    names = {name: f"{route.app}-{name}" for name in ("rest", "lag", "end", "midst")}
    reader(route, names["rest"], 10)
    reader(route, names["lag"], 4)
    commit_raw(route.bootstrap, names["end"], route.target, {0: (17, 0, "")})
    commit_raw(route.bootstrap, names["midst"], route.target, {1: (13, 0, "")})
    saw = judged(route, "readers", "WARN")
    assert saw.startswith(f"group {names['rest']} has read every record of 1 partitions, and end")
    assert "committed says 7" in saw
    assert f"({route.target}/0/10)" in saw


def test_offsets_of_another_client_in_our_group_are_named_until_hapax_has_its_own(route):
    route.create()
    route.write(*[Given(b"{}", partition=at) for at in range(4) for _ in range(3)])
    assert route.committed() == dict.fromkeys(range(4)), "the coordinator is up"
    member = "kgo-1f6686ee-ac7d-4b08-8374-1f81a76bccbe"
    commit_raw(route.bootstrap, route.app, route.source, {0: (2, 0, member), 3: (3, 0, member)})
    saw = judged(route, "group-offsets", "WARN")
    assert "of another client (franz-go) in 2 of 4 partitions" in saw
    assert "begins 2 by HAPAX_INPUT__START=earliest" in saw
    (passed,) = route.run_to_end().lines("preflight_passed")
    assert any("offsets are another client's" in one for one in passed["remarks"])
    saw = judged(route, "group-offsets", "PASS")
    assert "another client in 1 of 4 partitions" in saw, "nothing came there since"
