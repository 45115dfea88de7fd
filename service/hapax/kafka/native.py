"""The native record path: hapax_fast, where it is installed, wanted and tested.

The one door to it. Everything it does has its reference in Python, which is used wherever one of
the checks here fails: ``record_path`` says which.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import KafkaException, Producer, libversion
from msgspec import UNSET

from hapax.core.errors import BatchAbortedError, ConfigurationError
from hapax.core.headers import PREFIX
from hapax.core.record_path import UNCHANGED, Ids, Prepared, RecordPath
from hapax.core.records import Output, Record
from hapax.processing.identity import Identity, id_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.records import Message
    from hapax.settings import Settings

TESTED: Final = ("2.16.",)
"""Versions of librdkafka that the tests ran on, by how they begin; others take the reference."""
INTERFACE: Final = 3
"""Of hapax_fast: that of another release is not called, for it may want what this one lacks."""
_KNOWN: Final = (b"", b"1", b"cloudevents\0a\0b", b"x" * 127, b"x" * 128, b"x" * 129, b"x" * 1000)
_SALT: Final = bytes(range(16))
SOURCES_MAX: Final = 8
"""Of ids, in hapax_fast."""
PROVEN_AFTER: Final = 100
"""Records of a process that go through both paths."""


class NativePath:
    """What clients need in order to use it.

    module    hapax_fast
    sources   where ids are found: (kind, header, tag)
    unproven  records of this process that still go through the reference as well
    left      why the process continued in Python; empty: it has not
    """

    def __init__(self, module: Any, id_sources: Sequence[str]) -> None:
        self.module = module
        self.sources = _sources(id_sources)[0]
        self.unproven = PROVEN_AFTER
        self.left = ""
        self._identity = Identity(id_sources)

    def plug_in(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Return the properties of a client that is passed to the plugin."""
        return properties | {"plugin.library.paths": self.module.PLUGIN}

    def captured(self) -> object:
        """Return the client that this thread has just built with such properties."""
        return self.module.captured()

    def prove(self, prepared: Prepared) -> None:
        """Raise BatchAbortedError when they differ; the process then takes the reference."""
        records = list(islice(prepared.records, self.unproven))
        self.unproven -= len(records)
        native = prepared.records
        found = self._identity.identify(records)
        digests = b"".join(_digest(claim) if claim else bytes(16) for claim in found.claims)
        outputs = range(len(prepared.results))
        previews = [self.module.preview(native, prepared.results, index) for index in outputs]
        reference = list(map(_fields, prepared.reference()))
        same = {
            "ids": list(islice(native.ids, len(records))) == found.ids,
            "claims": list(islice(native.claims, len(records))) == found.claims,
            "digests": native.claims.digests(_SALT)[: len(digests)] == digests,
            "outputs": [one for one in previews if one is not None] == reference,
        }
        if not all(same.values()):
            what = ", ".join(name for name, is_so in same.items() if not is_so)
            self.left = f"the native path has other {what} than the reference"
            raise BatchAbortedError(f"{self.left}; the batch is taken again in Python")


def _fields(message: Message) -> tuple[Any, ...]:
    return (
        message.value,
        message.key,
        message.partition,
        message.timestamp_ms,
        list(message.headers),
    )


class Choice(msgspec.Struct, frozen=True):
    """Which record path a process takes: ``path`` None is the reference, for this ``reason``."""

    path: NativePath | None
    reason: str

    def __str__(self) -> str:
        left = "" if self.path is None else self.path.left
        return f"{self.name} ({left or self.reason})"

    @property
    def name(self) -> str:
        """``native`` or ``python``, as logs and the status page call it."""
        return "python" if self.path is None or self.path.left else "native"


def record_path(settings: Settings, executor: str = "") -> Choice:
    """Raise ConfigurationError where it must be native and cannot be; Spark's: on that machine."""
    if settings.fast == "off":
        return Choice(None, "HAPAX_FAST=off")
    if settings.retry_topic is not None:
        return Choice(None, "records may wait for a later try")
    if settings.elsewhere:
        return Choice(None, "outputs go to another cluster")
    if settings.output.format != "bytes":
        return Choice(None, f"HAPAX_OUTPUT__FORMAT={settings.output.format}")
    if settings.output.timestamp != "record":
        return Choice(None, f"HAPAX_OUTPUT__TIMESTAMP={settings.output.timestamp}")
    path, reason = _found(tuple(settings.dedup.id))
    if path is None and settings.fast == "on":
        where = f"executor {executor}: " if executor else ""
        problem = f"{where}HAPAX_FAST=on, but {reason}. Cure that, or set HAPAX_FAST=auto"
        raise ConfigurationError(problem)
    return Choice(path, reason)


@cache
def _found(id_sources: tuple[str, ...]) -> tuple[NativePath | None, str]:
    try:
        module: Any = import_module("hapax_fast")
    except ImportError as error:
        return None, _why_missing() if error.name == "hapax_fast" else f"hapax_fast: {error}"
    _known, foreign = _sources(id_sources)
    version = str(libversion()[0])
    if foreign:
        return None, f"HAPAX_DEDUP__ID={foreign} is looked up in Python"
    problem = _problem(module, version)
    return (None, problem) if problem else (NativePath(module, id_sources), f"librdkafka {version}")


def _why_missing() -> str:
    """Return what the build of the wheel noted (hatch_build.py)."""
    try:
        noted = distribution("hapax-kafka").read_text("extra_metadata/hapax_fast.not_built")
    except PackageNotFoundError:
        noted = None
    return f"hapax_fast was not built: {noted}" if noted else "hapax_fast is not installed"


def _problem(module: Any, version: str) -> str:
    if not version.startswith(TESTED):
        return f"librdkafka {version} is not among those tested ({', '.join(TESTED)}x)"
    if (interface := getattr(module, "INTERFACE", 0)) != INTERFACE:
        return (
            f"hapax_fast is that of another release (interface {interface}, not {INTERFACE}):"
            " install the one of this release"
        )
    if any(module.digest(_SALT, each) != _digest(each) for each in _KNOWN):
        return "hapax_fast computes other digests than hashlib"
    RecordPath.register(module.Records)
    Ids.register(module.Ids)
    module.setup(Record, Output, UNSET, UNCHANGED)
    try:
        Producer(NativePath(module, []).plug_in({"bootstrap.servers": "", "log_level": 0}))
    except KafkaException as error:
        return f"librdkafka does not load the plugin: {error.args[0].str()}"
    module.captured()
    return ""


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16, salt=_SALT).digest()


def _sources(texts: Sequence[str]) -> tuple[list[tuple[str, str, bytes]], str]:
    """Return the sources as hapax_fast takes them, and one that it cannot look up."""
    made: list[tuple[str, str, bytes]] = []
    for text in texts:
        if len(made) == SOURCES_MAX:
            return [], text
        source = id_source(text)
        kind, header = source.kind, source.header.lower()
        if kind not in {"header", "key", "cloudevents"} or header.startswith(PREFIX):
            return [], text
        if not header.isascii():
            return [], text
        made.append((kind, header, source.tag))
    return made, ""
