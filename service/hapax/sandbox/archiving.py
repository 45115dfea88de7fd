"""Archives of classes are made once, by ``hapax sandbox fetch``: a JVM writes one as it ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.sandbox import jars, machine
from hapax.sandbox.broker import Extra, KafkaCluster
from hapax.sandbox.machine import SandboxError, say
from hapax.sandbox.processes import workplace
from hapax.sandbox.spark_cluster import java_options

if TYPE_CHECKING:
    from collections.abc import Callable

_SPARK_TIMEOUT_S = 600.0
_KEPT = 4
# What most pipelines load: tasks in Python, a shuffle, a stream.
_SPARK_WORK = """\
from pyspark.sql import SparkSession

session = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).collect()
rows = session.range(100).selectExpr("id % 7 AS place", "id AS number")
rows.groupBy("place").sum("number").collect()
stream = session.readStream.format("rate").option("rowsPerSecond", 100).load()
query = stream.writeStream.foreachBatch(lambda batch, _: batch.collect()).trigger(once=True).start()
query.awaitTermination(60)
session.stop()
"""


def archive_kafka(version: str | None = None) -> Path:
    """Return the archive of Kafka's classes, of a version as in ``jars.chosen``; make it, once.

    Raises SandboxError: the broker that loads them does not start, or does not end in time.
    """
    lock = jars.kafka(version)
    archive = machine.classes_of_jars(jars.fetched(lock))
    _make(archive, f"the classes of {lock.title}, once: 50 MB", partial(_run_kafka, version))
    return archive


def archive_spark() -> Path:
    """Return it, made once; raise SandboxError without PySpark or when its run failed."""
    archive = machine.classes_of_spark()
    _make(archive, "the classes of Spark, once: 160 MB", _run_spark)
    return archive


def _make(archive: Path, what: str, run: Callable[[tuple[str, ...]], None]) -> None:
    """Make an archive unless it exists. ``run`` is given the options of the JVM that writes it.

    It appears whole or not at all: one that was cut off ends each JVM that maps it.
    """
    if archive.is_file():
        return
    with machine.written(archive.parent), machine.alone("classes"):
        archive.parent.mkdir(parents=True, exist_ok=True)
        if archive.is_file():  # another process was before this one
            return
        say(f"Archiving {what}, to {archive}")
        with tempfile.TemporaryDirectory(prefix="classes-", dir=archive.parent) as folder:
            unfinished = Path(folder, archive.name)
            run((f"-XX:ArchiveClassesAtExit={unfinished}", *machine.CLASSES_QUIET))
            if not unfinished.is_file():
                raise SandboxError(f"This Java does not archive classes: {machine.java()}")
            unfinished.replace(archive)
        # The newest stay: each Java, and each environment with a PySpark of its own, has made one.
        newest_first = sorted(archive.parent.glob("*.jsa"), key=lambda one: -one.stat().st_mtime)
        for old in newest_first[_KEPT:]:
            old.unlink(missing_ok=True)


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


def _run_spark(recording: tuple[str, ...]) -> None:
    """Run a script as ``spark-submit`` does, which ends when its JVM has ended."""
    home = machine.spark_home()
    with tempfile.TemporaryDirectory(prefix="hapax-sandbox-") as folder:
        script = Path(folder, "work.py")
        script.write_text(_SPARK_WORK, encoding="ascii")
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(machine.java().resolve().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": " ".join((java_options(), *recording)),
        }
        command: list[str | Path] = [home / "bin" / "spark-submit", "--master", "local[2]", script]
        done = machine.run(command, _SPARK_TIMEOUT_S, cwd=folder, env=environment)
    if done.returncode:
        raise SandboxError(f"Spark's classes could not be archived:\n{done.stdout[-2000:]}")
