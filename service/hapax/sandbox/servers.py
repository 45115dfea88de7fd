"""Servers alongside Kafka: Redis, a schema registry, Prometheus, and Spark's standalone cluster.

What Redis has acknowledged survives a kill, by its append-only file. Apicurio Registry has the API
of Confluent's, as far as it goes. Prometheus scrapes the workers that are pointed to it and
evaluates alert rules. Spark's master and workers come from the installed PySpark.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import redis

from hapax.sandbox import jars, machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import (
    LOOPBACK,
    READY_TIMEOUT_S,
    ManagedProcess,
    Ports,
    http_answer,
    workplace,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hapax.sandbox.guard import Guard
    from hapax.sandbox.processes import Ports
    from hapax.sandbox.watchdog import ChildWatchdog

_ANSWER_TIMEOUT_S = 1.0


class Redis(ManagedProcess):
    """One redis-server. Data: ``folder``, kept over restarts.

    tls_port  the same data over TLS; a certificate of one's own may be shown and need not. None
              unless the sandbox is guarded. A client of the plain port has all rights.
    """

    def __init__(
        self,
        folder: Path,
        ports: Ports,
        watchdog: ChildWatchdog,
        guard: Guard | None = None,
        port: int = 0,
    ) -> None:
        self.port = ports.reserve(port)
        self.tls_port = ports.reserve() if guard else None
        self._guard = guard
        self.url = f"redis://{LOOPBACK}:{self.port}/0"
        super().__init__("Redis", self._arguments(folder), folder / "redis.log", watchdog)

    def _arguments(self, folder: Path) -> list[str | Path]:
        return [
            machine.redis_server(tls=self._guard is not None),
            *("--bind", LOOPBACK, "--port", str(self.port), "--dir", folder),
            *("--maxmemory-policy", "noeviction"),  # a claim must never be thrown out
            # Each write reaches the file before its answer, and the file outlives a killed
            # process. With "everysec" Redis keeps writes back while a sync is running but
            # answers: on a busy disk a kill lost two acknowledged writes in 23 tries of 25.
            *("--appendonly", "yes", "--appendfsync", "no", "--save", ""),
            *self._tls_arguments(),
        ]

    def _tls_arguments(self) -> list[str | Path]:
        if self._guard is None:
            return []
        server = self._guard.server
        return [
            *("--tls-port", str(self.tls_port), "--tls-auth-clients", "optional"),
            *("--tls-cert-file", server.certificate_file, "--tls-key-file", server.key_file),
            *("--tls-ca-cert-file", self._guard.authority.ca_file),
        ]

    def tls_url(self, user: str, password: str) -> str:
        if self.tls_port is None:
            raise SandboxError("Redis has no TLS in this sandbox. Use Sandbox(guarded=Guard)")
        return f"rediss://{quote(user)}:{quote(password, safe='')}@{LOOPBACK}:{self.tls_port}/0"

    def allow(self, line: str, password: str) -> None:
        """Make the user of an ACL line, in which ``PASSWORD`` stands for the password."""
        _user, name, *rules = (word.replace("PASSWORD", password) for word in line.split())
        with self._client() as client:
            client.execute_command("ACL", "SETUSER", name, *rules)

    def flush(self) -> None:
        with self._client() as client:
            client.flushall()

    def _answers(self) -> bool:
        try:  # while it loads its file Redis refuses to answer
            with self._client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _client(self) -> redis.Redis:
        return redis.Redis(
            host=LOOPBACK,
            port=self.port,
            socket_timeout=_ANSWER_TIMEOUT_S,
            socket_connect_timeout=_ANSWER_TIMEOUT_S,
        )


_API = "/apis/ccompat/v7"
_PROGRAM = f"apicurio-registry-app-{jars.REGISTRY_VERSION}-runner.jar"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
JOB = "hapax"
"""The scrape job of the sandbox's pipeline."""

