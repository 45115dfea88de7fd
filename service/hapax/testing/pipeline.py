"""A pipeline in memory, for the tests of a transform: the service's own steps, and no broker.

Records go through identify, claim, transform, plan and a transaction, as in ``hapax run``; what a
``read_committed`` reader would find is the result. The claim store and time are in memory, too.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from hapax.core.call_window import BLOCKING
from hapax.core.dead_letters import dead_letter
from hapax.core.deduplicate import Claiming, ClaimOwners
from hapax.core.errors import BatchAbortedError
from hapax.core.exactly_once import ExactlyOnce, Steps
from hapax.core.identity import Identity
from hapax.core.later_calls import LaterCalls
from hapax.core.limits import DeadLetterRate
from hapax.core.plan import Destinations, Planner
from hapax.core.ports import Interrupt
from hapax.core.records import Coordinates, Record
from hapax.core.retry_later import LEVELS
from hapax.engines.overlapping_calls import GatheredCalls, call_limits, open_transformer, retrying
from hapax.engines.watchdog import Watchdog
from hapax.settings import load_settings
from hapax.settings.env_file import read_env_file
from hapax.testing.claims import MemoryClaims, MemoryOwners
from hapax.testing.processed import (
    AnyTopicBroker,
    ManualClock,
    NotedCalls,
    Processed,
    counted,
    formed,
)
from hapax.testing.schemas import Given, schemas_of
from hapax.testing.source import InjectedFault, MemorySource
from hapax.testing.transaction import MemoryTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from hapax.core.records import TopicPartition
    from hapax.engines.overlapping_calls import SlotCalls
    from hapax.settings import Settings

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


class CallWatch:
    """Cancels coroutines past HAPAX_CALL__TIMEOUT, and names those that hold the event loop."""

    def __init__(self) -> None:
        self._blocking: list[str] = []
        # It ends no process: a thread that hangs keeps its test waiting.
        self._watchdog = Watchdog(
            float("inf"), on_overrun=lambda _call, _s: None, leave=lambda _code: None
        )

    def note(self, record: Record | None) -> None:
        """Remember the record whose coroutine has held the event loop for a second."""
        self._blocking.append("a record" if record is None else str(record.coordinates))

    def start(self, calls: SlotCalls) -> None:
        """Let time count for these calls."""
        self._watchdog.follow(calls.tick)
        self._watchdog.start()

    def warn(self) -> None:
        """Issue a warning for each record that was noted since the last call."""
        noted, self._blocking = self._blocking, []
        for where in noted:
            problem = f"the coroutine of {where} has held the event loop for a second: {BLOCKING}"
            warnings.warn(problem, RuntimeWarning, stacklevel=3)

    def stop(self) -> None:
        """End the thread that counts."""
        self._watchdog.stop()


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
        formats, self.schemas = schemas_of(self.settings.formats, schemas or {})
        self.clock = ManualClock()
        inputs = self.settings.input.topics
        self._policy = replace(retrying(self.settings), backoff_ms=0)
        topic = self._policy.topic
        waits = {} if topic is None else {topic.name: LEVELS}
        self._broker = AnyTopicBroker(
            dict.fromkeys(inputs, PARTITIONS) | waits, inputs=[*inputs, *waits], clock=self.clock
        )
        self._aborts = 0
        self._read: dict[TopicPartition, int] = {}
        self._calls: Counter[Coordinates] = Counter()
        form = formed(transform, self.settings.transform)
        limits = replace(call_limits(self.settings), retrying=self._policy, formats=formats)
        self._watch = CallWatch()
        self._transformer = open_transformer(counted(form, self._calls), limits, self._watch.note)
        self._noted = (
            NotedCalls(self._transformer, lambda record: record)
            if topic is None
            else NotedCalls(
                LaterCalls(self._transformer, self._policy, now_ms=self._now_ms), topic.restored
            )
        )
        name = self.settings.instance
        self._source = MemorySource(self._broker, name, wait=self.clock.wait)
        self._source.held = self._held
        self._transaction = MemoryTransaction(
            self._broker, name, clock=self.clock, faults=self._fault
        )
        self._core = ExactlyOnce(
            self._steps(claims=claims),
            self._source,
            self._transaction,
            clock=self.clock,
            interrupt=Interrupt(),
        )
        self._transaction.open()
        if isinstance(self._transformer, GatheredCalls):
            self._watch.start(self._transformer.calls)

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
        topic = topic or self.settings.input.topics[0]
        offset = self._broker.write(
            topic,
            value,
            key=key,
            partition=partition,
            headers=tuple(headers),
            timestamp_ms=timestamp_ms,
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
        records = 0
        while (batch := self._source.take(self.settings.transaction.records_max, 0.0)).records:
            try:
                result = self._core.run(batch, {}, 1)
            except BatchAbortedError:
                self._source.rewind(batch.first)
                continue
            self._source.mark_processed(result.progress)
            records += result.records - result.moved
        self._watch.warn()
        return self._processed(records)

    def abort_next(self, times: int = 1) -> None:
        """Let the next transactions be aborted, as by a broker's failure.

        Their records are taken again, and business code is not called again: its results are kept.
        The outputs must be the same.
        """
        self._aborts = times

    def close(self) -> None:
        """Tear the transform down. ``with Pipeline(…) as pipeline:`` does so, too."""
        if isinstance(self._transformer, GatheredCalls):
            self._watch.stop()
            self._transformer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wait(self, seconds: float) -> None:
        """Let time pass: until HAPAX_DEDUP__TTL is over, or a later try is due at the next run."""
        self.clock.wait(seconds)

    def _steps(self, *, claims: bool) -> Steps:
        settings = self.settings
        retry = self._policy.topic
        ids, inputs = settings.dedup.id, settings.input.topics
        identity = Identity(ids, inputs=inputs, retry=retry, claimed=claims)
        limits = settings.dead_letter
        return Steps(
            identity=identity,
            claiming=Claiming(
                MemoryClaims(clock=self.clock, ttl_ms=settings.dedup.ttl_ms) if claims else None,
                ClaimOwners(
                    MemoryOwners(self._broker, wait=self.clock.wait),
                    identity,
                    batch_max=settings.transaction.records_max,
                ),
                pass_on_outage=False,
            ),
            transformer=self._noted,
            planner=Planner(
                Destinations(
                    settings.app,
                    settings.output.topic,
                    limits.topic,
                    retry,
                    encoded=settings.output.format != "bytes",
                )
            ),
            dead_letter_rate=DeadLetterRate(
                topic=limits.topic, rate_max=limits.rate_max, records_min=limits.records_min
            ),
            decodes=settings.formats.needs_registry,
        )

    def _fault(self, step: str) -> InjectedFault | None:
        if step != "send_offsets" or not self._aborts:
            return None
        self._aborts -= 1
        return InjectedFault("aborted")

    def _processed(self, records: int) -> Processed:
        written = self._written()
        letters = [dead_letter(record) for record in written]
        noted = self._noted
        return Processed(
            outputs=[record for record, one in zip(written, letters, strict=True) if one is None],
            dead_letters=[one for one in letters if one is not None],
            duplicates=list(noted.duplicates),
            filtered=list(noted.filtered),
            calls=dict(self._calls),
            records=records,
            waiting=self._waiting(),
        )

    def _now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def _held(self, record: Record) -> bool:
        topic = self._policy.topic
        waits = None if topic is None else topic.read(record)
        return waits is not None and waits.until > self._now_ms()

    def _waiting(self) -> dict[Coordinates, float]:
        """Return what is in the retry topic from the committed offsets on."""
        topic, now_ms, found = self._policy.topic, self._now_ms(), {}
        for where, log in self._broker.logs.items():
            if topic is None or where[0] != topic.name:
                continue
            for record in log.fetch(self._broker.committed.get(where, 0), log.end):
                if (waits := topic.read(record)) is not None:
                    found[Coordinates.parse(waits.of)] = (waits.due - now_ms) / 1000
        return found

    def _written(self) -> list[Record]:
        """Return what became visible since the last call."""
        inputs = set(self._broker.inputs)
        found: list[Record] = []
        for where, log in self._broker.logs.items():
            if where not in inputs:
                found += log.fetch(self._read.get(where, 0), log.end)
                self._read[where] = log.end
        return sorted(found, key=lambda record: record.coordinates)
