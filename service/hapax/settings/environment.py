"""Environment → settings, or every problem at once.

Pydantic validates the tree; finding the variables is done here and not by pydantic-settings,
because the contract asks for what it does not do: unknown variables with their nearest name,
nested secrets from files of any name, all problems in the words of the environment. It would also
cost each start 16 ms of imports, and 45 ms where nothing else loads asyncio.
"""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from hapax.core.errors import ConfigurationError
from hapax.settings.base import PREFIX, Variable
from hapax.settings.model import BY_NAME, VARIABLES, Settings
from hapax.settings.redaction import hidden
from hapax.settings.rules import broken_rules
from hapax.settings.value_types import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

Origin = str
"""``environment``, ``file`` and ``default``; else the file, flag or other variable by its name."""

_INSTANCE: Final = f"{PREFIX}INSTANCE"
_BROKERS: Final = f"{PREFIX}KAFKA__BOOTSTRAP_SERVERS"
_BROKERS_OF_ALL: Final = "KAFKA_BOOTSTRAP_SERVERS"  # of many makers' images and clients
_QUOTED_CHARACTERS_MAX: Final = 80
_FILES: Final = {one.file_name: one.name for one in BY_NAME.values() if one.file_name is not None}
_NAMED: Final = re.compile(rf"{PREFIX}\w+")
_HOST: Final = "SERVICE_HOST"
_LINK: Final = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?")
_ON_SPARK: Final = "HAPAX_ENGINE=spark"


class Problem(NamedTuple):
    """What is wrong with a variable by itself, in one sentence."""

    variable: str
    sentence: str


class GivenValue(NamedTuple):
    """One variable as it was found. ``source`` is the variable that really holds it."""

    text: str
    origin: Origin
    source: str


