"""Jars, fetched once and kept in the user's cache.

Where the user has Maven and settings of it (~/.m2/settings.xml), Maven is asked by coordinates
alone, so that these decide where from. Elsewhere locked files are fetched from a Maven repository
without it, by several connections at once. Whatever answers is compared with the lock: where a
file comes from decides nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import tempfile
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING
from urllib.error import HTTPError

from hapax.core.errors import PreflightError
from hapax.jars import Jar, Lock, check, locked
from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VARIABLE = "SANDBOX_KAFKA"
"""Names the version of Kafka where a sandbox is given none: 4.1.2, or 4.1."""
_SIZES = {"3.9.2": "48 MB", "4.1.2": "45 MB", "4.3.1": "47 MB", "4.4.0": "44 MB"}
VERSIONS = tuple(_SIZES)
"""Those with a lock file, oldest first: the newest of each line that docs/versions.md names."""
KAFKA_VERSION = "4.4.0"
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
REPOSITORY = "SANDBOX_MAVEN"
"""Names the Maven repository that is asked, where it is not Maven Central."""
_CONNECTIONS = 8
_TRIES = 3
_SILENCE_MAX_S = 60.0
_NOT_NOW = 500
"""The least HTTP status of a server that may answer otherwise the next time."""


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
    number = chosen(version)
    return _lock(f"Kafka {number}", f"kafka-{number}", _SIZES[number])


def registry() -> Lock:
    return _lock(f"Apicurio Registry {REGISTRY_VERSION}", f"registry-{REGISTRY_VERSION}", "109 MB")


def _lock(title: str, stem: str, size: str) -> Lock:
    return Lock(title, stem, Path(__file__).with_name(f"{stem}.lock"), size)


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
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=jars.parent) as folder:
        target = Path(folder, "jars")
        target.mkdir()
        count = len(locked(lock))
        say(f"Fetching {lock.title}, once: {count} files, {lock.size}, to {jars}")
        own = not os.environ.get(REPOSITORY) and (Path.home() / ".m2" / "settings.xml").is_file()
        maven = shutil.which("mvn") if own else None
        if maven is None:
            download(lock, target)
        else:
            _by_maven(lock, maven, target)
        try:
            check(lock, target)
        except PreflightError as error:
            raise SandboxError(str(error)) from error
        for path in target.glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(target)
            path.unlink()
        target.rename(jars)


def _by_maven(lock: Lock, maven: str, target: Path) -> None:
    pom, first = target.with_name("pom.xml"), locked(lock)[0]
    jars = "".join(_POM_DEPENDENCY.format(**jar._asdict()) for jar in locked(lock))
    pom.write_text(_POM.format(dependencies="" if first.classifier else jars), encoding="utf-8")
    goal = ["dependency:copy-dependencies"]
    if first.classifier:
        *coordinates, _sha256, classifier, extension = first
        goal = ["dependency:copy", "-Dartifact=" + ":".join([*coordinates, extension, classifier])]
    _run(lock, [maven, "-B", "-f", pom, *goal, f"-DoutputDirectory={target}"])


def _run(lock: Lock, command: Sequence[str | Path]) -> None:
    """Run Maven, counting its lines about jars; show the last ones when it fails."""
    last: list[str] = []
    come = 0
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
        machine.progress() as tell,
    ):
        limit = Timer(_FETCH_TIMEOUT_S, tool.kill)
        limit.start()
        try:
            for line in tool.stdout or ():
                last = [*last, line.rstrip()][-_LINES_KEPT:]
                if "Downloaded from" in line and any(f"{name} " in line for name in names):
                    come += 1
                    tell(lock.title, come, len(names))
            failed = tool.wait() != 0
        finally:
            limit.cancel()
            tool.kill()
    if failed:
        raise SandboxError(
            f"{lock.title} could not be fetched. Last output of Maven:\n" + "\n".join(last)
        )


def download(lock: Lock, target: Path) -> None:
    """Put every file into a folder: from the user's local Maven repository, or by the network.

    Proxies and authorities of the environment count. Raises SandboxError: what cannot be had.
    """
    missing = [jar for jar in locked(lock) if not _found_here(jar, target)]
    if not missing:
        return
    fetch = _fetch_from(os.environ.get(REPOSITORY) or _central())
    with machine.progress() as tell, ThreadPoolExecutor(_CONNECTIONS) as connections:
        under_way = {connections.submit(fetch, jar, target / jar.file): jar for jar in missing}
        for come, done in enumerate(as_completed(under_way), 1):
            error = done.exception()
            if error is not None:
                connections.shutdown(wait=False, cancel_futures=True)
                raise SandboxError(
                    f"{lock.title} could not be fetched: {under_way[done].file}: {error}. "
                    f"{REPOSITORY} names a mirror; HTTPS_PROXY and SSL_CERT_FILE count."
                ) from error
            tell(lock.title, come, len(missing))


def _found_here(jar: Jar, target: Path) -> bool:
    repository = Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")
    file = repository / _place(jar)
    if not _intact(jar, file):
        return False
    shutil.copyfile(file, target / jar.file)
    return True


def _place(jar: Jar) -> str:
    return f"{jar.group.replace('.', '/')}/{jar.artifact}/{jar.version}/{jar.file}"


def _intact(jar: Jar, path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def _central() -> str:
    try:
        from jgo.constants import MAVEN_CENTRAL_URL
    except ModuleNotFoundError as error:
        raise SandboxError(
            "The library jgo, which knows the address of Maven Central, is not installed. Run: pip "
            f"install 'hapax-kafka[sandbox]' (or name a Maven repository in {REPOSITORY})"
        ) from error
    return str(MAVEN_CENTRAL_URL)


def _fetch_from(repository: str) -> Callable[[Jar, Path], None]:
    """Return what fetches a file; one that is not as locked is left, for ``check`` to refuse."""
    trust = ssl.create_default_context()
    with suppress(ModuleNotFoundError):  # the authorities of the system have to do
        import certifi

        trust.load_verify_locations(certifi.where())

    def fetch(jar: Jar, path: Path) -> None:
        url = f"{repository.rstrip('/')}/{_place(jar)}"
        for left in reversed(range(_TRIES)):
            try:
                with (
                    urllib.request.urlopen(url, timeout=_SILENCE_MAX_S, context=trust) as answer,
                    path.open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
            except (OSError, HTTPException) as error:
                if not left or (isinstance(error, HTTPError) and error.code < _NOT_NOW):
                    raise
            else:
                if _intact(jar, path):
                    return

    return fetch
