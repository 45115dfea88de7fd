"""A pipeline in memory, for the tests of a transform: the service's own steps, and no broker.

Records go through identify, claim, transform, plan and a transaction, as in ``hapax run``; what a
``read_committed`` reader would find is the result. The claim store and time are in memory, too.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from hapax.core.errors import BatchAbortedError, ConfigurationError, StateUnreadError
from hapax.core.interrupt import Interrupt
from hapax.core.records import Coordinates, Message, Record, TopicPartition
from hapax.engines.overlapping_calls import GatheredCalls, call_limits, open_transformer, retrying
from hapax.engines.steps import steps
from hapax.engines.watchdog import Watchdog
from hapax.processing.call_window import BLOCKING
from hapax.processing.dead_letters import DeadLetter, dead_letter
from hapax.processing.exactly_once import ExactlyOnce
from hapax.processing.keyed_state import KeyedState, MemoryState
from hapax.processing.retry_later import LEVELS
from hapax.processing.state import content_of, prefix_of
from hapax.processing.transform import TransformForm, form_of, load_form
from hapax.schemas.codec import KINDS, Decoder, Encoder
from hapax.schemas.lookup import lookup_of
from hapax.schemas.registry import Schema
from hapax.settings import Settings, load_settings
from hapax.settings.env_file import read_env_file
from hapax.settings.rules import state_problems
from hapax.testing.broker import MemoryBroker, MemoryLog
from hapax.testing.claims import MemoryClaims, MemoryOwners
from hapax.testing.source import InjectedFault, MemorySource, MemoryTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hapax.core.formats import Format, FormatOptions
    from hapax.core.ports import AppliesAll
    from hapax.core.record_path import Batch, Preset, Results

DEFAULTS = {
    "HAPAX_APP": "test",
    "HAPAX_INSTANCE": "test-0",
    "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "memory:9092",
    "HAPAX_INPUT__TOPICS": "input",
    "HAPAX_OUTPUT__TOPIC": "output",
    "HAPAX_DEAD_LETTER__TOPIC": "dead-letters",
    "HAPAX_REGISTRY__URL": "http://memory",
}
"""Settings of a pipeline in memory that are not given."""
PARTITIONS = 8
"""Of each input topic."""
_NUMBERS = count()
Given = dict[str, Any] | str | Path
"""A schema: as data, as text, or the file that has it."""


class _ManualClock:
    """Time that passes only when a test says so. Seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        self._now_s += seconds


class Processed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records of one ``Pipeline.run``.

    outputs       records as a reader of the output topics finds them, by topic and partition
    dead_letters  with ``error``, ``reason``, ``attempts``, ``source`` and the ``record`` itself
    duplicates    coordinates of records whose event was seen before
    filtered      coordinates of records for which the transform had no output
    calls         by coordinates, how often the transform was called; 2 and more are retries
    records       how many records were processed
    waiting       by coordinates, the records that wait for a later try, and in how many seconds of
                  ``Pipeline.wait`` it is due
    logged        lines of ``hapax.context``, as they are in the log
    counted       by series, as ``orders_total{country="de"}``, what it has counted
    """

    outputs: list[Record]
    dead_letters: list[DeadLetter]
    duplicates: list[Coordinates]
    filtered: list[Coordinates]
    calls: dict[Coordinates, int]
    records: int
    waiting: dict[Coordinates, float] = {}
    logged: list[dict[str, Any]] = []
    counted: dict[str, float] = {}

    @property
    def retries(self) -> int:
        """Calls of the transform beyond the first of each record."""
        return sum(count - 1 for count in self.calls.values())

    def values(self, topic: str | None = None) -> list[bytes | None]:
        """Return the values of the outputs, of one topic or of all."""
        return [one.value for one in self.outputs if topic in {None, one.topic}]


class TestSchemas:
    """What a pipeline in memory looks up, by subject: ``orders-value`` is of the topic orders."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    def __init__(self, formats: FormatOptions, schemas: Mapping[str, Given]) -> None:
        self._formats = formats
        self._lookup = lookup_of(formats)
        for number, (subject, given) in enumerate(schemas.items(), 1):
            text = _text(given)
            kind = KINDS.get(self._format(subject), "AVRO")
            schema = Schema(text=text, kind=kind, id=number, guid=f"{number:032x}")
            for key in (f"subject:{subject}", f"id:{number}", f"guid:{number:032x}"):
                self._lookup.add(key, schema)

    def value(self, data: Any, topic: str) -> bytes | None:
        """Return the value of an input record with this data."""
        if data is None or isinstance(data, bytes):
            return data
        formats = self._formats
        written = replace(formats, output=formats.input, schema=None, topic=topic)
        return Encoder(written, self._lookup).encode(data, topic)[0]

    def data(self, record: Record[Any]) -> Any:
        """Return the data of an output."""
        read = replace(self._formats, input=self._formats.output, reader=None)
        return Decoder(read, self._lookup, Any).decode(record)

    def _format(self, subject: str) -> Format:
        output = subject == f"{self._formats.topic}-value"
        return self._formats.output if output else self._formats.input


