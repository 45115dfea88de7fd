"""Spark's standalone cluster on this machine: a master and workers, from the installed PySpark."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hapax.sandbox import machine
from hapax.sandbox.processes import LOOPBACK, READY_TIMEOUT_S, ManagedProcess, Ports, http_answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hapax.sandbox.watchdog import ChildWatchdog

_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half the processor time of a start: a JVM that lives for seconds needs no optimised code."""
_WORKER_MEMORY = "2g"
_DAEMON_MEMORY = "192m"
_WORKER_TIMEOUT_S = 10
_ANSWER_TIMEOUT_S = 2.0


def java_options() -> str:
    """Return the options of Spark's JVMs in a sandbox: they start quickly rather than run fast."""
    return " ".join(_SHORT_LIVED)


def executor_properties() -> dict[str, str]:
    """Fit into a sandbox's worker: Python processes take as much memory again as the JVM."""
    return {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": java_options()}


def driver_properties() -> dict[str, str]:
    """Return those, and the memory of a driver on the same machine."""
    return {**executor_properties(), "spark.driver.memory": "512m"}


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
            return dict(json.loads(http_answer(self.page_port, "/json/", _ANSWER_TIMEOUT_S) or b""))
        return {}
