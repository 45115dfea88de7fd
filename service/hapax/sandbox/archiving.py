"""Archives of classes are made once, by ``hapax sandbox fetch``: a JVM writes one as it ends."""

from __future__ import annotations

import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.sandbox import jars, machine
from hapax.sandbox.broker import Extra, KafkaCluster
from hapax.sandbox.machine import SandboxError, say
from hapax.sandbox.processes import workplace

if TYPE_CHECKING:
    from collections.abc import Callable


def archive_kafka(version: str | None = None) -> Path:
    """Return the archive of Kafka's classes, of a version as in ``jars.chosen``; make it, once.

    Raises SandboxError: the broker that loads them does not start, or does not end in time.
    """
    lock = jars.kafka(version)
    archive = machine.classes_of_jars(jars.fetched(lock))
    _make(archive, f"the classes of {lock.title}, once: 50 MB", partial(_run_kafka, version))
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
        # Four stay, the newest: each Java has made one.
        newest_first = sorted(archive.parent.glob("*.jsa"), key=lambda one: -one.stat().st_mtime)
        for old in newest_first[4:]:
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