def _text(given: Given) -> str:
    if isinstance(given, Path):
        return given.read_text(encoding="utf-8")
    return given if isinstance(given, str) else json.dumps(given)


class _AnyTopicBroker(MemoryBroker):
    """A broker that creates a partition when something is written: the first, or the named."""

    def _place(self, message: Message) -> TopicPartition:
        where = (message.topic, max(0, message.partition))
        self.logs.setdefault(where, MemoryLog(where))
        return where


class _CallWatch(Watchdog):
    """Cancels coroutines past HAPAX_CALL__TIMEOUT, and names those that hold the event loop.

    It ends no process: a thread that hangs keeps its test waiting.
    """

    def __init__(self) -> None:
        super().__init__(float("inf"), on_overrun=lambda _call, _s: None, leave=lambda _code: None)
        self._blocking: list[str] = []

    def note(self, record: Record | None) -> None:
        """Remember the record whose coroutine has held the event loop for a second."""
        self._blocking.append("a record" if record is None else str(record.coordinates))

    def warn(self) -> None:
        noted, self._blocking = self._blocking, []
        for where in noted:
            problem = f"the coroutine of {where} has held the event loop for a second: {BLOCKING}"
            warnings.warn(problem, RuntimeWarning, stacklevel=3)


class _NotedCalls:
    """Step 4, with notes of what leaves no trace in a topic; keys are kept in order."""

    def __init__(self, inner: AppliesAll, restored: Callable[[Record], Record]) -> None:
        """``restored``: returns a record that has waited as it first came."""
        self.duplicates: dict[Coordinates, None] = {}
        self.filtered: dict[Coordinates, None] = {}
        self._inner = inner
        self._restored = restored

    def forget(self) -> None:
        self.duplicates.clear()
        self.filtered.clear()

    def apply_all(self, batch: Batch, interrupt: Interrupt, preset: Preset) -> Results:
        results = self._inner.apply_all(batch, interrupt, preset)
        for record, result in zip(batch.records, results, strict=False):
            if result is None:
                self.duplicates[self._restored(record).coordinates] = None
            elif result == ():
                self.filtered[self._restored(record).coordinates] = None
        return results


def _counted(form: TransformForm, calls: Counter[Coordinates]) -> TransformForm:
    """Return the form with its calls counted; those of what a context yields are not."""
    if form.context:
        return form

    def count(given: Record | list[Record]) -> None:
        records = given if isinstance(given, list) else [given]
        calls.update(record.coordinates for record in records)

    @wraps(form.function)
    def called(given: Any, *state: Any) -> Any:
        count(given)
        return form.function(given, *state)

    async def awaited(given: Any, *state: Any) -> Any:
        count(given)
        return await form.function(given, *state)

    return replace(form, function=awaited if form.asynchronous else called)


def _formed(transform: Callable[..., Any] | None, name: str | None) -> TransformForm:
    if transform is None:
        return load_form(name)
    try:
        return form_of(transform)
    except ValueError as error:
        named = getattr(transform, "__name__", repr(transform))
        raise ConfigurationError(f"{named} {error}") from error