# In production half a minute is usual; in a sandbox the result has to show at once.
_INTERVAL = "1s"


class RegistryServer(ManagedProcess):
    """One registry. Data: ``folder``, kept over restarts.

    url  of the API of Confluent's: what HAPAX_REGISTRY__URL is given

    It gives neither descriptors of Protobuf schemas nor GUIDs.
    """

    def __init__(self, folder: Path, ports: Ports, watchdog: ChildWatchdog) -> None:
        self.port = ports.reserve()
        self.url = f"http://{LOOPBACK}:{self.port}{_API}"
        super().__init__("Schema registry", self._command_in(folder), folder / "log", watchdog)

    def _command_in(self, folder: Path) -> list[str | Path]:
        properties = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self.port,
            "quarkus.http.access-log.enabled": "false",
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            # An answered write has reached the file: by default H2 keeps it back for a while, and a
            # kill right after the answer lost the schema in 4 tries of 4 (its id goes to another).
            "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'registry'};WRITE_DELAY=0",
        }
        program = jars.fetched(jars.registry()) / _PROGRAM
        return [
            *(machine.java(), *_JVM),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-jar", program),
        ]

    def _answers(self) -> bool:
        return http_answer(self.port, f"{_API}/subjects", _ANSWER_TIMEOUT_S) is not None

    def environment(self) -> dict[str, str]:
        return {"HAPAX_REGISTRY__URL": self.url}


