"""Variables from a file, as ``docker run --env-file`` and compose read it.

One ``NAME=VALUE`` a line; empty lines and lines that begin with ``#`` are left out. Quotes that
enclose a value as a whole are removed, and ``export`` before a name, so that what a shell takes
and what ``hapax sandbox up`` prints can be used, too. Nothing is expanded.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_env_file(file: Path) -> dict[str, str]:
    """Return the variables of a file; raise ConfigurationError with every line that is none."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError([f"{file} cannot be read: {why}"]) from error
    found: dict[str, str] = {}
    problems = []
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").lstrip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            # Never the line itself, which may be a secret.
            problems.append(f"{file}, line {number}: write NAME=VALUE")
            continue
        found[name] = _unquoted(value.strip())
    if problems:
        raise ConfigurationError(problems)
    return found


def assignment(text: str) -> tuple[str, str]:
    """Return name and value of ``NAME=VALUE``; raise ConfigurationError for anything else."""
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ConfigurationError(["--set: write NAME=VALUE, as HAPAX_APP=orders"])
    return name, value


def _unquoted(value: str) -> str:
    if value[:1] in {"'", '"'}:
        try:
            words = shlex.split(value)
        except ValueError:
            return value
        if len(words) == 1:
            return words[0]
    return value
