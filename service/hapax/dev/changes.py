"""Which files of a folder have changed since the last look: by time and size, a few times a second.

A project is a handful of files: one look takes less than a millisecond, on every file system.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIXES = (".py", ".env")
_LEFT_OUT = {"__pycache__", "node_modules", "site-packages"}


class FileChanges:
    """Remembers the files of a folder. Hidden folders and installed packages are left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(self._files())

    def look(self) -> list[str]:
        before, self._seen = self._seen, dict(self._files())
        return sorted(
            os.path.relpath(name, self._folder)
            for name in before.keys() | self._seen.keys()
            if before.get(name) != self._seen.get(name)
        )

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for place, folders, names in os.walk(self._folder):
            folders[:] = [
                name for name in folders if not name.startswith(".") and name not in _LEFT_OUT
            ]
            for name in names:
                if name.endswith(SUFFIXES):
                    path = os.path.join(place, name)  # noqa: PTH118 - a path a look would double it
                    try:
                        found = os.stat(path)  # noqa: PTH116 - as above
                    except OSError:
                        continue  # it was removed meanwhile
                    yield path, (found.st_mtime_ns, found.st_size)
