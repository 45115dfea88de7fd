"""Real Kafka and real Redis on this machine, for the demo, tests and benchmarks.

Nothing here is used in production but the jars of Spark's connector, which are part of the images.
"""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar

from hapax.cluster.cluster_state import Right
from hapax.sandbox.broker import Broker, Extra, KafkaCluster, SandboxTopic, metadata_client
from hapax.sandbox.guard import LOGIN, Guard, Rights
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import workplace
from hapax.sandbox.servers import Prometheus, Redis, RegistryServer, SparkCluster, monitoring

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "Broker",
    "Guard",
    "KafkaCluster",
    "Prometheus",
    "Redis",
    "RegistryServer",
    "Rights",
    "Sandbox",
    "SandboxError",
    "SandboxTopic",
    "SparkCluster",
    "monitoring",
    "secure_environment",
]
Part = TypeVar("Part")
USER = "hapax"
MECHANISM = "SCRAM-SHA-512"
_WHY = "to try things on"
_EVERYTHING = (
    *(Right(kind, "*", "ALL", _WHY) for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")),
    Right("CLUSTER", "kafka-cluster", "ALL", _WHY),
)


class Sandbox:
    """Kafka and Redis on free ports of 127.0.0.1, for as long as the block lasts.

    ::

        with Sandbox(nodes=1) as sandbox:
            sandbox.create_topic("orders", partitions=4)
            subprocess.run([...], env=os.environ | sandbox.environment())

    nodes     1, or 3 with replication factor 3 and two in-sync replicas
    redis     whether Redis is started, too
    data_dir  a folder whose data outlive the block; default: a temporary one, removed with it
    proxied   whether brokers have a listener that advertises another port than its own, so that a
              proxy can be put in between (see Broker)
    guarded   how brokers have listeners that authenticate clients and let them do what they are
              granted, and Redis a port with TLS: ``sandbox.kafka.guarded(...)``,
              ``sandbox.rights``, ``sandbox.guard``, ``sandbox.redis.tls_url``; None: not
    properties  of the brokers, in addition to those of every sandbox or instead of them
    kafka     its version; None: what SANDBOX_KAFKA says, else the newest
    spark_workers  of one core, of a Spark cluster; 0: there is none
    registry  whether a schema registry is started, too
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        redis: bool = True,
        data_dir: Path | None = None,
        proxied: bool = False,
        guarded: type[Guard] | None = None,
        properties: Mapping[str, str] | None = None,
        kafka: str | None = None,
        spark_workers: int = 0,
        registry: bool = False,
    ) -> None:
        if nodes not in (1, 3):
            raise SandboxError("A sandbox has 1 node or 3.")
        self._nodes = nodes
        self._with_redis = redis
        self._data_dir = data_dir
        self._guarded = guarded
        self._spark_workers = spark_workers
        self._with_registry = registry
        self._extra = Extra(proxied=proxied, properties=properties or {}, kafka=kafka)
        self._redis_port = 0
        self._guard: Guard | None = None
        self._kafka: KafkaCluster | None = None
        self._redis: Redis | None = None
        self._spark: SparkCluster | None = None
        self._registry: RegistryServer | None = None
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def listen_on(self, kafka: int = 0, redis: int = 0) -> Self:
        """Take these ports (0: free ones) before the start; ``kafka``: of the first broker."""
        self._extra = self._extra._replace(port=kafka)
        self._redis_port = redis
        return self

    def start(self) -> None:
        """Start everything and wait until it answers; when that fails, end what was started."""
        if self._kafka is not None:
            raise SandboxError("This sandbox was started before. Create a new one.")
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything; remove the data unless they were given a place."""
        self._exits.close()

    @property
    def kafka(self) -> KafkaCluster:
        if self._kafka is None:
            raise SandboxError("The sandbox is not started. Use it as: with Sandbox() as sandbox")
        return self._kafka

    @property
    def redis(self) -> Redis:
        return _there(self._redis, "Redis", "redis=True")

    @property
    def spark(self) -> SparkCluster:
        return _there(self._spark, "Spark", "spark_workers=2")

    @property
    def registry(self) -> RegistryServer:
        return _there(self._registry, "registry", "registry=True")

    @property
    def rights(self) -> Rights:
        return Rights(metadata_client(self.bootstrap_servers))

    @property
    def guard(self) -> Guard:
        return _there(self._guard, "authentication", "guarded=Guard")

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers

    @property
    def redis_url(self) -> str:
        return self.redis.url

    def environment(self) -> dict[str, str]:
        variables = {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers}
        if self._with_redis:
            variables["HAPAX_DEDUP__REDIS_URL"] = self.redis_url
        if self._registry is not None:
            variables |= self._registry.environment()
        return variables if self._spark is None else variables | self._spark.environment()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self.kafka.create_topic(name, partitions, config)

    def create_topics(self, *topics: SandboxTopic) -> None:
        self.kafka.create_topics(*topics)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        self.kafka.delete_records(topic, partition, before_offset)

    def _start(self) -> None:
        place = workplace(self._data_dir)
        folder, ports, watchdog = self._exits.enter_context(place)
        if self._guarded:
            self._guard = self._guarded(folder / "guard")
        extra = self._extra._replace(guard=self._guard)
        self._kafka = KafkaCluster(self._nodes, folder, ports, watchdog, extra)
        if self._with_redis:
            self._redis = Redis(folder / "redis", ports, watchdog, self._guard, self._redis_port)
        if self._spark_workers:
            self._spark = SparkCluster(self._spark_workers, folder / "spark", ports, watchdog)
        if self._with_registry:
            self._registry = RegistryServer(folder / "registry", ports, watchdog)
        self._exits.callback(self._end)
        parts = (self._redis, self._kafka, self._spark, self._registry)
        servers = [one for one in parts if one is not None]
        for one in servers:
            one.start()
        for one in servers:
            one.await_ready()

    def _end(self) -> None:
        """End all servers: politely where their data are needed again, at once where not."""
        further = [one for one in (self._redis, self._registry) if one is not None]
        for server in (*self.kafka.brokers, *further):
            (server.kill if self._data_dir is None else server.terminate)()
        for daemon in self._spark.daemons if self._spark else []:
            daemon.kill()  # nothing of theirs is kept


def _there(part: Part | None, name: str, how: str) -> Part:
    if part is None:
        raise SandboxError(f"This sandbox has no {name}. Use Sandbox({how})")
    return part


def secure_environment(sandbox: Sandbox, *, redis: bool) -> dict[str, str]:
    """Create the user; return the variables with which Hapax logs in. Secrets are in files."""
    folder, ca_file = sandbox.guard.folder, str(sandbox.guard.authority.ca_file)
    password = secrets.token_urlsafe(18)
    sandbox.rights.set_password(USER, password, MECHANISM)
    sandbox.rights.allow(USER, *_EVERYTHING)
    security = {
        "PROTOCOL": "sasl_ssl",
        "SASL_MECHANISM": MECHANISM,
        "USERNAME": USER,
        "PASSWORD_FILE": _kept(folder / "kafka-password", password),
        "CA_FILE": ca_file,
    }
    variables = {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": sandbox.kafka.guarded(LOGIN)}
    variables |= {f"HAPAX_KAFKA__SECURITY__{name}": text for name, text in security.items()}
    if redis:
        sandbox.redis.allow(f"user {USER} reset on >PASSWORD ~hapax* +@all", password)
        url = sandbox.redis.tls_url(USER, password)
        variables["HAPAX_DEDUP__REDIS_URL_FILE"] = _kept(folder / "redis-url", url)
        variables["HAPAX_DEDUP__CA_FILE"] = ca_file
    return variables


def _kept(path: Path, secret: str) -> str:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secret}\n")
    return str(path)
