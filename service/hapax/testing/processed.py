"""What a pipeline in memory notes, and what it returns."""

from __future__ import annotations

import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.call_window import BLOCKING
from hapax.core.errors import ConfigurationError
from hapax.core.transform import form_of, load_form
from hapax.engines.watchdog import Watchdog
from hapax.testing.broker import MemoryBroker, MemoryLog

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.dead_letters import DeadLetter
    from hapax.core.ports import AppliesAll, Interrupt, Message
    from hapax.core.records import Coordinates, Record, TopicPartition
    from hapax.core.transform import Result, TransformForm


class ManualClock:
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
    """

    outputs: list[Record]
    dead_letters: list[DeadLetter]
    duplicates: list[Coordinates]
    filtered: list[Coordinates]
    calls: dict[Coordinates, int]
    records: int
    waiting: dict[Coordinates, float] = {}

    @property
    def retries(self) -> int:
        """Calls of the transform beyond the first of each record."""
        return sum(count - 1 for count in self.calls.values())

    def values(self, topic: str | None = None) -> list[bytes | None]:
        """Return the values of the outputs, of one topic or of all."""
        return [one.value for one in self.outputs if topic in {None, one.topic}]


class AnyTopicBroker(MemoryBroker):
    """A broker that creates a partition when something is written to it."""

    def by_partition(self, messages: Iterable[Message]) -> dict[TopicPartition, list[Message]]:
        """Return messages by partition: the one that they name, else the first."""
        found: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            where = (message.topic, max(0, message.partition))
            self.logs.setdefault(where, MemoryLog(where))
            found.setdefault(where, []).append(message)
        return found


class CallWatch(Watchdog):
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


class NotedCalls:
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

    def apply_all(
        self,
        records: Sequence[Record],
        interrupt: Interrupt,
        fates: dict[int, Result | None],
    ) -> list[Result | None]:
        results = self._inner.apply_all(records, interrupt, fates)
        for record, result in zip(records, results, strict=False):
            if result is None:
                self.duplicates[self._restored(record).coordinates] = None
            elif result == ():
                self.filtered[self._restored(record).coordinates] = None
        return results


def counted(form: TransformForm, calls: Counter[Coordinates]) -> TransformForm:
    """Return the form with its calls counted; those of what a context yields are not."""
    if form.context:
        return form

    def count(given: Record | list[Record]) -> None:
        calls.update(
            record.coordinates for record in (given if isinstance(given, list) else [given])
        )

    @wraps(form.function)
    def called(given: Any) -> Any:
        count(given)
        return form.function(given)

    async def awaited(given: Any) -> Any:
        count(given)
        return await form.function(given)

    return msgspec.structs.replace(form, function=awaited if form.asynchronous else called)


def formed(transform: Callable[..., Any] | None, name: str | None) -> TransformForm:
    if transform is None:
        return load_form(name)
    try:
        return form_of(transform)
    except ValueError as error:
        named = getattr(transform, "__name__", repr(transform))
        raise ConfigurationError([f"{named} {error}"]) from error
