"""Variables from a file, as Docker Compose reads it for ``env_file``, or not at all.

python-dotenv splits the file; references ($NAME) are replaced by Compose's rules, not by its own
(findings/python-dotenv-expands-references-in-single-quotes.sh). Where the two would read a value
differently it is refused, with the line.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING, Final

from dotenv.parser import parse_stream

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dotenv.parser import Binding

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_LINE: Final = re.compile(
    r"\s*(?:export[^\S\n]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*(?:=(?P<value>.*))?", re.DOTALL
)
_REFERENCE: Final = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<named>[A-Za-z_]\w*)"
    r"|\{(?:(?P<braced>[A-Za-z_]\w*)(?:(?P<how>:?[-+?])(?P<word>[^${}]*))?\}|(?P<other>)))",
    re.ASCII,
)
_ESCAPES: Final = "write it without this escape"
_OTHERWISE: Final = {
    "'": (r"'(?:\\.|[^\\'])*?\\\\", _ESCAPES),
    '"': (r"""\"(?:\\.|[^\\"])*?\\(?:'|0|\\\$)""", _ESCAPES),
    "": (r"[^\S\n]+#|(?:(?! #)[^\n])*[^\S \n]#", "put the comment on a line of its own"),
}
"""By the quote: what Compose reads otherwise than python-dotenv, and what to do about it."""


def read_env_file(file: Path, around: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a file; raise ConfigurationError with every line that is none.

    ``around``: the environment, in which references are looked up before the file itself.
    """
    try:
        text = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(f"{file} cannot be read: {why}") from error
    found: dict[str, str] = {}
    problems = []
    for binding in parse_stream(StringIO(text)):
        try:
            found |= _variable(binding, {**found, **around})
        except ValueError as error:
            # Never the line itself, which may be a secret.
            at = binding.original
            blank = len(at.string) - len(at.string.lstrip())
            line = at.line + at.string.count("\n", 0, blank)
            problems.append(f"{file}, line {line}: {error}")
    if problems:
        raise ConfigurationError(problems)
    return found


def merged(
    environ: Mapping[str, str],
    files: Sequence[Path] | None,
    *,
    assignments: Sequence[str] | None,
    flags: Mapping[str, tuple[str, str]],
    given_by: dict[str, str],
) -> dict[str, str]:
    """Let assignments and flags override the environment, that files, and files those before them.

    flags     variable and value by flag; ConfigurationError where an assignment differs
    given_by  the file, flag or ``--set`` by variable: of those before, and then of these
    """
    given: dict[str, str] = {}
    for file in files or ():
        given |= (found := read_env_file(file, environ))
        given_by |= dict.fromkeys(found.keys() - environ.keys(), str(file))
    assigned = dict(map(assignment, assignments or ()))
    given_by |= dict.fromkeys(assigned, "--set")
    result = {**given, **environ, **assigned}
    for flag, (name, value) in flags.items():
        if given_by.get(name) == "--set" and result[name] != value:
            problem = f"{flag} {value} and --set {name}={result[name]} differ: give one of them"
            raise ConfigurationError(problem)
        result[name], given_by[name] = value, flag
    return result


def assignment(text: str) -> tuple[str, str]:
    """Return name and value of ``NAME=VALUE``; raise ConfigurationError for anything else."""
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ConfigurationError("--set: write NAME=VALUE, as HAPAX_APP=orders")
    return name, value


def _variable(binding: Binding, known: Mapping[str, str]) -> dict[str, str]:
    """Return name and value, or nothing of a comment, or of a name that the environment has."""
    line, value = _LINE.match(binding.original.string), binding.value
    if binding.key is None and not binding.error:
        return {}
    if binding.error or line is None or line["name"] != binding.key:
        raise ValueError("write NAME=VALUE")
    if value is None:  # a name alone has the environment's value, which counts more anyway
        if binding.original.string[line.end() :].strip():
            raise ValueError("write NAME=VALUE")
        return {}
    raw = line["value"].lstrip()
    quote = raw[:1] if raw[:1] in {"'", '"'} else ""
    pattern, instead = _OTHERWISE[quote]
    if re.match(pattern, raw if quote else line["value"], re.DOTALL):
        raise ValueError(f"Docker Compose reads this value in another way: {instead}")
    if quote != "'":
        value = value.replace(r"\$", "$$") if quote else value
        value = _REFERENCE.sub(lambda found: _referred(found, known), value)
    return {line["name"]: value}


def _referred(found: re.Match[str], known: Mapping[str, str]) -> str:
    name, how, word = found["named"] or found["braced"], found["how"] or "", found["word"] or ""
    if found["escaped"]:
        return "$"
    if not name:
        raise ValueError("write ${NAME} or ${NAME:-default}, and $$ for a dollar sign")
    value = known.get(name)
    there = bool(value) if how.startswith(":") else value is not None
    if how.endswith("?") and not there:
        raise ValueError(f"{name} is not set, and this line requires it")
    if how.endswith("+") or (how.endswith("-") and not there):
        return word if how.endswith("-") or there else value or ""
    return value or ""
