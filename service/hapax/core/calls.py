"""Calls of the transform alongside each other: what one call is, and in which order calls begin.

Records of one key are called one at a time, in input order; keys overlap. Records without a key
have no order among each other. Who makes the calls (an event loop, threads) implements ``Calls``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from hapax.core.errors import Poison
from hapax.core.formats import BYTES, FormatOptions
from hapax.core.retry_later import Retrying  # noqa: TC001 - msgspec decodes it
from hapax.core.transform import FINAL, NOT_LATER, ended, outputs_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from hapax.core.records import Record
    from hapax.core.transform import Result

CallOrder = Literal["key", "none"]
TIMEOUT: Final = "timeout"
"""Reason of the dead letter of a call that was cancelled."""
BLOCKING: Final = (
    "a coroutine must await whatever waits; run what blocks or computes in a thread"
    " (asyncio.to_thread), or write a plain function"
)
"""What to do about a coroutine that holds the event loop."""


class CallLimits(msgspec.Struct, frozen=True):
    """How calls are made.

    concurrency   most calls at once
    order         ``key``: of one key one at a time; ``none``: all overlap
    records_max   longest list that a list function is given
    timeout_s     longest call; None: any
    attempts_max, retrying  what follows a call that raises
    formats       how values are decoded before a call, and encoded after it
    """

    concurrency: int = 1
    order: CallOrder = "key"
    records_max: int = 256
    timeout_s: float | None = None
    attempts_max: int = 3
    retrying: Retrying = NOT_LATER
    formats: FormatOptions = BYTES

    def given(self, call: Call) -> Record:
        """Return the record as business code sees it: one that has waited, as it first came."""
        topic = self.retrying.topic
        return call.record if topic is None else topic.restored(call.record)


class Call:
    """One record on its way through step 4.

    result    what the call came to; PENDING until then. Set once, by the implementation of Calls
    fate      what was decided without a call, as of a duplicate; PENDING: nothing was. Decided
              again when the record is read again, because its claim is asked for again
    attempts  that have failed
    started   it was handed to who makes it
    dropped   its result is not wanted any more
    taken_over  its claim belonged to a record that is gone
    """

    __slots__ = (
        "attempts",
        "dropped",
        "fate",
        "id",
        "key",
        "record",
        "result",
        "started",
        "taken_over",
        "unchecked",
    )

    def __init__(self, record: Record, event_id: bytes, key: Hashable, *, unchecked: bool) -> None:
        self.record = record
        self.id = event_id
        self.key = key
        self.unchecked = unchecked
        self.result: Result | Pending | None = PENDING
        self.fate: Result | Pending | None = PENDING
        self.attempts = 0
        self.started = self.dropped = self.taken_over = False

    @property
    def done(self) -> bool:
        """Whether it has an outcome."""
        return self.result is not PENDING or self.fate is not PENDING

    @property
    def outcome(self) -> Result | None:
        """What becomes of the record, once it is done."""
        known = self.result if self.fate is PENDING else self.fate
        assert not isinstance(known, Pending)
        return known


def key_of(record: Record) -> Hashable:
    """Return what orders the calls of a record: its key in its partition; None: nothing does."""
    return None if record.key is None else (record.topic, record.partition, record.key)


class Pending:
    """The type of PENDING."""


PENDING: Final = Pending()
"""The result of a call that has none yet: None is the result of a duplicate."""

Unit = list[Call]
"""What is called at once: one call, or those of one list."""


class CallQueue:
    """Calls that wait, in the order in which they may begin. Not safe for threads by itself."""

    def __init__(self, order: CallOrder, records_max: int) -> None:
        """Take the longest unit; 1 for functions of one record."""
        self._ordered = order == "key"
        self._records_max = records_max
        self._ready: deque[Call] = deque()
        self._chains: dict[Hashable, deque[Call] | None] = {}
        """By key that is ready or in a call: the calls after it."""

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, calls: Iterable[Call]) -> None:
        """Append calls in input order."""
        for call in calls:
            key = call.key
            if key is None or not self._ordered:
                self._ready.append(call)
            elif key not in self._chains:
                self._chains[key] = None
                self._ready.append(call)
            elif (chain := self._chains[key]) is None:
                self._chains[key] = deque((call,))
            else:
                chain.append(call)

    def take(self) -> Unit:
        """Return what may be called next, dropped calls left out; empty: nothing may."""
        unit: Unit = []
        while self._ready and len(unit) < self._records_max:
            call = self._ready.popleft()
            if call.dropped:
                self._next(call)
                continue
            unit.append(call)
            self._follow(call, unit)
        return unit

    def _follow(self, call: Call, unit: Unit) -> None:
        """Let the calls after one of the same key join its list: their order is the list's."""
        chain = self._chains.get(call.key) if self._ordered and call.key is not None else None
        while chain and len(unit) < self._records_max:
            later = chain.popleft()
            if not later.dropped:
                unit.append(later)

    def done(self, unit: Unit) -> None:
        """Let the next of each key begin: these have ended for good."""
        if not self._ordered:
            return
        for call in {call.key: call for call in unit}.values() if len(unit) > 1 else unit:
            self._next(call)

    def _next(self, call: Call) -> None:
        key = call.key
        if key is None or not self._ordered:
            return
        chain = self._chains.get(key)
        if chain:
            self._ready.appendleft(chain.popleft())  # it is older than whatever waits
        else:
            self._chains.pop(key, None)


