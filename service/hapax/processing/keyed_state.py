"""Keyed state in the transaction of the outputs, and what makes it sound.

A value is looked up in three layers, of which a call writes the first:

call   its own changes; they are dropped when the call fails
batch  what the calls before it have changed; dropped when the transaction is aborted
store  what committed transactions have changed, and nothing else

The changes of a batch are messages of its transaction, to the changelog: a compacted topic with as
many partitions as the input. The store takes them when the commit is known, so it never has what
Kafka may not have; what it lacks is in the changelog (KIP-892 brought the same to Kafka Streams
4.4). Before a batch is called, the store must be where the group is: ``begin``.

Inputs that are several share the state of a partition number: it is sure of all or of none of them.
After an abort every record of the batch is called again, for what it saw may be undone.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from hapax.core.errors import StateUnreadError
from hapax.core.headers import APP, SOURCE
from hapax.core.offset_commit import require_assigned
from hapax.core.records import Message
from hapax.processing.plan import BatchState
from hapax.processing.state import Answered, State, Stated, changelog_key, decode, due_ms, prefix_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax.core.headers import Wire
    from hapax.core.ports import Source
    from hapax.core.record_path import Batch, Plan
    from hapax.core.records import Progress, Record, TopicPartition
    from hapax.core.results import Result
    from hapax.processing.state import Changes
    from hapax.processing.transform import TransformForm

EXPIRED_MIN: Final = 100
"""So many entries that have expired are deleted with a batch, or as many as it has records."""
ENTRY_BYTES_MAX: Final = 1 << 20
"""Of key and value of an entry, where no topic says how much it takes."""

_AT_HAND: ContextVar[Any] = ContextVar("state")
"""State of the record, or of each of the records, that business code has in this call."""


class StateStore(Protocol):
    """What is committed, by entry, and for each input partition how far. One thread only."""

    def get(self, entry: bytes) -> bytes | None:
        """Return the value of an entry; None: there is none. From any thread."""

    def entries(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return all entries of one key."""

    def position(self, where: TopicPartition) -> int | None:
        """Return up to which offset of an input partition it has come; None: it is not known."""

    def source(self, where: TopicPartition) -> int:
        """Return the highest offset of a record that has changed something; -1: none is known."""

    def due(self, partition: int, until_ms: int, most: int) -> list[bytes]:
        """Return entries of a partition that have expired by then, the first ones first."""

    def apply(
        self, changes: Mapping[bytes, bytes | None], progress: Progress, newest: Progress
    ) -> None:
        """Take what a committed transaction has changed, and how far it has come.

        ``newest``: by partition, the highest offset of a record that has changed something.
        """


