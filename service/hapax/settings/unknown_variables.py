"""Variables with the prefix that nothing reads: renamed or misspelt, so they are problems."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hapax.settings.base import PREFIX
from hapax.settings.model import BY_NAME
from hapax.settings.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Old name -> new name. An old one is refused: ignored, its setting would silently be the default.
RENAMED: Final = {
    "HAPAX_GROUP__POLL_INTERVAL_MAX": "HAPAX_GROUP__MAX_POLL_INTERVAL",
    "HAPAX_SPARK__PIPELINE": "HAPAX_SPARK__DATAFRAME",
    "HAPAX_TELEMETRY__SURVEY_INTERVAL": "HAPAX_TELEMETRY__LAG_INTERVAL",
}
_FILES: Final = {
    variable.file_name: variable.name
    for variable in BY_NAME.values()
    if variable.file_name is not None
}
_HOST: Final = "SERVICE_HOST"
_LINK: Final = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?")


def unread(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each; never with its value, which may be a secret in a wrong place."""
    services = tuple(_services(environ))
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or name in BY_NAME or name in _FILES:
            continue
        if any(
            name.startswith(service) and _LINK.fullmatch(name.removeprefix(service))
            for service in services
        ):
            continue
        if new := _renamed(name):
            yield Problem((new,), f"{name} was renamed: set {new} to its value instead")
        else:
            yield Problem((_nearest(name),), f"{name} is read by nothing: {_advice(name)}")


def _services(environ: Mapping[str, str]) -> Iterator[str]:
    # Kubernetes describes every service of the namespace in variables of the service's name: one
    # that is called hapax would give us HAPAX_SERVICE_HOST, HAPAX_PORT and more of the kind.
    for name in environ:
        prefix = name.removesuffix(_HOST)
        if name.startswith(PREFIX) and prefix != name and f"{prefix}SERVICE_PORT" in environ:
            yield prefix


def _renamed(name: str) -> str:
    plain = name.upper().removesuffix("_FILE")
    new = BY_NAME.get(RENAMED.get(plain, ""))
    if new is None:
        return ""
    return new.name if plain == name.upper() else new.file_name or ""


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
