"""Archives of classes: a JVM maps one instead of reading and checking thousands of files (JEP 350).

A broker and Spark's driver start with half the processor time. An archive belongs to one Java and
to the jars where they lie: a JVM that finds something else there ignores it and says nothing.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

from hapax.sandbox import machine

if TYPE_CHECKING:
    from pathlib import Path

# A JVM that cannot use its archive would report that on standard output, at each start.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def of_jars(folder: Path) -> Path:
    """Return where the archive of a folder of jars is, or would be: among them."""
    return folder / f"classes-{_java_identity()}.jsa"


def of_spark() -> Path:
    """Return where the archive of the installed PySpark is, or would be: in the user's cache.

    Raises SandboxError: PySpark is not installed.
    """
    home = machine.spark_home()
    place = _digest(f"{home} {(home / 'jars').stat().st_mtime_ns}")
    return machine.cache_folder() / "spark-classes" / f"{place}-{_java_identity()}.jsa"


def options(archive: Path) -> tuple[str, ...]:
    """Return the options of a JVM that uses an archive; none where it was not made."""
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.is_file() else ()


@cache  # it asks the Java for its version
def _java_identity() -> str:
    java = machine.java().resolve()
    return _digest(f"{java} {java.stat().st_mtime_ns}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
