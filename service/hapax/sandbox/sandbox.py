"""Both servers together, in a folder of their own."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hapax.sandbox import jars
from hapax.sandbox.broker import Extra
from hapax.sandbox.guard import Guard
from hapax.sandbox.http_servers import RegistryServer
from hapax.sandbox.kafka_cluster import KafkaCluster
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import Ports
from hapax.sandbox.redis_server import Redis
from hapax.sandbox.rights import Rights
from hapax.sandbox.spark_cluster import SparkCluster
from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from hapax.sandbox.kafka_cluster import SandboxTopic


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
    guarded   whether brokers have listeners that authenticate clients and let them do what they are
              granted, and Redis a port with TLS: ``sandbox.kafka.guarded(...)``,
              ``sandbox.rights``, ``sandbox.guard``, ``sandbox.redis.tls_url``
    properties  of the brokers, in addition to those of every sandbox or instead of them
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        redis: bool = True,
        data_dir: Path | None = None,
        proxied: bool = False,
        guarded: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if nodes not in (1, 3):
            raise SandboxError("A sandbox has 1 node or 3.")
        self._nodes = nodes
        self._with_redis = redis
        self._data_dir = data_dir
        self._guarded = guarded
        self._guard: Guard | None = None
        self._spark_workers = 0
        self._spark: SparkCluster | None = None
        self._with_registry = False
        self._registry: RegistryServer | None = None
        self._extra = Extra(proxied=proxied, properties=properties or {})
        self._kafka: KafkaCluster | None = None
        self._redis: Redis | None = None
        self._redis_port = 0
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def listen_on(self, kafka: int = 0, redis: int = 0) -> Self:
        """Take these ports (0: free ones) before the start; ``kafka``: of the first broker."""
        self._extra = self._extra._replace(port=kafka)
        self._redis_port = redis
        return self

    def of_kafka(self, version: str | None) -> Self:
        """Take this version of Kafka, before the start; return the sandbox.

        None: what SANDBOX_KAFKA says, else the newest. Raises SandboxError: it is not held.
        """
        self._extra = self._extra._replace(kafka=jars.chosen(version))
        return self

    def with_spark(self, workers: int) -> Self:
        """Add a Spark cluster with so many workers of one core, before the start; 0: none."""
        self._spark_workers = workers
        return self

    def with_registry(self, *, wanted: bool = True) -> Self:
        """Add a schema registry, before the start; return the sandbox."""
        self._with_registry = wanted
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
        if self._redis is None:
            raise SandboxError("This sandbox has no Redis. Use Sandbox(redis=True)")
        return self._redis

    @property
    def spark(self) -> SparkCluster:
        if self._spark is None:
            raise SandboxError("This sandbox has no Spark. Use Sandbox().with_spark(2)")
        return self._spark

    @property
    def registry(self) -> RegistryServer:
        if self._registry is None:
            raise SandboxError("This sandbox has no registry. Use Sandbox().with_registry()")
        return self._registry

    @property
    def rights(self) -> Rights:
        return Rights(self.bootstrap_servers)

    @property
    def guard(self) -> Guard:
        if self._guard is None:
            raise SandboxError("This sandbox has no authentication. Use Sandbox(guarded=True)")
        return self._guard

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
        folder, kept = self._folder()
        watchdog = ChildWatchdog(*([] if kept else [folder]))
        self._exits.callback(watchdog.close)
        ports = Ports()
        self._exits.callback(ports.close)
        if self._guarded:
            self._guard = Guard(folder / "guard")
            self._exits.callback(self._guard.close)
        extra = self._extra._replace(guard=self._guard)
        self._kafka = KafkaCluster(self._nodes, folder, ports, watchdog, extra)
        if self._with_redis:
            self._redis = Redis(folder / "redis", ports, watchdog, self._guard, self._redis_port)
        if self._spark_workers:
            self._spark = SparkCluster(self._spark_workers, folder / "spark", ports, watchdog)
        if self._with_registry:
            self._registry = RegistryServer(folder / "registry", ports, watchdog)
        self._exits.callback(self._end, kept=kept)
        further = [one for one in (self._spark, self._registry) if one is not None]
        if self._redis is not None:
            self._redis.start()
        for one in (self._kafka, *further):
            one.start()
        if self._redis is not None:
            self._redis.await_ready()
        for one in (self._kafka, *further):
            one.await_ready()

    def _folder(self) -> tuple[Path, bool]:
        if self._data_dir is not None:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            return self._data_dir.resolve(), True
        folder = Path(tempfile.mkdtemp(prefix="hapax-sandbox-"))
        self._exits.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder, False

    def _end(self, *, kept: bool) -> None:
        """End all servers: politely where their data are needed again, at once where not."""
        further = [one for one in (self._redis, self._registry) if one is not None]
        for server in (*self.kafka.brokers, *further):
            (server.terminate if kept else server.kill)()
        for daemon in self._spark.daemons if self._spark else []:
            daemon.kill()  # nothing of theirs is kept
