"""Secrets in files: read at the start, and again whenever one is asked for.

A file that cannot be read for a moment, or holds no such secret, changes nothing: what was known
stays. A secret that travels to another process takes along what is known.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES_MAX: Final = 1 << 16


class FileText(str):
    """What stood in a file, and where the file is."""

    __slots__ = ("path",)
    path: str


class FiledSecret(SecretStr):
    """A secret whose value is that of its file now.

    ``parse``: from the text of the file to the value; raises ValueError.
    """

    def __init__(self, value: str, path: str, parse: Callable[[str], str]) -> None:
        super().__init__(value)
        self.path = path
        self._parse = parse

    def get_secret_value(self) -> str:
        """Return the value, read again."""
        with suppress(ValueError):
            self._secret_value = self._parse(read_text("the file", self.path))
        return self._secret_value

    def problem(self) -> str:
        """Return why the file cannot be used now; empty: it can."""
        try:
            self._parse(read_text("the file", self.path))
        except ValueError as error:
            return str(error)
        return ""


def read_text(name: str, path: str) -> FileText:
    """Return what a file holds; raise ValueError with a whole sentence that begins with ``name``.

    The sentence holds nothing of the file.
    """
    # A text without a slash may be the secret itself, set in the wrong variable.
    label = f"{name}={json.dumps(path)}" if "/" in path else name
    try:
        with Path(path).open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
        text = FileText(content.decode().rstrip("\r\n"))
    except UnicodeDecodeError:
        raise ValueError(f"{label}: the file is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the path is not valid"
        raise ValueError(f"{label}: the file cannot be read: {why}") from None
    if len(content) > _BYTES_MAX:
        raise ValueError(f"{label}: the file is too large for a secret")
    if not text:
        raise ValueError(f"{label}: the file is empty")
    text.path = path
    return text
