"""Spark's Kafka connector: the jars that PySpark does not carry, fetched once or baked in."""

from __future__ import annotations

from pathlib import Path

from hapax.core.errors import PreflightError
from hapax.sandbox import jars
from hapax.sandbox.machine import SandboxError

CONNECTOR = jars.Lock(
    title="Spark's Kafka connector 4.2.0",
    stem="spark-kafka-4.2.0",
    path=Path(__file__).with_name("connector.lock"),
    size="10 MB",
)


def connector_jars(folder: str | None = None) -> tuple[str, ...]:
    """Return the files of the connector, for Spark's class path.

    ``folder``: where an image keeps them, perhaps with others; all its jars are taken. None: the
    user's cache, fetched once by Maven or by the Ivy inside PySpark, so that the user's own
    settings decide where from. Every start compares them with the lock (10 MB, about 10 ms).
    Raises PreflightError with what to do.
    """
    try:
        place = jars.fetched(CONNECTOR) if folder is None else Path(folder).resolve()
        jars.check(CONNECTOR, place)
    except SandboxError as error:
        raise PreflightError([str(error)]) from error
    return tuple(sorted(str(jar) for jar in place.glob("*.jar")))
