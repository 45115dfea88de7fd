"""One Kafka node in KRaft mode: a broker that is a controller, too."""

from __future__ import annotations

from subprocess import DEVNULL, PIPE, STDOUT, run
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hapax.sandbox import class_archive, formatted, jars, machine, metadata
from hapax.sandbox.guard import PROTOCOLS
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.ports import LOOPBACK
from hapax.sandbox.processes import READY_TIMEOUT_S, ManagedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hapax.sandbox.guard import Guard
    from hapax.sandbox.ports import Ports
    from hapax.sandbox.watchdog import ChildWatchdog

_FORMAT_TIMEOUT_S = 120.0

# A small heap, a collector without threads of its own, and no second compiler: three nodes share
# two cores with the tests.
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


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

    @property
    def java_options(self) -> tuple[str, ...]:
        """Options of the brokers' JVM."""
        return (*self.options, *(self.guard.java_options if self.guard else ()))


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
        listeners = PROTOCOLS if extra.guard else ()
        self.guarded_ports = {listener: ports.reserve() for listener in listeners}
        self._guard = extra.guard
        self.address = f"{LOOPBACK}:{self.port}"
        self._properties = extra.properties
        self._kafka = jars.chosen(extra.kafka)
        self.configuration = folder / "server.properties"
        self._data = folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(
            f"Kafka broker {node_id}",
            java("kafka.Kafka", self.configuration, options=extra.java_options, kafka=self._kafka),
            folder / "broker.log",
            watchdog,
        )

    def configure(self, voters: str, nodes: int) -> None:
        """Write server.properties."""
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
            "listener.security.protocol.map": ",".join(map(_protocol, listeners)),
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
        if formatted.is_formatted(self._data):
            return
        template = formatted.of_jars(jars.fetched(jars.kafka(self._kafka)))
        if formatted.is_formatted(template):
            formatted.copy(
                template, self._data, {"cluster.id": cluster_id, "node.id": self.node_id}
            )
            return
        tool = java("kafka.tools.StorageTool", "format", kafka=self._kafka)
        done = run(
            [*tool, "-t", cluster_id, "-c", self.configuration],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise SandboxError(f"{self.name} cannot format its folder:\n{done.stdout[-2000:]}")
        formatted.keep(self._data, template)

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until this broker itself answers a metadata request: then it has caught up."""
        admin = metadata.admin(self.address)
        self.wait_until(lambda: self.node_id in metadata.brokers(admin), timeout_s)


def java(
    main: str, *words: str | Path, options: Sequence[str] = (), kafka: str | None = None
) -> list[str | Path]:
    """Return the command that runs a class of Kafka; its log goes to standard error."""
    folder = jars.fetched(jars.kafka(kafka))
    archive = class_archive.options(class_archive.of_jars(folder))
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
_ALONE: Mapping[str, object] = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}


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


def _protocol(listener: str) -> str:
    return f"{listener}:{PROTOCOLS.get(listener, 'PLAINTEXT')}"


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
