"""Jars, fetched once and kept in the user's cache.

Where the user has Maven and settings of it (~/.m2/settings.xml), Maven is asked by coordinates
alone, so that these decide where from. Elsewhere jars are fetched without it (download.py).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from hapax.core.errors import PreflightError
from hapax.jars import Jar, Lock, check, locked
from hapax.sandbox import machine
from hapax.sandbox.download import REPOSITORY, download
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.progress import counted, say

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "SANDBOX_KAFKA"
"""Names the version of Kafka where a sandbox is given none: 4.1.2, or 4.1."""
_SIZES = {"3.9.2": "48 MB", "4.1.2": "45 MB", "4.3.1": "47 MB", "4.4.0": "44 MB"}
VERSIONS = tuple(_SIZES)
"""Those with a lock file, oldest first: the newest of each line that docs/versions.md names."""
KAFKA_VERSION = "4.3.1"
"""What a sandbox runs that is given no version."""
REGISTRY_VERSION = "3.0.9"
_FETCH_TIMEOUT_S = 900.0
_LINES_KEPT = 15

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>hapax</groupId><artifactId>sandbox</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_POM_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    "</dependency>"
)


def chosen(version: str | None = None) -> str:
    """Return a version with a lock file, given one or its line: 4.1.2 for ``4.1``.

    None: what SANDBOX_KAFKA says, else KAFKA_VERSION. Raises SandboxError for any other.
    """
    wanted = version or os.environ.get(VARIABLE) or KAFKA_VERSION
    for one in VERSIONS:
        if wanted in {one, one.rpartition(".")[0]}:
            return one
    raise SandboxError(f"The sandbox has no Kafka {wanted}. It has: {', '.join(VERSIONS)}")


def kafka(version: str | None = None) -> Lock:
    """Return the jars of Kafka, of a version as in ``chosen``."""
    number = chosen(version)
    return Lock(
        title=f"Kafka {number}",
        stem=f"kafka-{number}",
        path=Path(__file__).with_name(f"kafka-{number}.lock"),
        size=_SIZES[number],
    )


def registry() -> Lock:
    """Return the archive of the schema registry."""
    return Lock(
        title=f"Apicurio Registry {REGISTRY_VERSION}",
        stem=f"registry-{REGISTRY_VERSION}",
        path=Path(__file__).with_name(f"registry-{REGISTRY_VERSION}.lock"),
        size="109 MB",
    )


def folder(lock: Lock) -> Path:
    """Return where the jars are, or will be: another lock file means another folder."""
    content = hashlib.sha256(lock.path.read_bytes()).hexdigest()[:12]
    return machine.cache_folder() / f"{lock.stem}-{content}"


def fetched(lock: Lock) -> Path:
    """Return the folder with all the jars, also of an archive; fetch them when it is missing.

    The folder appears whole or not at all, and two processes never fetch at once.
    """
    jars = folder(lock)
    if jars.is_dir():
        return jars
    with machine.alone("fetch"):
        if not jars.is_dir():
            _fetch(lock, jars)
    return jars


def _fetch(lock: Lock, jars: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="fetch-", dir=jars.parent))
    try:
        target = work / "jars"
        target.mkdir()
        count = len(locked(lock))
        say(f"Fetching {lock.title}, once: {count} files, {lock.size}, to {jars}")
        maven = _maven_with_settings()
        if maven is None:
            download(lock, target)
        else:
            _by_maven(lock, maven, work, target)
        try:
            check(lock, target)
        except PreflightError as error:
            raise SandboxError(str(error)) from error
        for path in target.glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(target)
            path.unlink()
        target.rename(jars)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _maven_with_settings() -> Path | None:
    if os.environ.get(REPOSITORY) or not (Path.home() / ".m2" / "settings.xml").is_file():
        return None
    return machine.maven()


def _by_maven(lock: Lock, maven: Path, work: Path, target: Path) -> None:
    pom, archive = work / "pom.xml", _archive(lock)
    jars = "".join(_POM_DEPENDENCY.format(**jar._asdict()) for jar in locked(lock))
    pom.write_text(_POM.format(dependencies="" if archive else jars), encoding="utf-8")
    goal = ["dependency:copy-dependencies"]
    if archive:
        *coordinates, _sha256, classifier, extension = archive
        goal = ["dependency:copy", "-Dartifact=" + ":".join([*coordinates, extension, classifier])]
    _run(
        lock,
        [maven, "-B", "-f", pom, *goal, f"-DoutputDirectory={target}"],
    )


def _archive(lock: Lock) -> Jar | None:
    """Return the archive that a lock file names in the place of jars, if it is of that kind."""
    (first, *_further) = locked(lock)
    return first if first.classifier else None


def _run(lock: Lock, command: Sequence[str | Path]) -> None:
    """Run Maven, counting its lines about jars; show the last ones when it fails."""
    last: list[str] = []
    names = {jar.file for jar in locked(lock)}
    with (
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as tool,
        counted(lock.title, len(names)) as advance,
    ):
        limit = Timer(_FETCH_TIMEOUT_S, tool.kill)
        limit.start()
        try:
            for line in tool.stdout or ():
                last = [*last, line.rstrip()][-_LINES_KEPT:]
                if "Downloaded from" in line and any(f"{name} " in line for name in names):
                    advance()
            failed = tool.wait() != 0
        finally:
            limit.cancel()
            tool.kill()
    if failed:
        raise SandboxError(
            f"{lock.title} could not be fetched. Last output of Maven:\n" + "\n".join(last)
        )
