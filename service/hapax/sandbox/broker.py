"""Kafka in KRaft mode: all nodes of the sandbox, each a broker and a controller, and their topics.

Kafka's tool needs a JVM and 1.3 s of processor time to format a data folder, which means two small
files that are the same for all brokers of a version but for their ids and the time. So it makes the
first, and the others are copies of it.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from hapax.sandbox import jars, machine
from hapax.sandbox.machine import SandboxError, say
from hapax.sandbox.processes import LOOPBACK, READY_TIMEOUT_S, ManagedProcess, Ports, workplace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from confluent_kafka.admin._metadata import ClusterMetadata

    from hapax.sandbox.guard import Guard
    from hapax.sandbox.watchdog import ChildWatchdog

_FORMAT_TIMEOUT_S = 120.0

# A small heap, a collector without threads of its own, and no second compiler: three nodes share
# two cores with the tests.
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_IDS, _FEATURES = "meta.properties", "bootstrap.checkpoint"
_ANSWER_TIMEOUT_S = 1.0
_REQUEST_TIMEOUT_S = 60.0


class Extra(NamedTuple):
    """What a broker has in addition to the plain listener and the settings of every sandbox.

    port  of the plain listener of the first broker, the others follow it; 0: free ones
    kafka  version of Kafka; None: as SANDBOX_KAFKA says (jars.chosen)
    options  of the brokers' JVM, in addition to those of every sandbox
    """

    proxied: bool = False
    port: int = 0
    guard: Guard | None = None
    properties: Mapping[str, str] = MappingProxyType({})
    kafka: str | None = None
    options: tuple[str, ...] = ()


class Broker(ManagedProcess):
    """One node, restarted on the same ports with the same data.

    port               where clients and the other brokers reach it
    controller_port    where the other controllers reach it
    proxy_listen_port  the port it advertises to clients that came through a proxy: a test's proxy
                       listens here (with SO_REUSEADDR, as socket.create_server sets it);
    proxy_target_port  and forwards to here. Both None unless the cluster is ``proxied``.
    guarded_ports      by listener: those that authenticate clients and authorize them
                       (see guard.py). Empty unless the cluster is ``guarded``.
    """

    def __init__(
        self, node_id: int, folder: Path, ports: Ports, watchdog: ChildWatchdog, extra: Extra
    ) -> None:
        self.node_id = node_id
        self.folder = folder
        self.port = ports.reserve(extra.port and extra.port + node_id - 1)
        self.controller_port = ports.reserve()
        self.proxy_listen_port = ports.reserve() if extra.proxied else None
        self.proxy_target_port = ports.reserve() if extra.proxied else None
        self._protocols = extra.guard.listeners if extra.guard else {}
        self.guarded_ports = {listener: ports.reserve() for listener in self._protocols}
        self._guard = extra.guard
        self.address = f"{LOOPBACK}:{self.port}"
        self._properties = extra.properties
        self._kafka = jars.chosen(extra.kafka)
        self.configuration = folder / "server.properties"
        self._data = folder / "data"
        options = (*extra.options, *(extra.guard.java_options if extra.guard else ()))
        super().__init__(
            f"Kafka broker {node_id}",
            java("kafka.Kafka", self.configuration, options=options, kafka=self._kafka),
            folder / "broker.log",
            watchdog,
        )

    def configure(self, voters: str, nodes: int) -> None:
        listeners = {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port}
        advertised = {"PLAINTEXT": self.port}
        if self.proxy_target_port is not None and self.proxy_listen_port is not None:
            listeners["PROXIED"] = self.proxy_target_port
            advertised["PROXIED"] = self.proxy_listen_port
        listeners |= self.guarded_ports
        advertised |= self.guarded_ports
        properties = {
            "process.roles": "broker,controller",
            "node.id": self.node_id,
            "listeners": _listeners(listeners),
            "advertised.listeners": _listeners(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:{self._protocols.get(name, 'PLAINTEXT')}" for name in listeners
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": self._data,
            **_replication(nodes),
            **_FAST,
            **(_ALONE if nodes == 1 else {}),
            **(self._guard.properties() if self._guard else {}),
            **self._properties,
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        self.configuration.write_text("".join(lines), encoding="utf-8")

    def format(self, cluster_id: str) -> None:
        """Prepare the data folder; one that is prepared already stays as it is."""
        if is_formatted(self._data):
            return
        template = jars.fetched(jars.kafka(self._kafka)) / "formatted"
        if is_formatted(template):
            ids = {"cluster.id": cluster_id, "node.id": self.node_id}
            copy_formatted(template, self._data, ids)
            return
        tool = java("kafka.tools.StorageTool", "format", kafka=self._kafka)
        command = [*tool, "-t", cluster_id, "-c", self.configuration]
        done = machine.run(command, _FORMAT_TIMEOUT_S)
        if done.returncode:
            raise SandboxError(f"{self.name} cannot format its folder:\n{done.stdout[-2000:]}")
        keep_formatted(self._data, template)

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S, known: Collection[int] = ()) -> None:
        """Wait until this broker itself names ``known``, or itself: then it has caught up."""
        admin, wanted = metadata_client(self.address), set(known or [self.node_id])
        self.wait_until(
            lambda: (found := _ask(admin)) is not None and wanted <= found.brokers.keys(), timeout_s
        )


class SandboxTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int = 1
    config: Mapping[str, str] | None = None


class KafkaCluster:
    """All brokers of the sandbox."""

    def __init__(
        self, nodes: int, folder: Path, ports: Ports, watchdog: ChildWatchdog, extra: Extra
    ) -> None:
        self.brokers = [
            Broker(node_id, folder / f"broker-{node_id}", ports, watchdog, extra)
            for node_id in range(1, nodes + 1)
        ]
        self._cluster_id = folder / "cluster-id"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def guarded(self, listener: str) -> str:
        ports = [broker.guarded_ports.get(listener) for broker in self.brokers]
        if None in ports:
            raise SandboxError(f"No listener {listener}. Use Sandbox(guarded=Guard)")
        return ",".join(f"{LOOPBACK}:{port}" for port in ports)

    def start(self) -> None:
        """Configure and format all nodes and start them together. Does not wait."""
        voters = ",".join(
            f"{broker.node_id}@{LOOPBACK}:{broker.controller_port}" for broker in self.brokers
        )
        if not self._cluster_id.exists():
            self._cluster_id.write_text(new_id(), encoding="ascii")
        for broker in self.brokers:
            broker.configure(voters, len(self.brokers))
            broker.format(self._cluster_id.read_text(encoding="ascii"))
            broker.start()

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every broker itself answers a metadata request that names all of them."""
        deadline = time.monotonic() + timeout_s
        everybody = {broker.node_id for broker in self.brokers}
        for broker in self.brokers:
            broker.await_ready(max(0.0, deadline - time.monotonic()), everybody)

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists, with a leader for one partition at least."""
        return led_partitions(metadata_client(self.bootstrap_servers), name) > 0

    def create_missing(self, partitions: Mapping[str, int]) -> None:
        missing = [SandboxTopic(*one) for one in partitions.items() if not self.has_topic(one[0])]
        if missing:
            self.create_topics(*missing)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self.create_topics(SandboxTopic(name, partitions, config))

    def create_topics(self, *topics: SandboxTopic) -> None:
        """Create topics with one request, replicated to all nodes.

        Returns when every running broker knows a leader for each of their partitions, and that
        leader answers. Raises KafkaException: a topic exists, its name or its configuration is
        refused.
        """
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=len(self.brokers),
                config=dict(topic.config or {}),
            )
            for topic in topics
        ]
        client = metadata_client(self.bootstrap_servers)
        there = client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
        answers = client.create_topics(new, operation_timeout=_REQUEST_TIMEOUT_S)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                # A slow broker's request to the controller is repeated: the second finds the first.
                if name in there or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        partitions = {topic.name: topic.partitions for topic in topics}
        for broker in self.brokers:
            if broker.running:
                alone = len(self.brokers) == 1
                asked = client if alone else metadata_client(broker.address)
                broker.wait_until(partial(are_led, asked, partitions))
        self.brokers[0].wait_until(partial(leaders_answer, client, partitions))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        client = metadata_client(self.bootstrap_servers)
        target = TopicPartition(topic, partition, before_offset)
        client.delete_records([target], operation_timeout=_REQUEST_TIMEOUT_S)[target].result()


def java(
    main: str, *words: str | Path, options: Sequence[str] = (), kafka: str | None = None
) -> list[str | Path]:
    """Return the command that runs a class of Kafka; its log goes to standard error."""
    folder = jars.fetched(jars.kafka(kafka))
    archive = machine.class_options(machine.classes_of_jars(folder))
    ours = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Djava.awt.headless=true")
    return [machine.java(), *_JVM, *archive, *ours, *options, "-cp", f"{folder}/*", main, *words]


# Everything here makes tests quick or the broker small; nothing here changes what is promised.
_FAST: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    # Records keep the time that they are given, however old; none disappears during a test.
    "log.retention.ms": -1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    # The default of 128 MB does not fit into a small heap with the log: the cleaner would die.
    "log.cleaner.dedupe.buffer.size": 2097152,
}

# A killed broker may not register again before its old session has ended (9 s by default). Alone
# it has no broker to hand over to, so all of that would be waiting; three nodes keep the default,
# or a pause that is meant as a grey failure would become a fail-over.
_ALONE = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}


def _replication(nodes: int) -> Mapping[str, object]:
    in_sync_min = max(1, nodes - 1)
    return {
        "default.replication.factor": nodes,
        "min.insync.replicas": in_sync_min,
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": in_sync_min,
        "share.coordinator.state.topic.replication.factor": nodes,
        "share.coordinator.state.topic.min.isr": in_sync_min,
    }


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())


def new_id() -> str:
    """Return a random id; Kafka's tool takes one that starts with - for an option."""
    while (new := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return new


def is_formatted(data: Path) -> bool:
    """Return whether a data folder has been prepared; its ids are written last."""
    return (data / _IDS).is_file()


def copy_formatted(template: Path, data: Path, ids: Mapping[str, object]) -> None:
    """Prepare a data folder with these ids, by their names, and a directory id of its own."""
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(template / _FEATURES, data)
    ours = {**ids, "directory.id": new_id()}
    lines = [
        line if name not in ours else f"{name}={ours[name]}"
        for line in (template / _IDS).read_text(encoding="ascii").splitlines()
        for name in [line.partition("=")[0]]
    ]
    (data / _IDS).write_text("\n".join([*lines, ""]), encoding="ascii")


def keep_formatted(data: Path, template: Path) -> None:
    """Keep a folder that the tool has just prepared; where that cannot be, it runs each time."""
    with suppress(OSError), tempfile.TemporaryDirectory(dir=template.parent) as work:
        for name in (_IDS, _FEATURES):
            shutil.copy(data / name, work)
        Path(work).rename(template)  # or another process was quicker


def metadata_client(bootstrap_servers: str) -> AdminClient:
    """Return a client that keeps quiet: refused connections are normal while a broker starts."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",
        }
    )


def led_partitions(client: AdminClient, topic: str) -> int:
    """Return how many partitions of a topic have a leader, in the eyes of the one asked."""
    answer = _ask(client)
    if answer is None or topic not in answer.topics:
        return 0
    partitions = answer.topics[topic].partitions.values()
    return sum(partition.leader >= 0 and partition.error is None for partition in partitions)


def are_led(client: AdminClient, partitions: Mapping[str, int]) -> bool:
    return all(led_partitions(client, name) == count for name, count in partitions.items())


def leaders_answer(client: AdminClient, partitions: Mapping[str, int]) -> bool:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {
        TopicPartition(name, number): latest
        for name, count in partitions.items()
        for number in range(count)
    }
    try:
        for one in client.list_offsets(places, request_timeout=_ANSWER_TIMEOUT_S).values():
            one.result()
    except KafkaException:
        return False
    return True


def _ask(client: AdminClient) -> ClusterMetadata | None:
    try:
        return client.list_topics(timeout=_ANSWER_TIMEOUT_S)
    except KafkaException:
        return None


# -- Archives of classes are made once, by hapax sandbox fetch: a JVM writes one as it ends --------


def archive_kafka(version: str | None = None) -> Path:
    """Return the archive of Kafka's classes, of a version as in ``jars.chosen``; make it, once.

    It appears whole or not at all: one that was cut off ends each JVM that maps it. Raises
    SandboxError: the broker that loads them does not start, or does not end in time.
    """
    lock = jars.kafka(version)
    archive = machine.classes_of_jars(jars.fetched(lock))
    if archive.is_file():
        return archive
    with machine.written(archive.parent), machine.alone("classes"):
        archive.parent.mkdir(parents=True, exist_ok=True)
        if archive.is_file():  # another process was before this one
            return archive
        say(f"Archiving the classes of {lock.title}, once: 50 MB, to {archive}")
        with tempfile.TemporaryDirectory(prefix="classes-", dir=archive.parent) as folder:
            unfinished = Path(folder, archive.name)
            _run_kafka(version, (f"-XX:ArchiveClassesAtExit={unfinished}", *machine.CLASSES_QUIET))
            if not unfinished.is_file():
                raise SandboxError(f"This Java does not archive classes: {machine.java()}")
            unfinished.replace(archive)
        # Four stay, the newest: each Java has made one.
        newest_first = sorted(archive.parent.glob("*.jsa"), key=lambda one: -one.stat().st_mtime)
        for old in newest_first[4:]:
            old.unlink(missing_ok=True)
    return archive


def _run_kafka(version: str | None, recording: tuple[str, ...]) -> None:
    with workplace() as (folder, ports, watchdog):
        extra = Extra(kafka=version, options=recording)
        cluster = KafkaCluster(1, folder, ports, watchdog, extra)
        (broker,) = cluster.brokers
        try:
            cluster.start()
            cluster.await_ready()
            cluster.create_topic("classes")
        finally:
            code = broker.terminate()
    if code == -signal.SIGKILL:
        raise SandboxError("The broker whose classes are archived did not end. Try it once more.")
