"""Jars that are locked by their hashes: the sandbox's servers, Spark's connector to Kafka."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from hapax.core.errors import PreflightError

if TYPE_CHECKING:
    from pathlib import Path


class Jar(NamedTuple):
    """One line of a lock file: a jar, or what has another classifier and extension."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file(self) -> str:
        """Its name in the folder."""
        classifier = self.classifier and f"-{self.classifier}"
        return f"{self.artifact}-{self.version}{classifier}.{self.extension}"


class Lock(NamedTuple):
    """Jars that belong together.

    title   what they are, with the version, for people
    stem    how their folder in the cache begins
    path    the file with a line for each
    size    of all of them, for people
    """

    title: str
    stem: str
    path: Path
    size: str


@cache
def locked(lock: Lock) -> tuple[Jar, ...]:
    """Return the jars that a lock file names."""
    lines = lock.path.read_text(encoding="utf-8").splitlines()
    return tuple(_read(line) for line in lines if not line.startswith("#"))


def _read(line: str) -> Jar:
    name, sha256 = line.split(" sha256:")
    group, artifact, version, *form = name.split(":")
    return Jar(group, artifact, version, sha256, *form)


def check(lock: Lock, target: Path) -> None:
    """Raise PreflightError unless the folder holds every jar exactly as locked."""
    for jar in locked(lock):
        path = target / jar.file
        if not path.is_file():
            raise PreflightError(f"{jar.file} is not in {target}: fetch {lock.title} again")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != jar.sha256:
                raise PreflightError(
                    f"{jar.file} is not the file that {lock.path.name} names: the registry"
                    " or mirror that was asked delivers another one."
                )
