"""The stage with Spark on it, and a worker of the same name that waits to take over."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hapax.demo.application import Application
from hapax.demo.child import Child, DemoError
from hapax.demo.processes import PROC
from hapax.demo.stage import APP, Stage
from hapax.sandbox.spark_cluster import java_options

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox.watchdog import ChildWatchdog

INSTANCE = f"{APP}-0"
"""The name of both engines: a member of that name takes over at once what its predecessor had."""
SPARK = {
    "HAPAX_ENGINE": "spark",
    "HAPAX_SPARK__MASTER": "local[2]",
    "HAPAX_SPARK__PROPERTIES": json.dumps({"spark.driver.memory": "512m"}),
}


class SparkStage(Stage):
    """Spark begins; the worker is started when Spark hands over to it.

    application  the driver of Spark with its JVM and its Python workers
    worker       one worker of the service
    """

    engine = "spark"
    patience_s = 180.0  # a start took 43 s where ten others wanted the same two cores

    def exports(self) -> dict[str, str]:
        """Return the variables of Spark; without HAPAX_ENGINE they are the worker's."""
        return {**self.environment(), "HAPAX_INSTANCE": INSTANCE, **SPARK}

    def _cast(self, folder: Path, watchdog: ChildWatchdog) -> list[Child]:
        self.worker = self._worker(INSTANCE, folder, watchdog)
        self.worker.name = "worker"
        environment = {
            **self.exports(),
            "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", java_options()),
        }
        run = ["-m", "hapax", "run"]
        self.application = Application("Spark", run, environment, folder, watchdog)
        self._exits.callback(self.application.end)
        return [self.application]


def check_spark() -> None:
    """Raise DemoError, with what to do, when Spark is not installed."""
    if find_spec("pyspark") is None:
        raise DemoError("PySpark is not installed. Run: pip install 'hapax-kafka[spark]'")
    if not (PROC / "self/stat").exists():
        raise DemoError(
            "with Spark it finds the processes to kill under /proc, which this machine does not"
            " have. Run it on Linux, or without --engine spark."
        )