SPARK_DEFAULTS: Final = {
    # A task comes for a backlog: with transactions of the worker's size it waits a fifth of its
    # time for brokers (measured: 174,000 records/s instead of 205,000).
    "HAPAX_TRANSACTION__INTERVAL": GivenValue("500ms", "default", _ON_SPARK)
}


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings; raise ConfigurationError with one sentence for each problem."""
    return load_with_origins(environ)[0]


def load_with_origins(
    environ: Mapping[str, str], given_by: Mapping[str, Origin] | None = None
) -> tuple[Settings, dict[str, Origin]]:
    """Return where each value is from, too; ``given_by``: what put variables into ``environ``."""
    problems = list(_unread(environ))
    given: dict[str, GivenValue] = {}
    for variable in VARIABLES:
        try:
            if (found := _find(variable, environ, given_by or {})) is not None:
                given[variable.name] = found
        except ValueError as refusal:
            problems.append(Problem(variable.name, str(refusal)))
    if "HAPAX_ENGINE" in given and given["HAPAX_ENGINE"].text.lower() == "spark":
        given = SPARK_DEFAULTS | given
    settings, refused = _validate(given)
    problems.extend(refused)
    wrong = {problem.variable for problem in problems}
    sentences = [problem.sentence for problem in problems]
    for rule in broken_rules(settings):
        about, _, _advice = rule.partition(": ")
        if wrong.isdisjoint(_NAMED.findall(about)):
            sentences.append(rule)
    if sentences:
        raise ConfigurationError(sentences)
    return settings, {name: given[name].origin if name in given else "default" for name in BY_NAME}


def _find(
    variable: Variable, environ: Mapping[str, str], given_by: Mapping[str, Origin]
) -> GivenValue | None:
    """Return what is set; empty counts as unset. Raise ValueError with a whole sentence."""
    name, file_name = variable.name, variable.file_name
    text = environ.get(name, "")
    path = environ.get(file_name, "").strip() if file_name is not None else ""
    if file_name is not None and path:
        if text:
            raise ValueError(f"{name} and {file_name} are both set: keep one of them")
        return GivenValue(read_text(file_name, path), "file", file_name)
    if not variable.form.secret:
        text = text.strip()
    if not text and name == _INSTANCE:
        return _instance(environ)
    if name == _BROKERS and name not in environ:
        by, text = _BROKERS_OF_ALL, environ.get(_BROKERS_OF_ALL, "").strip()
        return GivenValue(text, by, by) if text else None
    by = given_by.get(name, name)
    return GivenValue(text, "environment" if by == name else by, by) if text else None


def _instance(environ: Mapping[str, str]) -> GivenValue:
    for source in ("POD_NAME", "HOSTNAME"):
        if text := environ.get(source, "").strip():
            return GivenValue(text, "default", source)
    return GivenValue(socket.gethostname(), "default", "the host's name")


def _validate(given: Mapping[str, GivenValue]) -> tuple[Settings, list[Problem]]:
    """Replace refused values, so that the rules between the others can still be judged."""
    tree = _tree({name: found.text for name, found in given.items()})
    try:
        return Settings.model_validate(tree), []
    except ValidationError as error:
        problems = [
            problem
            for line in error.errors(include_url=False, include_input=False)
            for problem in _refusals(line, given)
        ]
    wrong = {problem.variable for problem in problems}
    stand_ins = {name: BY_NAME[name].example for name in wrong if BY_NAME[name].example}
    sound = {name: found.text for name, found in given.items() if name not in wrong}
    return Settings.model_validate(_tree(sound | stand_ins)), problems


def _tree(texts: Mapping[str, str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for variable in VARIABLES:
        branch = root
        for part in variable.path[:-1]:
            branch = branch.setdefault(part, {})
        if variable.name in texts:
            branch[variable.path[-1]] = texts[variable.name]
    return root


def _refusals(line: ErrorDetails, given: Mapping[str, GivenValue]) -> Iterator[Problem]:
    name = PREFIX + "__".join(str(part) for part in line["loc"]).upper()
    variable = BY_NAME[name]
    found = given.get(name)
    if found is None:
        told = f"{name} is not set: {variable.meaning} Example: {name}={variable.example}"
        yield Problem(name, told)
        return
    label = found.source if found.origin == "file" else name
    if variable.form.quotable:
        label = f"{label}={_quoted(found.text)}"
    if found.origin not in {"environment", "file"}:
        label = f"{label} (from {found.source})"
    for reason in line["ctx"]["error"].args:
        yield Problem(name, f"{label}: {reason}")


def _quoted(text: str) -> str:
    text = hidden(text)
    if len(text) > _QUOTED_CHARACTERS_MAX:
        text = text[:_QUOTED_CHARACTERS_MAX] + "…"
    return json.dumps(text, ensure_ascii=False)


def _unread(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each, never with its value, which may be a misplaced secret."""
    services = tuple(_services(environ))
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name in BY_NAME or name in _FILES:
            continue
        if any(
            name.startswith(service) and _LINK.fullmatch(name.removeprefix(service))
            for service in services
        ):
            continue
        yield Problem(_nearest(name), f"{name} is read by nothing: {_advice(name)}")


def _services(environ: Mapping[str, str]) -> Iterator[str]:
    # Kubernetes describes every service of the namespace in variables of the service's name: one
    # that is called hapax would set HAPAX_SERVICE_HOST, HAPAX_PORT and more of the kind.
    for name in environ:
        prefix = name.removesuffix(_HOST)
        if name.startswith(PREFIX) and prefix != name and f"{prefix}SERVICE_PORT" in environ:
            yield prefix


def _advice(name: str) -> str:
    plain = name.removesuffix("_FILE")
    if plain != name and plain in BY_NAME:
        return f"only secrets are read from files; set {plain} itself"
    nearest = _nearest(name)
    return f"did you mean {nearest}?" if nearest else "remove it, or see hapax config reference"


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    # Without the prefix, or every name would look alike.
    known = [other.removeprefix(PREFIX) for other in (*BY_NAME, *_FILES)]
    nearest = get_close_matches(name.upper().removeprefix(PREFIX), known, n=1)
    return PREFIX + nearest[0] if nearest else ""
