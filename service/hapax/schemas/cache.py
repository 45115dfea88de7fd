"""Schemas on disk. An id or a GUID names one schema for ever, so nothing here grows old.

The latest version of a subject may; it is what a start without the registry begins with. A file
that is damaged counts as none, and is written again.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from hapax.schemas.registry import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema

_HEAD_BYTES = 4


class SchemaCache:
    """A folder of schemas of one registry.

    on_trouble  is told what could not be read or written; the service works without the file
    """

    def __init__(
        self, folder: str, urls: tuple[str, ...], on_trouble: Callable[[str], object]
    ) -> None:
        registry = blake2b(",".join(urls).encode(), digest_size=8).hexdigest()
        self._folder = Path(folder) / registry
        self._on_trouble = on_trouble

    def read(self, key: str) -> Schema | None:
        """Return a schema; None: it is not there, or its file is damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._on_trouble(f"{path} cannot be read: {error.strerror}")
            return None
        found = _decoded(content, key)
        if found is None:
            self._on_trouble(f"{path} is damaged, and fetched again")
        return found

    def write(self, key: str, schema: Schema) -> None:
        """Keep a schema: the file is there whole, or as it was before."""
        path, body = self._path(key), msgspec.json.encode(Kept(key, schema))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix="new-", dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(crc32(body).to_bytes(_HEAD_BYTES, "big") + body)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(path)
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            self._on_trouble(f"{path} cannot be written: {error.strerror}")

    def _path(self, key: str) -> Path:
        return self._folder / f"{blake2b(key.encode(), digest_size=16).hexdigest()}.schema"


def _decoded(content: bytes, key: str) -> Schema | None:
    head, body = content[:_HEAD_BYTES], content[_HEAD_BYTES:]
    if int.from_bytes(head, "big") != crc32(body):
        return None
    try:
        kept = msgspec.json.decode(body, type=Kept)
    except (ValueError, msgspec.DecodeError):
        return None
    return kept.schema if kept.key == key else None