class Prometheus(ManagedProcess):
    """One Prometheus. Data: ``folder``, kept over restarts.

    url           its pages, and its API
    worker_ports  where it expects workers; the first one is in ``environment``
    rules         a file of alert rules; without one it only collects
    """

    def __init__(
        self, folder: Path, ports: Ports, watchdog: ChildWatchdog, rules: Path | None, workers: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = ports.reserve()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.worker_ports = [ports.reserve() for _ in range(workers)]
        configuration = folder / "prometheus.yaml"
        configuration.write_text(_configuration(self.worker_ports, rules), encoding="utf-8")
        command: list[str | Path] = [
            machine.prometheus(),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            "--log.level=warn",
        ]
        super().__init__("Prometheus", command, folder / "prometheus.log", watchdog)

    def _answers(self) -> bool:
        return http_answer(self.port, "/-/ready", _ANSWER_TIMEOUT_S) is not None

    def environment(self) -> dict[str, str]:
        return {"HAPAX_TELEMETRY__PORT": str(self.worker_ports[0]), "PROMETHEUS_URL": self.url}


@contextmanager
def monitoring(
    *, rules: Path | None = None, workers: int = 1, data_dir: Path | None = None
) -> Iterator[Prometheus]:
    """Run a Prometheus on a free port of 127.0.0.1 for as long as the block lasts.

    ::

        with monitoring(rules=Path("deploy/monitoring/alerts.yaml")) as prometheus:
            subprocess.run([...], env=os.environ | prometheus.environment())

    ``workers``: so many ports are kept for workers. ``data_dir``: a folder whose data outlive the
    block; default: a temporary one, removed with it. Raises SandboxError when Prometheus cannot
    start, with its last words: a rule that is wrong is named there.
    """
    with workplace(data_dir) as (folder, ports, watchdog):
        prometheus = Prometheus(folder, ports, watchdog, rules, workers)
        try:
            prometheus.start()
            prometheus.await_ready()
            yield prometheus
        finally:
            (prometheus.kill if data_dir is None else prometheus.terminate)()


def _configuration(worker_ports: list[int], rules: Path | None) -> str:
    if rules is not None and not rules.is_file():
        raise SandboxError(f"There is no file of rules at {rules}. Name an existing file.")
    targets = [f"{LOOPBACK}:{port}" for port in worker_ports]
    configuration = {
        "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
        "rule_files": [] if rules is None else [str(rules.resolve())],
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": targets}]}],
    }
    return json.dumps(configuration, indent=2)


_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half the processor time of a start: a JVM that lives for seconds needs no optimised code."""
_WORKER_MEMORY = "2g"
_DAEMON_MEMORY = "192m"
_WORKER_TIMEOUT_S = 10
_MASTER_TIMEOUT_S = 2.0


def java_options() -> str:
    """Return the options of Spark's JVMs in a sandbox: they start quickly rather than run fast."""
    return " ".join(_SHORT_LIVED)


def executor_properties() -> dict[str, str]:
    """Fit into a sandbox's worker: Python processes take as much memory again as the JVM."""
    return {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": java_options()}


class SparkDaemon(ManagedProcess):
    """A master or a worker. What it starts (executors) ends when it notices that it is gone."""

    def __init__(
        self, kind: str, words: Sequence[str | Path], folder: Path, watchdog: ChildWatchdog
    ) -> None:
        home = machine.spark_home()
        options = [
            f"-Dspark.worker.timeout={_WORKER_TIMEOUT_S}",
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={folder / 'recovery'}",
            # An executor that a test kills is no reason to give the application up.
            "-Dspark.deploy.maxExecutorRetries=-1",
            "-Dspark.ui.killEnabled=false",
            java_options(),
        ]
        environment = {
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": " ".join(options),
            "JAVA_HOME": machine.java().resolve().parents[1],
        }
        command: list[str | Path] = [
            "/usr/bin/env",
            # An executor knows what a driver ships to it, and what is installed.
            *("-u", "PYTHONPATH", "-u", "JAVA_TOOL_OPTIONS"),
            *(f"{name}={value}" for name, value in environment.items()),
            *(home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *words),
        ]
        super().__init__(f"Spark's {words[-1]}", command, folder / "spark.log", watchdog)


class SparkCluster:
    """A master, and workers of one core each, which start executors for applications.

    master   the daemon that drivers and workers ask; it knows its applications again after a kill
    workers  the daemons that start executors
    url      what a driver is given: HAPAX_SPARK__MASTER
    """

    def __init__(self, workers: int, folder: Path, ports: Ports, watchdog: ChildWatchdog) -> None:
        port, self.page_port = ports.reserve(), ports.reserve()
        self.url = f"spark://{LOOPBACK}:{port}"
        self.page_url = f"http://{LOOPBACK}:{self.page_port}"
        at = ("--host", LOOPBACK)
        page = ("--webui-port", str(self.page_port))
        self.master = SparkDaemon(
            "master.Master", [*at, "--port", str(port), *page], folder / "master", watchdog
        )
        self.master.name = "Spark's master"
        self.workers = []
        for number in range(1, workers + 1):
            place = folder / f"worker-{number}"
            own = ("--port", str(ports.reserve()), "--webui-port", str(ports.reserve()))
            size = ("--cores", "1", "--memory", _WORKER_MEMORY, "--work-dir", place / "work")
            worker = SparkDaemon("worker.Worker", [*at, *own, *size, self.url], place, watchdog)
            worker.name = f"Spark's worker {number}"
            self.workers.append(worker)

    @property
    def daemons(self) -> list[SparkDaemon]:
        return [self.master, *self.workers]

    def environment(self) -> dict[str, str]:
        return {
            "HAPAX_SPARK__MASTER": self.url,
            "HAPAX_SPARK__PROPERTIES": json.dumps(executor_properties()),
        }

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start()

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        for worker in self.workers:
            worker.wait_until(self._all_known, timeout_s)

    def _all_known(self) -> bool:
        running = sum(worker.running for worker in self.workers)
        return bool(self.state().get("aliveworkers", -1) >= running)

    def state(self) -> dict[str, Any]:
        """Return what the master says of workers and applications; nothing while it is away."""
        with suppress(ValueError):  # it was killed while it answered
            return dict(json.loads(http_answer(self.page_port, "/json/", _MASTER_TIMEOUT_S) or b""))
        return {}
