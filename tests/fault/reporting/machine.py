"""Where a run was made, in words for the report."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from hapax.sandbox import jars, machine

_ROOT = Path(__file__).parents[3]
_LIBRARIES = ("confluent-kafka", "redis", "pyspark")


def facts() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "Java": _first_line([str(machine.java()), "-version"]),
        "Kafka": jars.chosen(),
        "Redis": _first_line([str(machine.redis_server()), "--version"]),
        **{name: version(name) for name in _LIBRARIES},
    }


def commit() -> str:
    """Return the commit of this checkout, marked when files of it were changed; or ``unknown``."""
    try:
        head = _first_line(["git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD"])
        changed = _first_line(
            ["git", "-C", str(_ROOT), "status", "--porcelain", "-uno", "--", "service", "tests"]
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} and changes" if changed else head


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    text = (done.stdout or done.stderr).strip()
    line = text.splitlines()[0] if text else ""
    found = re.search(r'v=([\d.]+)|version "?([\d.]+)', line)
    return next(filter(None, found.groups())) if found else line
