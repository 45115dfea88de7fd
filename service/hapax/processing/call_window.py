"""Calls of the transform: what an attempt, a pause and a call are, and in which order calls begin.

attempt  business code has a record, or a list of them: from when the function is called until it
         has answered. What an answer yields belongs to it. HAPAX_CALL__TIMEOUT limits one attempt
pause    between two attempts at a record: business code has it not, so no limit counts it
call     the attempts at a record and the pauses between them, until it has its result

To blame is the record whose attempt outlasts its limit, or in whose attempt a process of its own
dies. While a coroutine holds the event loop time passes for it alone: others only wait for it.
Every form obeys, and every place: worker, tasks of Spark, the process for isolated calls.
The table of docs/transforms.md has what follows.

Records of one key are called one at a time, in input order; keys overlap. Records without a key
have no order among each other. An event loop or threads make the calls.

Records enter the ``Window`` per partition in input order and leave it as the finished prefix of
their partition: no offset is beyond an unfinished record. Results are kept by coordinates: after an
abort the same records are read again and meet them, and no function is called twice.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from hapax.core.errors import Poison
from hapax.core.formats import BYTES, FormatOptions
from hapax.core.record_path import Batch, Identified
from hapax.core.records import size_of
from hapax.core.results import Undecided
from hapax.processing.batch_result import Begun
from hapax.processing.deduplicate import Claimed
from hapax.processing.retry_later import Retrying  # noqa: TC001 - msgspec decodes it
from hapax.processing.transform import FINAL, NOT_LATER, OUTPUT_BYTES_MAX, ended, sized_outputs

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from hapax.core.records import Progress, Record, TopicPartition
    from hapax.core.results import Result

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
    timeout_s     longest attempt; None: any
    attempts_max, retrying  what follows a call that raises
    output_bytes_max  largest outputs of one record
    formats       how values are decoded before a call, and encoded after it
    """

    concurrency: int = 1
    order: CallOrder = "key"
    records_max: int = 256
    timeout_s: float | None = None
    attempts_max: int = 3
    retrying: Retrying = NOT_LATER
    output_bytes_max: int = OUTPUT_BYTES_MAX
    formats: FormatOptions = BYTES

    def given(self, call: Call) -> Record:
        """Return the record as business code sees it: one that has waited, as it first came."""
        topic = self.retrying.topic
        return call.record if topic is None else topic.restored(call.record)


class Pending:
    """The type of PENDING."""


PENDING: Final = Pending()
"""The result of a call that has none yet: None is the result of a duplicate."""


class Call(msgspec.Struct, eq=False):
    """One record on its way through step 4.

    result    what the call came to; PENDING until then. Set once, by who makes it
    preset    what was decided without a call, as of a duplicate; PENDING: nothing was. Decided
              again when the record is read again, because its claim is asked for again
    attempts  that have failed
    started   it was handed to who makes it
    dropped   its result is not wanted any more
    taken_over  its claim belonged to a record that is gone
    room      where its bytes are counted while it is ``inside`` a window; None: nowhere
    first     of its partition in the window: all results after it wait for its own
    size      bytes of its record, and of its outputs when it has them
    """

    record: Record
    id: bytes
    key: Hashable
    unchecked: bool
    result: Result | Pending | None = PENDING
    preset: Result | Pending | None = PENDING
    attempts: int = 0
    started: bool = False
    dropped: bool = False
    taken_over: bool = False
    room: Room | None = None
    inside: bool = False
    first: bool = False
    size: int = 0
    where: TopicPartition = ("", 0)

    def __post_init__(self) -> None:
        self.where = (self.record.topic, self.record.partition)
        self.size = size_of(self.record)

    @property
    def done(self) -> bool:
        return self.result is not PENDING or self.preset is not PENDING

    def answer(self, result: Result | None, size: int = 0) -> None:
        """Take the result and the bytes of its outputs, on whatever thread they came."""
        if self.room is not None and size:
            self.room.count(self, more=size)
        self.result = result

    @property
    def outcome(self) -> Result | None:
        known = self.result if self.preset is PENDING else self.preset
        assert not isinstance(known, Pending)
        return known


