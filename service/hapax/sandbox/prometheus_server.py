"""Prometheus, which scrapes the workers that are pointed to it and evaluates alert rules."""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.ports import LOOPBACK, Ports
from hapax.sandbox.processes import READY_TIMEOUT_S, ManagedProcess
from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = "hapax"
"""The scrape job of the sandbox's pipeline."""

# In production half a minute is usual; in a sandbox the result has to show at once.
_INTERVAL = "1s"
_ANSWER_TIMEOUT_S = 1.0


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

    def environment(self) -> dict[str, str]:
        """Return the variables that let a worker be found, and its users find Prometheus."""
        return {"HAPAX_TELEMETRY__PORT": str(self.worker_ports[0]), "PROMETHEUS_URL": self.url}

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it is ready for queries."""
        self.wait_until(self._answers, timeout_s)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


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
    with ExitStack() as exits:
        folder = data_dir
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="hapax-prometheus-"))
            exits.callback(shutil.rmtree, folder, ignore_errors=True)
        watchdog = ChildWatchdog(*([folder] if data_dir is None else []))
        exits.callback(watchdog.close)
        ports = Ports()
        exits.callback(ports.close)
        prometheus = Prometheus(folder.resolve(), ports, watchdog, rules, workers)
        exits.callback(prometheus.kill if data_dir is None else prometheus.terminate)
        prometheus.start()
        prometheus.await_ready()
        yield prometheus


def _configuration(worker_ports: list[int], rules: Path | None) -> str:
    """Return the configuration file. It is JSON, which is YAML as well."""
    if rules is not None and not rules.is_file():
        raise SandboxError(f"There is no file of rules at {rules}. Name an existing file.")
    targets = [f"{LOOPBACK}:{port}" for port in worker_ports]
    configuration = {
        "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
        "rule_files": [] if rules is None else [str(rules.resolve())],
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": targets}]}],
    }
    return json.dumps(configuration, indent=2)
