"""Servers that answer HTTP: a schema registry, and Prometheus.

Apicurio Registry has the API of Confluent's, as far as it goes. Prometheus scrapes the workers that
are pointed to it and evaluates alert rules.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hapax.sandbox import jars, machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import LOOPBACK, ManagedProcess, http_answer, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.sandbox.processes import Ports
    from hapax.sandbox.watchdog import ChildWatchdog

_API = "/apis/ccompat/v7"
_PROGRAM = f"apicurio-registry-app-{jars.REGISTRY_VERSION}-runner.jar"
_ANSWER_TIMEOUT_S = 1.0
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
