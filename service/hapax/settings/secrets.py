"""The secrets of this process by their values, to strike them out of texts that others write.

Names and places (redaction.py) decide what is shown of the settings themselves. What a client, a
broker, Spark or business code says may repeat a value anywhere: it is compared with these.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from pydantic import SecretStr

from hapax.settings.base import PREFIX
from hapax.settings.model import VARIABLES
from hapax.settings.redaction import HIDDEN, is_secret, secret_values, secrets_in
from hapax.settings.value_types import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hapax.settings.base import Variable
    from hapax.settings.model import Settings

LENGTH_MIN: Final = 4
"""Shorter ones occur in many words; striking them out would leave little to read of a log."""
FOREIGN_LENGTH_MIN: Final = 8
"""Variables of others are judged by their names alone: a short value is rather a switch."""
_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Of every shell (POSIX), and named like passwords: where it is and was."""


class Strike:
    """Takes secrets out of texts, in whatever spelling they occur."""

    def __init__(self, secrets: Iterable[str], length_min: int = LENGTH_MIN) -> None:
        self._length_min = length_min
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        spelt = {each for secret in secrets for each in _spellings(secret)}
        self._known |= {each for each in spelt if len(each) >= self._length_min}
        longest = sorted(self._known, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest))) if longest else None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """Return what a log line or JSON holds without them: every text in it, at any depth."""
        if self._pattern is None or value is None or isinstance(value, int | float):
            return value
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {key: self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value


def secrets_of(settings: Settings) -> Iterator[str]:
    for variable in VARIABLES:
        value = variable.value(settings)
        if isinstance(value, SecretStr):
            yield from variable.form.parts(value.get_secret_value())
        elif isinstance(value, dict):
            yield from secret_values(value)
        elif isinstance(value, str):
            yield from variable.form.parts(value)


def secrets_around(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield every secret that an environment holds or points at; nothing has to be valid."""
    for variable in VARIABLES:
        for text in _given(variable, environ):
            yield from variable.form.parts(text)
    known = _FOLDERS.union(variable.name for variable in VARIABLES)
    for name, text in environ.items():
        if name in known or (name.startswith(PREFIX) and name.endswith("_FILE")):
            continue
        if is_secret(name) or name.startswith(PREFIX):
            # A name of Hapax that nothing reads is most likely misspelt, and may be a secret's.
            found = (text,) if is_secret(name) else secrets_in(text)
            yield from (each for each in found if len(each) >= FOREIGN_LENGTH_MIN)


def _given(variable: Variable, environ: Mapping[str, str]) -> Iterator[str]:
    if text := environ.get(variable.name, ""):
        yield text
    file_name = variable.file_name
    if file_name is None or not (path := environ.get(file_name, "").strip()):
        return
    try:
        yield read_text(file_name, path)
    except ValueError:
        if "/" not in path:  # where a path should be: most likely the secret itself
            yield path


def _spellings(secret: str) -> Iterator[str]:
    for plain in {secret, secret.strip(), unquote(secret), unquote_plus(secret)}:
        yield plain
        yield quote(plain, safe="")
        yield quote_plus(plain)
        yield json.dumps(plain)[1:-1]
        yield json.dumps(plain, ensure_ascii=False)[1:-1]
        yield repr(plain)[1:-1]
