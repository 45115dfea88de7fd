"""The native record path: hapax_fast, where it is installed, wanted and tested.

The one door to it. Everything it does has its reference in Python, which is used wherever one of
the checks here fails: ``record_path`` says which.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import KafkaException, Producer, libversion
from msgspec import UNSET

from hapax.core.errors import BatchAbortedError, ConfigurationError
from hapax.core.headers import PREFIX
from hapax.core.record_path import (
    PARTITION_BYTES,
    SHARDS,
    Batch,
    ClaimRequest,
    Facts,
    Identified,
    Outputs,
    Plan,
)
from hapax.core.records import Output, Record
from hapax.processing.identity import Identity, id_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax_fast import Ids, Records

    from hapax.core.interrupt import Interrupt
    from hapax.core.record_path import Each, Function, Judge, Preset, Reference, Results
    from hapax.core.records import Message, Progress
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


UNCHANGED: Final = Output(None)
"""The result that stands for the record as it is, by identity: no object is made for each."""


class NativeClaims(ClaimRequest):
    """The ids of a whole native batch: none of its records is a replay."""

    ids: Ids
    records: Records

    def topics(self) -> list[str]:
        return list(dict.fromkeys(topic for topic, *_ in self.records.runs))

    def digests(self, salt: bytes) -> bytes:
        return self.ids.digests(salt)

    def packed_owners(self, numbers: Mapping[str, bytes]) -> bytes:
        heads = [
            numbers[topic] + partition.to_bytes(PARTITION_BYTES, "big")
            for topic, partition, *_ in self.records.runs
        ]
        return self.records.owners(heads)

    def by_shard(
        self, digests: bytes, owners: bytes, _gone: bytes
    ) -> tuple[Sequence[int], Sequence[int], bytes, bytes, bytes]:
        order, counts, named, owned = self.ids.by_shard(digests, owners, SHARDS)
        return memoryview(order).cast("I"), counts, named, owned, b""


class NativeBatch(Batch):
    """A batch whose records hapax_fast holds; fast/hapax_fast/_native.pyi says what they offer."""

    records: Records

    def places(self) -> Callable[[int], tuple[str, int, int]]:
        return self.records.coordinates

    def plain(self, found: Identified) -> Batch:
        found.ids, found.claims = list(found.ids), list(found.claims)
        return Batch(
            list(self.records), self.first, self.next, self.unreadable, self.marks, self.base
        )

    def identified(self, _identify: Callable[[Sequence[Record]], Identified]) -> Identified:
        return Identified(self.records.ids, self.records.claims, {}, {})

    def wanted(self, claims: Sequence[bytes]) -> Sequence[int]:
        return super().wanted(claims) if self.records.claims.missing else range(len(claims))

    def request(self, _found: Identified) -> ClaimRequest:
        return NativeClaims(self.records.claims, self.records)

    def name(self, _ids: Sequence[bytes]) -> None:
        """Leave it to the call: a record is made for it, with its id."""

    def apply(
        self, _each: Each, function: Function, judge: Judge, interrupt: Interrupt, preset: Preset
    ) -> Results:
        """See Batch: an Output stands for the tuple of it, UNCHANGED for the record as it is."""
        return self.records.apply(function, judge, interrupt, preset)

    def answers(self, results: Sequence[Any]) -> Iterable[tuple[int, Any]]:
        """Leave out what is UNCHANGED: the identity is called again, which costs less."""
        made = ((at, one) for at, one in enumerate(results) if one is not UNCHANGED)
        return ((at, (one,) if isinstance(one, Output) else one) for at, one in made)

    def plan(self, plan: Reference, topic: str, results: Results, progress: Progress) -> Plan:
        """Let the native path stamp a batch whose every result is the rule."""

        def reference() -> Plan:
            return plan(list(self.records), by_reference(results, self.records))

        if (counts := self.records.tally(results)) is None:
            return reference()
        outputs, filtered, duplicates = counts
        prepared = Prepared(self.records, results, topic, outputs, lambda: reference().messages)
        sources = range(len(results))  # the native path names a refusal by its record
        return Plan(prepared, progress, sources, filtered, duplicates=duplicates)

    def facts(self, _ids: Sequence[bytes], done: int) -> Facts:
        bytes_in, oldest_ms, newest_ms, found = self.records.facts(done)
        return Facts(done, self._inputs(done), done - found, bytes_in, oldest_ms, newest_ms)

    def _topics(self, done: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for topic, _partition, start, count, *_ in self.records.runs:
            counts[topic] += max(0, min(count, done - start))
        return +counts


def by_reference(results: Sequence[Any], records: Sequence[Record]) -> Results:
    """Return results as the reference has them: tuples of outputs."""
    return [
        (Output(records[index].value),)
        if result is UNCHANGED
        else (result,)
        if isinstance(result, Output)
        else result
        for index, result in enumerate(results)
    ]


class Prepared(Outputs):
    """Outputs of a batch that the native path makes as it sends them, before those that are listed.

    ``reference`` makes the same, one by one, as long as they have not been sent.
    """

    def __init__(
        self,
        records: Records,
        results: Results,
        topic: str,
        count: int,
        reference: Callable[[], Sequence[Message]],
    ) -> None:
        super().__init__()
        self.records = records
        self.results = results
        self.topic = topic
        self.outputs = count
        self.reference = reference

    def __len__(self) -> int:
        return self.outputs + len(self.listed)

    def __iter__(self) -> Iterator[Message]:
        return chain(self.reference(), self.listed)

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def topics(self) -> set[str]:
        return {self.topic, *super().topics()}

    def counts(self) -> dict[str, int]:
        return {self.topic: self.outputs, **super().counts()} if self.outputs else super().counts()

    def hand_over(self, send: Callable[[Any], None]) -> int:
        send(self)
        return len(self.results)


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


_fields = attrgetter("value", "key", "partition", "timestamp_ms", "headers")


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