def settle(unit: Unit, answer: object, limits: CallLimits, *, lists: bool) -> list[Unit]:
    """Give the calls of a unit their results, from what business code answered.

    Return what is to be called again. An exception in the place of an answer fails that record
    alone; a list of another length fails the unit.
    """
    if not lists:
        return _settle_one(unit[0], answer, limits)
    if not isinstance(answer, list | tuple) or len(answer) != len(unit):
        got = f"{len(answer)}" if isinstance(answer, list | tuple) else type(answer).__name__
        problem = f"a function of {len(unit)} records returns a list of as many answers, not {got}"
        return fail(unit, Poison(problem), limits)
    again: list[Unit] = []
    for call, one in zip(unit, answer, strict=True):
        again += _settle_one(call, one, limits)
    return again


def _settle_one(call: Call, answer: object, limits: CallLimits) -> list[Unit]:
    if isinstance(answer, BaseException):
        return fail([call], answer, limits)
    try:
        call.result = outputs_of(answer)  # type: ignore[arg-type] # what it is, is judged there
    except BaseException as error:  # noqa: BLE001 - whatever business code answers or raises
        return fail([call], error, limits)
    return []


def fail(unit: Unit, error: BaseException, limits: CallLimits) -> list[Unit]:
    """Take note that a unit failed; return what is to be called again.

    A list is halved until the culprit is alone. One record is tried again, up to its attempts;
    Poison, a wish for a later try and a call that was cancelled are final.
    """
    if len(unit) > 1:
        half = len(unit) // 2
        return [unit[:half], unit[half:]]
    (call,) = unit
    call.attempts += 1
    final = isinstance(error, (*FINAL, CallTimeoutError))
    if not final and call.attempts < limits.attempts_max:
        return [unit]
    reason = TIMEOUT if isinstance(error, CallTimeoutError) else None
    call.result = ended(error, call.attempts, limits.retrying, reason)
    return []


class CallTimeoutError(TimeoutError):
    """A call took longer than HAPAX_CALL__TIMEOUT and was cancelled."""


class Calls(Protocol):
    """Makes calls alongside each other. One thread starts and drops; others may make them."""

    @property
    def in_flight(self) -> int:
        """How many calls are being made."""

    def begun(self) -> set[Call]:
        """Return the calls that are being made."""

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, in their order, as soon as limits allow."""

    def wait(self, seconds: float) -> None:
        """Return when a call has ended since the last wait, or when the time is up."""

    def drop(self, calls: Sequence[Call]) -> None:
        """Give calls up: what has not begun never does, coroutines are cancelled."""

    def close(self) -> None:
        """Give everything up, and tear the transform down."""
