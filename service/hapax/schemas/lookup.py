"""Schemas by key: from memory, from disk, from the registry.

A key is ``id:17``, ``guid:…`` or ``subject:…``. What is not to be had is looked for by a thread in
the background until it comes, and no call waits for the network meanwhile: ``get`` raises
SchemasUnavailableError at once. So a registry that is away or slow costs records with known ids
nothing. The first question is asked apart, too: it has the time that the settings give it, and the
call that needs the schema, and the next poll, wait for a fraction of that.

What the registry does not know, or denies while it gives others, has one rule: looked for until the
grace is over, then the policy. What it denies without giving others is an outage, or a refusal.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from concurrent.futures import Future
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from hapax.core.errors import Poison, SchemasUnavailableError
from hapax.schemas.registry import DeniedError, Registry, Schema, UnknownSchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.formats import FormatOptions, RegistryOptions

PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 5.0
"""Between two questions for what is missing: doubled each time."""
AGAIN_S: Final = 60.0
"""An id that was given up is asked for again after so long, when a record brings it."""
WITNESSES: Final = 3
"""So many known schemas are asked for again, to learn whether the registry gives others."""
SHARE: Final = 10
"""After a long wait for an answer no call waits for so many times as long."""

_HEAD_BYTES = 4


class Kept(msgspec.Struct):
    """A schema as it is in a file, with what it was looked up by."""

    key: str
    schema: Schema


class SchemaCache:
    """A folder of schemas of one registry.

    An id or a GUID names one schema permanently, so nothing here grows old. The latest version of a
    subject may; it is what a start without the registry begins with. A file that is damaged counts
    as none, and is written again.

    on_trouble  is called with what could not be read or written; the service works without the file
    """

    def __init__(
        self, folder: str, urls: tuple[str, ...], on_trouble: Callable[[str], object]
    ) -> None:
        registry = blake2b(",".join(urls).encode(), digest_size=8).hexdigest()
        self._folder = Path(folder) / registry
        self._on_trouble = on_trouble

    def read(self, key: str) -> Schema | None:
        """Return a schema; None: it is missing, or its file is damaged."""
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
        """Keep a schema: the file is whole, or as it was before."""
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


class Lookup:
    """Schemas of one registry; safe for threads. ``on_trouble``: gets what is wrong with files."""

    def __init__(
        self, options: RegistryOptions, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._registry = Registry(options)
        self._monotonic = monotonic
        self.on_trouble: Callable[[str], object] = bool
        kept = options.cache
        self._cache = None if kept is None else SchemaCache(kept, options.urls, self._trouble)
        self._known: dict[str, Schema] = {}
        self._missing: dict[str, str] = {}
        self._unknown_since_s: dict[str, float] = {}
        self._refused: set[str] = set()
        self._ask_s: dict[str, float] = {}
        self._asking: dict[str, Future[Schema]] = {}
        self._wait_from_s = float("-inf")
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def get(self, key: str) -> Schema:
        """Raise SchemasUnavailableError, or Poison for an id that was waited for long enough."""
        found = self._known.get(key)
        if found is not None:
            return found
        with self._lock:
            asking = self._begun(key)
        try:
            return self._awaited(asking)
        except SchemasUnavailableError as error:
            # Alone, or as all others? What its batch asks for as well shows it by the next time.
            if error.refused and (key in self._refused or not isinstance(error, DeniedError)):
                raise SchemasUnavailableError(str(error), key=key, refused=True) from None
            if error.refused:
                self._refused.add(key)
            reason = str(error)
        except UnknownSchemaError as error:
            with self._lock:
                if self._note_unknown(key):
                    raise _poison(key) from None
            reason = str(error)
        except TimeoutError:
            waited_s = self._options.wait_s
            reason = f"the schema registry has not answered within {waited_s:g} s: {key}"
        with self._lock:
            if key in self._known:  # just now
                return self._known[key]
            raise self._missed(key, reason)

    def first(self, key: str) -> Schema:
        """Return a schema at the start; raise UnknownSchemaError, and as ``get`` does."""
        with self._lock:
            return self._fetched(key)

    def want(self, key: str) -> None:
        with self._lock:
            if key and key not in self._known:
                self._miss(key, "another process waits for it")

    def missing(self, key: str) -> bool:
        """Whether a schema is still looked for: asking for it would be of no use."""
        return key in self._missing

    def add(self, key: str, schema: Schema) -> None:
        self._known[key] = schema

    def _trouble(self, text: str) -> None:
        self.on_trouble(text)

    def _awaited(self, asking: Future[Schema]) -> Schema:
        began_s = self._monotonic()
        try:
            return asking.result(self._options.wait_s)
        finally:
            now_s = self._monotonic()
            if now_s - began_s > self._options.wait_s / SHARE:
                self._wait_from_s = now_s + SHARE * (now_s - began_s)

    # -- with the lock held -------------------------------------------------------------------

    def _begun(self, key: str) -> Future[Schema]:
        if (reason := self._missing.get(key)) is not None:
            raise SchemasUnavailableError(reason, key=key)
        if self._expired(key) and self._monotonic() < self._ask_s.get(key, 0.0):
            raise _poison(key)
        if (asking := self._asking.get(key)) is not None:
            return asking
        if (kept := self._known.get(key) or self._kept(key)) is not None:
            answer: Future[Schema] = Future()
            answer.set_result(kept)
            return answer
        if self._monotonic() < self._wait_from_s:
            raise self._missed(key, f"the schema registry is slow: {key} is not here yet")
        return self._ask(key)

    def _kept(self, key: str) -> Schema | None:
        """Return a schema from its file; None of a subject: it may have another by now."""
        if self._cache is None or key.startswith("subject:"):
            return None
        kept = self._cache.read(key)
        if kept is None or (kept.kind == "PROTOBUF" and kept.serialized is None):
            return None  # of no use without its descriptor, which the registry may have by now
        self._known[key] = kept
        return kept

    def _ask(self, key: str) -> Future[Schema]:
        asking: Future[Schema] = Future()

        def ask() -> None:
            try:
                asking.set_result(self._looked_for(key))
            except (SchemasUnavailableError, UnknownSchemaError) as error:
                asking.set_exception(error)
            finally:
                del self._asking[key]

        self._asking[key] = asking
        threading.Thread(target=ask, name="schema", daemon=True).start()
        return asking

    def _missed(self, key: str, reason: str) -> SchemasUnavailableError:
        self._miss(key, reason)
        return SchemasUnavailableError(reason, key=key)

    def _looked_for(self, key: str) -> Schema:
        """Return a schema; raise UnknownSchemaError also where it alone is denied."""
        try:
            return self._fetched(key)
        except DeniedError as error:
            others = list(self._known.values())[-WITNESSES:]
            if any(map(self._registry.gives, [*others, None])):
                raise UnknownSchemaError(str(error)) from None
            raise

    def _fetched(self, key: str) -> Schema:
        if (found := self._kept(key)) is not None:
            return found
        kind, _, name = key.partition(":")
        kept = None if self._cache is None or kind != "subject" else self._cache.read(key)
        try:
            found = self._asked(kind, name)
        except SchemasUnavailableError as error:
            if kept is None or error.refused:
                raise
            found = kept
        except UnknownSchemaError:
            raise
        except Exception as error:
            # The thread that asks in the background must live, or what it looks for stays held.
            problem = f"the answer about {key} could not be taken: {error!r}"
            raise SchemasUnavailableError(problem) from error
        else:
            if self._cache is not None:
                self._cache.write(key, found)
        self._known[key] = found
        self._missing.pop(key, None)
        self._unknown_since_s.pop(key, None)
        self._refused.discard(key)
        return found

    def _asked(self, kind: str, name: str) -> Schema:
        if kind == "id":
            return self._registry.by_id(int(name))
        if kind == "guid":
            return self._registry.by_guid(name)
        subject, _, file = name.partition("\n")
        if not file:
            return self._registry.latest(subject)
        form, _, path = file.partition(" ")
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            problem = f"HAPAX_OUTPUT__SCHEMA={path} cannot be read: {error}"
            raise SchemasUnavailableError(problem) from None
        return self._registry.registered(subject, text, form)

    def _note_unknown(self, key: str) -> bool:
        """Take note that the registry does not know; return whether the grace is over."""
        now_s = self._monotonic()
        self._unknown_since_s.setdefault(key, now_s)
        self._ask_s[key] = now_s + AGAIN_S
        return self._expired(key)

    def _expired(self, key: str) -> bool:
        since_s, options = self._unknown_since_s.get(key), self._options
        if since_s is None or options.after_grace == "hold":
            return False
        return self._monotonic() - since_s >= options.grace_ms / 1000

    def _miss(self, key: str, reason: str) -> None:
        self._missing[key] = reason
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="schemas", daemon=True)
            self._thread.start()

    # -- in the background --------------------------------------------------------------------

    def _look(self) -> None:
        pause_s = PAUSE_S
        while True:
            time.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)
            for key in list(self._missing):
                self._try(key)
            with self._lock:
                if not self._missing:
                    self._thread = None
                    return

    def _try(self, key: str) -> None:
        """Ask for one; those that wait are called again once it is no longer missing."""
        try:
            if key not in self._known:  # by an answer that came late
                self._looked_for(key)
        except SchemasUnavailableError as error:
            if not error.refused:
                self._missing[key] = str(error)
                return
        except UnknownSchemaError as error:
            if not self._note_unknown(key):
                self._missing[key] = str(error)
                return
        self._missing.pop(key, None)


def _poison(key: str) -> Poison:
    problem = f"the schema registry does not know {key}, or denies it"
    return Poison(f"{problem}, also after HAPAX_REGISTRY__GRACE")


@cache
def lookup_of(options: FormatOptions) -> Lookup:
    """Return what looks schemas up for these settings: one for a process."""
    return Lookup(options.registry)


def _decoded(content: bytes, key: str) -> Schema | None:
    head, body = content[:_HEAD_BYTES], content[_HEAD_BYTES:]
    if int.from_bytes(head, "big") != crc32(body):
        return None
    try:
        kept = msgspec.json.decode(body, type=Kept)
    except (ValueError, msgspec.DecodeError):
        return None
    return kept.schema if kept.key == key else None