def key_of(record: Record) -> Hashable:
    """Return what orders the calls of a record: its key in its partition; None: nothing does."""
    return None if record.key is None else (record.topic, record.partition, record.key)


class Room:
    """Bytes of the records and outputs in a window, in all and by partition. For any thread.

    share  what a partition may hold while more than half of ``bytes_max`` is taken
    most   beyond it only a call begins for which its partition's results wait
    """

    LESS = 0.99
    """Of the largest outputs of a call that are expected, with each call that has less."""

    def __init__(self) -> None:
        self.bytes_max = self.share = self.most = 1 << 62
        self.bytes = 0
        self._largest = 0.0
        self.of: dict[TopicPartition, int] = defaultdict(int)
        self._lock = threading.Lock()

    def full(self, where: TopicPartition) -> bool:
        return 2 * self.bytes >= self.bytes_max and self.of[where] >= self.share

    def over(self, begun: int) -> bool:
        """Whether one more call, with those that have begun, may bring more than there is room."""
        expected = self._largest * (begun + 1) if begun else 0
        return self.bytes + expected > self.most

    def count(self, call: Call, *, more: int = 0, inside: bool | None = None) -> None:
        """Take note that a call has grown, or is inside from here on, or no longer."""
        with self._lock:
            before = call.size if call.inside else 0
            call.size += more
            if more:
                self._largest = max(more, self.LESS * self._largest)
            call.inside = call.inside if inside is None else inside
            change = (call.size if call.inside else 0) - before
            self.bytes += change
            self.of[call.where] += change


Unit = list[Call]
"""What is called at once: one call, or those of one list."""


class CallQueue:
    """Calls that wait, in the order in which they may begin. Not safe for threads by itself."""

    def __init__(self, order: CallOrder, records_max: int, *, unique: bool = False) -> None:
        """``records_max``: longest unit; 1 for functions of one record. ``unique``: in keys."""
        self._ordered = order == "key"
        self._unique = unique
        self._records_max = records_max
        self._ready: deque[Call] = deque()
        self._chains: dict[Hashable, deque[Call] | None] = {}
        """By key that is ready or in a call: the calls after it."""
        self.aside: dict[TopicPartition, deque[Call]] = {}
        """Of partitions that hold their share of the room: they have one call at a time."""
        self._begun: dict[TopicPartition, int] = defaultdict(int)
        self._running = 0

    def __len__(self) -> int:
        return len(self._ready) + len(self.aside)

    def clear(self) -> None:
        self._ready.clear()
        self.aside.clear()

    def add(self, calls: Iterable[Call]) -> None:
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
        while len(unit) < self._records_max and (call := self._first()) is not None:
            if call.dropped:
                self._next(call)
                continue
            at = len(unit)
            unit.append(call)
            self._follow(call, unit)
            for each in unit[at:]:
                self._begun[each.where] += 1
            self._running += len(unit) - at
        return unit

    def _first(self) -> Call | None:
        """Return the next call for whose outputs there is room.

        What is aside continues in its order, so the call that the others of its partition wait for
        is never kept from its turn.
        """
        for where, aside in self.aside.items():
            room, at = aside[0].room, 0
            if room is not None and room.over(self._running):
                at = next((at for at, call in enumerate(aside) if call.first), 0)
            call = aside[at]
            if call.dropped or not self._kept(call):
                del aside[at]
                if not aside:
                    del self.aside[where]
                return call
        while self._ready:
            call = self._ready.popleft()
            if not ((call.where in self.aside and not call.first) or self._kept(call)):
                return call
            self.aside.setdefault(call.where, deque()).append(call)
        return None

    def _kept(self, call: Call) -> bool:
        room = call.room
        if room is None:
            return False
        if not call.first and room.over(self._running):
            return True
        return room.full(call.where) and self._begun[call.where] > 0

    def _follow(self, call: Call, unit: Unit) -> None:
        """Let the calls after one of the same key join its list: their order is the list's."""
        joins = self._ordered and not self._unique and call.key is not None
        chain = self._chains.get(call.key) if joins else None
        while chain and len(unit) < self._records_max:
            later = chain.popleft()
            if not later.dropped:
                unit.append(later)

    def done(self, unit: Unit) -> None:
        """Let the next of each key begin: these have ended for good."""
        for call in unit:
            self._begun[call.where] -= 1
        self._running -= len(unit)
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
            later = chain.popleft()  # it is older than whatever waits
            self.aside.get(later.where, self._ready).appendleft(later)
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
        call.answer(*sized_outputs(answer, limits.output_bytes_max))
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
    call.answer(ended(error, call.attempts, limits.retrying, reason))
    return []