class Pipeline:
    """One transform with its settings, between topics in memory.

    ::

        pipeline = Pipeline(transform, {"HAPAX_DEDUP__ID": "json:/id"})
        result = pipeline.run(b'{"id": 1}', b'{"id": 1}')
        assert len(result.outputs) == len(result.duplicates) == 1
    """

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        settings: Mapping[str, str] | str | os.PathLike[str] | None = None,
        *,
        claims: bool = True,
        schemas: Mapping[str, Given] | None = None,
    ) -> None:
        """Build it.

        ``transform``: default: the function that HAPAX_TRANSFORM names. ``settings``: HAPAX_
        variables, or a file of them; topics that are missing are ``input``, ``output`` and
        ``dead-letters``. ``claims``: whether there is a claim store; its address is not used.
        ``schemas``: by subject, in the place of a registry, whose address is not used either.
        Raises ConfigurationError, as ``hapax run`` does.
        """
        given = {} if settings is None else settings
        if isinstance(given, (str, os.PathLike)):
            given = read_env_file(Path(given), os.environ)
        self.settings: Settings = load_settings({**DEFAULTS, **given})
        formats = self.settings.formats
        # Of this pipeline alone: look-ups are shared by what their registry is named.
        registry = replace(formats.registry, url=(f"memory:{next(_NUMBERS)}",))
        formats = replace(formats, registry=registry)
        self.schemas = TestSchemas(formats, schemas or {})
        self.clock = _ManualClock()
        inputs = self.settings.input.topics
        self._policy = replace(retrying(self.settings), backoff_ms=0)
        topic = self._policy.topic
        waits = {} if topic is None else {topic.name: LEVELS}
        self._broker = _AnyTopicBroker(
            dict.fromkeys(inputs, PARTITIONS) | waits, inputs=[*inputs, *waits], clock=self.clock
        )
        self._aborts = 0
        self._read: dict[TopicPartition, int] = {}
        self._calls: Counter[Coordinates] = Counter()
        form = _formed(transform, self.settings.transform)
        limits = replace(call_limits(self.settings), retrying=self._policy, formats=formats)
        self._lines: list[bytes] = []
        self._capture()
        self._watch = _CallWatch()
        if form.stateful and (problems := list(state_problems(self.settings))):
            raise ConfigurationError(problems)
        self._store = MemoryState()
        state = KeyedState(self._store, self.settings.state_topic, inputs=inputs)
        self._state = state if form.stateful else None
        counted = _counted(form, self._calls)
        self._transformer = open_transformer(counted, limits, self._watch.note, self._state)
        restored = (lambda record: record) if topic is None else topic.restored
        self._noted = _NotedCalls(self._transformer, restored)
        name = self.settings.instance
        self._source = MemorySource(self._broker, name, wait=self.clock.wait)
        self._source.held = self._held
        self._transaction = MemoryTransaction(
            self._broker, name, clock=self.clock, faults=self._fault
        )
        ttl_ms = self.settings.dedup.ttl_ms
        made = steps(
            self.settings,
            MemoryClaims(clock=self.clock, ttl_ms=ttl_ms) if claims else None,
            MemoryOwners(self._broker, wait=self.clock.wait),
            self._noted,
            state=self._state,
            now_ms=self._now_ms,
        )
        self._core = ExactlyOnce(
            made, self._source, self._transaction, clock=self.clock, interrupt=Interrupt()
        )
        self._transaction.open()
        if isinstance(self._transformer, GatheredCalls):
            self._watch.follow(self._transformer.calls.tick)
            self._watch.start()

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        topic: str = "",
        partition: int = 0,
        timestamp_ms: int = 0,
    ) -> Coordinates:
        """Write one input record; return its coordinates. ``topic``: default: the first input."""
        topic, given = topic or self.settings.input.topics[0], tuple(headers)
        offset = self._broker.write(
            topic, value, key=key, partition=partition, headers=given, timestamp_ms=timestamp_ms
        )
        return Coordinates(topic, partition, offset)

    def run(self, *values: Any) -> Processed:
        """Write records of these values, and process all that was written since the last call.

        What is not bytes is encoded by HAPAX_INPUT__FORMAT; ``schemas.data(output)`` decodes.

        What waits for a later try is called when it is due by then.
        Raises what would stop the service, for instance DeadLetterLimitError.
        """
        for value in values:
            self.send(self.schemas.value(value, self.settings.input.topics[0]))
        self._calls.clear()
        self._noted.forget()
        context = self._capture()
        records = 0
        while (batch := self._source.take(self.settings.transaction.records_max, 0.0)).records:
            try:
                result = self._core.run(batch, {}, 1)
            except StateUnreadError as error:
                state = self._state
                assert state is not None
                places = {at: batch.first.get(at, 0) for at in state.together(error.places)}
                self._store.progress |= places
                state.unread(places)
                self._source.rewind(batch.first)
                continue
            except BatchAbortedError:
                self._source.rewind(batch.first)
                continue
            self._source.mark_processed(result.progress)
            records += result.records - result.moved
        self._watch.warn()
        return self._processed(records, context.counted() if context else {})

    def state(self, key: bytes, partition: int = 0) -> dict[str, Any]:
        """Return what the transform keeps for a key, by name."""
        prefix = prefix_of(partition, key)
        found = self._store.entries(prefix).items()
        return {
            entry[len(prefix) :].decode(): msgspec.msgpack.decode(content_of(value))
            for entry, value in found
        }

    def abort_next(self, times: int = 1) -> None:
        """Let the next transactions be aborted, as by a broker's failure.

        Their records are taken again, and business code is not called again: its results are kept.
        With state it is, and the state is what it was. The outputs must be the same.
        """
        self._aborts = times

    def close(self) -> None:
        """Tear the transform down. ``with Pipeline(…) as pipeline:`` does so, too."""
        if isinstance(self._transformer, GatheredCalls):
            self._watch.stop()
            self._transformer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def wait(self, seconds: float) -> None:
        """Let time pass: until HAPAX_DEDUP__TTL is over, or a later try is due at the next run."""
        self.clock.wait(seconds)

    def _capture(self) -> Any:
        context, settings = sys.modules.get("hapax.context"), self.settings
        if context:
            names = {"app": settings.app, "instance": settings.instance, "engine": settings.engine}
            context.capture(settings.telemetry.log_level, self._lines.append, **names)
        return context

    def _fault(self, step: str) -> InjectedFault | None:
        if step != "send_offsets" or not self._aborts:
            return None
        self._aborts -= 1
        return InjectedFault("aborted")

    def _processed(self, records: int, counted: dict[str, float]) -> Processed:
        lines = [msgspec.json.decode(line) for line in self._lines]
        self._lines.clear()
        written = self._written()
        letters = [dead_letter(record) for record in written]
        return Processed(
            outputs=[record for record, one in zip(written, letters, strict=True) if one is None],
            dead_letters=[one for one in letters if one is not None],
            duplicates=list(self._noted.duplicates),
            filtered=list(self._noted.filtered),
            calls=dict(self._calls),
            records=records,
            waiting=self._waiting(),
            logged=lines,
            counted=counted,
        )

    def _now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def _held(self, record: Record) -> bool:
        topic = self._policy.topic
        waits = None if topic is None else topic.read(record)
        return waits is not None and waits.until > self._now_ms()

    def _waiting(self) -> dict[Coordinates, float]:
        topic, now_ms, found = self._policy.topic, self._now_ms(), {}
        for where, log in self._broker.logs.items():
            if topic is None or where[0] != topic.name:
                continue
            for record in log.fetch(self._broker.committed.get(where, 0), log.end):
                if (waits := topic.read(record)) is not None:
                    found[Coordinates.parse(waits.of)] = (waits.due - now_ms) / 1000
        return found

    def _written(self) -> list[Record]:
        inputs = {*self._broker.inputs, self.settings.state_topic}
        found: list[Record] = []
        for where, log in self._broker.logs.items():
            if where not in inputs:
                found += log.fetch(self._read.get(where, 0), log.end)
                self._read[where] = log.end
        return sorted(found, key=lambda record: record.coordinates)
