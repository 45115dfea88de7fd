"""Spark's Kafka connector: the jars that PySpark does not carry, fetched once or baked in."""

from __future__ import annotations

from pathlib import Path

from hapax.core.errors import PreflightError, StopError
from hapax.jars import Lock, check

CONNECTOR = Lock(
    title="Spark's Kafka connector 4.2.0",
    stem="spark-kafka-4.2.0",
    path=Path(__file__).with_name("connector.lock"),
    size="10 MB",
)


def connector_jars(folder: str | None = None) -> tuple[str, ...]:
    """Return the files of the connector, for Spark's class path.

    ``folder``: where an image keeps them, perhaps with others; all its jars are taken. None: the
    user's cache, fetched once (hapax.sandbox.jars). Every start compares them with the lock (10 MB,
    about 10 ms). Raises PreflightError with what to do.
    """
    place = _fetched() if folder is None else Path(folder).resolve()
    check(CONNECTOR, place)
    return tuple(sorted(str(jar) for jar in place.glob("*.jar")))


def _fetched() -> Path:
    try:
        from hapax.sandbox import jars
    except ModuleNotFoundError as error:
        raise PreflightError(
            ["set HAPAX_SPARK__JARS to the folder of the connector's jars: images fetch nothing"]
        ) from error
    try:
        return jars.fetched(CONNECTOR)
    except StopError as error:
        raise PreflightError([str(error)]) from error