class CallTimeoutError(TimeoutError):
    """A call took longer than HAPAX_CALL__TIMEOUT and was cancelled."""


class Slot(msgspec.Struct, eq=False):
    """One of so many calls at once: a unit, and what of it is still to be called, last first.

    task     what can be cancelled
    resting  no attempt is made: before the first one, and in pauses
    ticks    of the watchdog since the present attempt has begun
    late     that attempt has outlasted its limit
    """

    unit: Unit
    pieces: list[Unit] = []
    task: object = None
    ticks: int = 0
    late: bool = False
    resting: bool = True

    def __post_init__(self) -> None:
        self.pieces = [self.unit]

    @property
    def record(self) -> Record | None:
        """The first record of the attempt, as another thread sees it."""
        pieces = self.pieces[-1:]  # at once: they may be gone after a look
        return pieces[0][0].record if pieces else None

    @property
    def dropped(self) -> bool:
        """Whether none of its results is wanted any more."""
        return all(call.dropped for call in self.unit)

    def begin(self) -> None:
        self.ticks, self.late, self.resting = 0, False, False

    def answered(self, answer: object, limits: CallLimits, *, lists: bool) -> int:
        """Give results; return how many attempts the next piece has had, 0 for a new one."""
        return self._again(settle(self.pieces[-1], answer, limits, lists=lists))

    def failed(self, error: BaseException, limits: CallLimits) -> int:
        """Take note of what an attempt has raised; the rest as in ``answered``."""
        return self._again(fail(self.pieces[-1], error, limits))

    def _again(self, pieces: list[Unit]) -> int:
        self.resting, self.ticks = True, 0
        self.pieces.pop()
        self.pieces += reversed(pieces)
        return max((piece[0].attempts for piece in pieces), default=0)