class MemoryState:
    """A ``StateStore`` without a disk: of tests, and of a process that was given some entries."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.progress: Progress = {}
        self.newest: Progress = {}

    def get(self, entry: bytes) -> bytes | None:
        return self.values.get(entry)

    def entries(self, prefix: bytes) -> dict[bytes, bytes]:
        return {at: value for at, value in self.values.items() if at.startswith(prefix)}

    def position(self, where: TopicPartition) -> int | None:
        return self.progress.get(where)

    def source(self, where: TopicPartition) -> int:
        return self.newest.get(where, -1)

    def due(self, partition: int, until_ms: int, most: int) -> list[bytes]:
        head = prefix_of(partition, b"")[:4]
        found = ((due_ms(value), at) for at, value in self.values.items() if at.startswith(head))
        return [at for due, at in sorted((d, at) for d, at in found if d and d <= until_ms)][:most]

    def apply(
        self, changes: Mapping[bytes, bytes | None], progress: Progress, newest: Progress
    ) -> None:
        self.progress |= progress
        self.newest |= newest
        for entry, value in changes.items():
            if value is None:
                self.values.pop(entry, None)
            else:
                self.values[entry] = value


def changes_of(result: object) -> Changes | None:
    """Return what a call with this result has changed; None: its transform keeps no state."""
    return result.changes if isinstance(result, Stated) else None


class KeyedState(BatchState):
    """State for the calls of one process. One thread, but for the calls themselves."""

    calls_again = True

    def __init__(
        self,
        store: StateStore,
        topic: str,
        announce: Callable[[dict[int, int]], object] = lambda _ends: None,
        *,
        app: str = "",
        inputs: Sequence[str] = (),
        bytes_max: int = ENTRY_BYTES_MAX,
        now_ms: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """``topic``: the changelog, of ``app`` alone. ``inputs``: topics that share their state.

        ``announce``: hears before it is sent which message of a plan is the last of a partition of
        the changelog: partitions by index. ``bytes_max``: largest key and value of an entry.
        ``now_ms``: Unix time; without it only records say what has expired.
        """
        self._app = app.encode()
        self._inputs = inputs if len(inputs) > 1 else ()
        self._bytes_max = bytes_max
        self._now_ms = now_ms
        self._store = store
        self._topic = topic
        self._announce = announce
        self._batch: Changes = {}
        self._planned: Changes = {}
        self._newest: Progress = {}
        self._sure: set[TopicPartition] = set()
        """Partitions in which the store is where the group is."""
        self._in_work: set[TopicPartition] = set()
        """Those of a transaction that is not known to be committed."""
        self._times_ms: dict[int, int] = {}
        """Newest timestamps of records whose calls had their effect, by partition."""
        self._planned_ms: dict[int, int] = {}
        self._decode: Callable[[bytes], Any] = decode

    def bound(
        self, form: TransformForm, around: Callable[[TransformForm], TransformForm]
    ) -> TransformForm:
        """Return a form of records alone; ``around``: brings data, context and formats.

        Calls may overlap, but not those of one key. Records without a key raise Poison.
        """
        function = form.function
        if form.state_type is not Any:
            self._decode = msgspec.msgpack.Decoder(form.state_type).decode

        @wraps(function)
        def given(records: Any) -> Any:
            return function(records, _AT_HAND.get())

        inner = around(replace(form, function=given)).function
        open_: Callable[[Any], Any] = self._open_all if form.lists else self._open
        answered: Callable[[Any, Any], object]
        answered = self._all_answered if form.lists else self._answered

        def called(records: Any) -> object:
            _AT_HAND.set(state := open_(records))
            return answered(inner(records), state)

        async def awaited(records: Any) -> object:
            _AT_HAND.set(state := open_(records))
            return answered(await inner(records), state)

        return replace(form, function=awaited if form.asynchronous else called)

    def _open(self, record: Record) -> State[Any]:
        return State(record, self._batch, self._store.get, self._decode)

    def _open_all(self, records: list[Record]) -> list[State[Any]]:
        return list(map(self._open, records))

    def _answered(self, answer: object, state: State[Any]) -> object:
        return Answered(answer, state, self._bytes_max)

    def _all_answered(self, answers: Any, states: list[State[Any]]) -> Any:
        """Return what is no answer for each record as it is: it is refused as a whole."""
        if not isinstance(answers, list | tuple) or len(answers) != len(states):
            return answers
        return [
            answer if isinstance(answer, BaseException) else self._answered(answer, state)
            for answer, state in zip(answers, states, strict=True)
        ]

    def entries(self, record: Record) -> Changes:
        """Return the state of a record's key, for a call in another process."""
        if record.key is None:
            return {}
        prefix = prefix_of(record.partition, record.key)
        known: Changes = {**self._store.entries(prefix)}
        known |= {at: value for at, value in self._batch.items() if at.startswith(prefix)}
        return {entry: value for entry, value in known.items() if value is not None}

    def take(self, record: Record, result: Result, changes: Changes | None) -> Result:
        """Return the result of such a call, with what it has changed."""
        if changes is None or not isinstance(result, tuple):
            return result
        stated = Stated(result)
        stated.changes, stated.at_ms = changes, record.timestamp_ms
        self._batch.update(changes)
        return stated

    def begin(self, batch: Batch, processed: Callable[[], Progress]) -> None:
        self.clear()
        done = processed()
        unread: Progress = {}
        for where, first in batch.first.items():
            if where in self._sure:
                continue
            at = None if self._inputs else self._store.position(where)
            # Between what is committed and the first record there may be markers, and no record.
            if at is not None and done.get(where, first) <= at <= first:
                self._sure.add(where)
            else:
                unread[where] = first
        if unread:
            raise StateUnreadError(unread)

    def put_back(self) -> None:
        self._sure |= self._in_work
        self._in_work = set()

    def unread(self, places: Progress) -> Progress:
        """Return those of the places at which the store is not; of the others it is sure."""
        wrong = {where for where, at in places.items() if self._store.position(where) != at}
        unread = {at: places[at] for at in self.together(wrong) if at in places}
        self._sure.update(places.keys() - unread.keys())
        self.forget(unread)
        return unread

    def together(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return these and all that share their state."""
        if not self._inputs:
            return {*partitions}
        return {(topic, number) for _topic, number in partitions for topic in self._inputs}

    def clear(self) -> None:
        """Forget what calls have changed; one that was given up may still write into the old."""
        self._batch = {}
        self._in_work = set()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Look again where the store is: another member may have come further meanwhile."""
        self._sure -= self.together(partitions)

    def plan(self, plan: Plan, batch: Batch, results: Sequence[Result | None]) -> None:
        place = batch.places()
        planned: Changes = {}
        of: dict[bytes, tuple[int, tuple[str, int, int]]] = {}
        last: dict[int, int] = {}
        self._newest = {}
        self._planned_ms = times_ms = {**self._times_ms}
        for index, result in enumerate(results):
            if type(result) is Stated:
                topic, partition, offset = where = place(index)
                last[partition] = index
                if result.at_ms > times_ms.get(partition, 0):
                    times_ms[partition] = result.at_ms
                if changes := result.changes:  # also where another input changes the same after it
                    self._newest[(topic, partition)] = offset
                    planned.update(changes)
                    for entry in changes:
                        of[entry] = index, where
        for entry, index in self._expired(last, len(results)):
            if entry not in planned:
                topic, partition, offset = where = place(index)
                planned[entry], of[entry] = None, (index, where)
                self._newest[(topic, partition)] = offset
        messages: list[Message] = []
        first, ends = len(plan.sources), dict[int, int]()
        for entry, (_index, (topic, partition, offset)) in of.items():
            ends[partition] = first + len(messages)
            source: Wire = [(SOURCE, f"{topic}/{partition}/{offset}".encode())]
            value, key = planned[entry], changelog_key(entry)
            messages.append(Message(self._topic, value, key, partition, None, source))
        for number, index in ends.items():
            self._sign(number, messages[index - first])
        self._announce({index: partition for partition, index in ends.items()})
        plan.add(messages, [index for index, _where in of.values()])
        self._planned = planned
        self._in_work = self._sure & self.together(plan.progress)
        self._sure -= self._in_work

    def _sign(self, number: int, last: Message) -> None:
        """Name in the last change the app, and what has changed it of each of several inputs.

        Compaction keeps that change, or the last one of a later batch.
        """
        own = last.headers[-1]
        headers: Wire = [(APP, self._app)] * bool(self._app)
        for where in sorted(self.together([("", number)])) if self._inputs else ():
            offset = self._newest.get(where, self._store.source(where))
            header = SOURCE, f"{where[0]}/{number}/{offset}".encode()
            if offset >= 0 and header != own:
                headers.append(header)
        last.headers[:] = [*headers, own]

    def _expired(self, last: Mapping[int, int], most: int) -> Iterator[tuple[bytes, int]]:
        """Yield entries that have expired, each with the ``last`` record of its partition.

        By the newest record of the partition that was called, but not before their time by the
        clock: one record from the future must not delete what others need. Some with each batch.
        What the batch has changed is newer than what the store says of it.
        """
        for partition, index in last.items():
            until_ms = int(min(self._planned_ms.get(partition, 0), self._now_ms()))
            for entry in self._store.due(partition, until_ms, max(EXPIRED_MIN, most)):
                yield entry, index

    def require_whole(self, progress: Progress, source: Source) -> None:
        whole = self.together(progress)
        if not whole <= progress.keys():
            require_assigned(whole, source.assignment())

    def settle(self, progress: Progress) -> None:
        planned, self._planned = self._planned, {}
        done = {where: at for where, at in progress.items() if where in self._in_work}
        self._store.apply(planned, done, self._newest)
        self._times_ms = self._planned_ms
        self._sure |= self._in_work
        self.clear()

    def move(self, progress: Progress) -> None:
        if known := {where: at for where, at in progress.items() if where in self._sure}:
            self._store.apply({}, known, {})