class Window:
    """Calls by partition, in input order. One thread only; results may come from others."""

    def __init__(self) -> None:
        self._lines: dict[TopicPartition, deque[Call]] = {}
        self._kept: dict[TopicPartition, dict[int, Call]] = {}
        """Calls whose records were put back, by offset: they are read again."""
        self._ends: Progress = {}
        self.records = 0
        self.room = Room()

    def depth(self, where: TopicPartition) -> int:
        return len(self._lines.get(where, ()))

    def firsts(self) -> Progress:
        return {where: line[0].record.offset for where, line in self._lines.items()}

    def partitions(self) -> list[TopicPartition]:
        return list(self._lines)

    def admit(self, batch: Batch, begun: Begun) -> list[Call]:
        """Return the calls to make: none for duplicates and records without a readable id."""
        assert begun.claimed is not None
        preset, unchecked = begun.preset, begun.claimed.unchecked
        taken_over = begun.claimed.taken_over
        new: list[Call] = []
        for index, record in enumerate(batch.records):
            where = (record.topic, record.partition)
            call = self._known(where, record)
            if call is None:
                call = Call(record, begun.found.ids[index], key_of(record), unchecked=unchecked)
            call.unchecked = unchecked
            call.taken_over |= index in taken_over
            call.preset = preset.get(index, PENDING)
            line = self._lines.setdefault(where, deque())
            call.first = not line
            line.append(call)
            if not (call.started or call.done):
                new.append(call)
            self.records += 1
            call.room = self.room
            call.room.count(call, inside=True)
        self._ends.update(batch.next)
        return new

    def ready(self, records_max: int) -> tuple[Batch, Begun] | None:
        """Return finished prefixes; they stay inside until ``settle`` or ``put_back``."""
        records: list[Record] = []
        begun = Begun(Identified([], [], {}, {}), None, {"identify": 0.0}, results=[])
        batch = Batch(records, {}, {})
        unchecked, size = None, 0
        taken_over: list[int] = []
        for where, line in self._lines.items():
            for count, call in enumerate(line):
                if not call.done or len(records) >= records_max or size > self.room.most:
                    break
                if unchecked is None:
                    unchecked = call.unchecked
                elif unchecked != call.unchecked:
                    break
                if call.taken_over:
                    taken_over.append(len(records))
                size += call.size
                records.append(call.record)
                begun.add(call.id, call.outcome)
                last = count + 1 == len(line)
                batch.first.setdefault(where, call.record.offset)
                after = call.record.offset + 1
                batch.next[where] = self._ends.get(where, after) if last else after
        if not records:
            return None
        batch.next.update(self.loose_ends())
        begun.claimed = Claimed(
            {}, checked=not unchecked, unchecked=bool(unchecked), taken_over=taken_over
        )
        return batch, begun

    def hand_over_ends(self) -> Progress:
        loose = self.loose_ends()
        for where in loose:
            del self._ends[where]
        return loose

    def loose_ends(self) -> Progress:
        return {where: end for where, end in self._ends.items() if where not in self._lines}

    def settle(self, progress: Mapping[TopicPartition, int]) -> None:
        """Let go of what lies below these offsets: it has had its effect."""
        for where, offset in progress.items():
            line = self._lines.get(where)
            while line and line[0].record.offset < offset:
                self._leave(line.popleft())
            if line:
                line[0].first = True
            else:
                self._lines.pop(where, None)
                if self._ends.get(where, offset + 1) <= offset:
                    del self._ends[where]
            kept = {at: call for at, call in self._kept.pop(where, {}).items() if at >= offset}
            if kept:
                self._kept[where] = kept

    def put_back(self) -> Progress:
        """Take everything out but the calls, which continue; return where to read again."""
        first = self.firsts()
        for where, line in self._lines.items():
            for one in line:
                self._leave(one)
            kept = {one.record.offset: one for one in line if not isinstance(one.result, Undecided)}
            self._kept.setdefault(where, {}).update(kept)
        self._lines, self._ends = {}, {}
        return first

    def forget(self, partitions: Collection[TopicPartition]) -> list[Call]:
        """Drop partitions that left; return their calls, whose results are not wanted."""
        gone: list[Call] = []
        for where in partitions:
            line = self._lines.pop(where, deque())
            self._ends.pop(where, None)
            for call in line:
                self._leave(call)
            gone += line
            gone += self._kept.pop(where, {}).values()
        return gone

    def cut(self, begun: Collection[Call]) -> None:
        """Leave out what is neither finished nor among ``begun``, and all after it."""
        for where, line in list(self._lines.items()):
            keep = next(
                (at for at, call in enumerate(line) if not call.done and call not in begun),
                len(line),
            )
            if keep < len(line):
                self._ends[where] = line[keep].record.offset
            while len(line) > keep:
                call = line.pop()
                call.dropped = True
                self._leave(call)
            if not line:
                del self._lines[where], self._ends[where]

    def _leave(self, call: Call) -> None:
        self.records -= 1
        self.room.count(call, inside=False)

    def _known(self, where: TopicPartition, record: Record) -> Call | None:
        """Return the call of a record that was put back, if this is the very record."""
        kept = self._kept.get(where)
        if not kept:
            return None
        call = kept.pop(record.offset, None)
        if not kept:
            del self._kept[where]
        return call if call is not None and call.record == record else None
