"""The ports Source and Transaction in memory, for tests and the simulator, and their faults.

Faults come from a function that is asked at every step. Errors are those that the real adapters
raise there: nothing of the batch visible before the commit, an open outcome from the commit on.
The transaction rolls back, or leaves open, exactly what the real adapter does at each step, so that
a schedule of faults that this one can play is one that Kafka can play too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Literal, NoReturn

import msgspec

from hapax.core.errors import BatchAbortedError, MemberFencedError, ProducerDeadError
from hapax.core.offset_commit import (
    CommittedMetadata,
    GroupOffset,
    Mark,
    Marks,
    OffsetCommit,
    require_assigned,
)
from hapax.core.ports import IN_DOUBT, Changes, Clock, Stuck, Why
from hapax.core.record_path import Batch
from hapax.processing.crash_markers import marked
from hapax.testing.broker import OFFSETS, InvalidTransactionStateError, MemoryBroker

if TYPE_CHECKING:
    from hapax.core.records import Message, Progress, Record, TopicPartition
    from hapax.testing.broker import MemoryBroker

ANSWER_TIMEOUT_S = 5.0


class InjectedFault(msgspec.Struct, frozen=True):
    """What goes wrong at one step.

    error  ``aborted``, ``dead``, ``fenced``, or None: the call succeeds. A source knows no dead
           producer: there, ``fenced`` is the member and everything else is no answer
    after  whether the step has its effect before the error is raised
    doubt  whether a copy of the request stays under way (send_offsets, commit and abort)
    """

    error: Literal["aborted", "dead", "fenced"] | None = None
    after: bool = False
    doubt: bool = False


Faults = Callable[[str], InjectedFault | None]
"""Asked with the name of a step each time it is reached; may raise what ends the process."""


def no_faults(_step: str) -> InjectedFault | None:
    return None


class MemorySource:
    """The Source port as one member of the broker's group. ``wait`` spends idle seconds.

    held  whether a record has not waited long enough: nothing from it on is handed out
    """

    def __init__(
        self,
        broker: MemoryBroker,
        name: str,
        *,
        wait: Callable[[float], object],
        faults: Faults = no_faults,
    ) -> None:
        self._reasons: set[tuple[TopicPartition, Why]] = set()
        self.held: Callable[[Record], bool] = lambda _record: False
        self._broker = broker
        self._name = name
        self._wait = wait
        self._faults = faults
        self._position: Progress = {}
        self._settled: Progress = {}
        self._ends_told: Progress = {}
        self._unplaced: set[TopicPartition] = set()
        self._beside: dict[TopicPartition, Mark | None] = {}
        self._changes = Changes()

    def take(self, records_max: int, wait_s: float) -> Batch:
        """Return what has arrived; without records all of ``wait_s`` is spent."""
        with self._step("take"):
            self._shift()
            batch = Batch([], {}, {})
            for where in sorted(self._position.keys() - self.paused):
                self._read(where, batch, records_max - len(batch.records))
            if not batch.records:
                self._wait(wait_s)
            return batch

    def attend(self, wait_s: float) -> None:
        with self._step("attend"):
            self._shift()
            self._wait(wait_s)

    def reopen(self) -> None:
        with self._step("reopen"):
            self._broker.group.forget(self._name)
            self._changes.lost += sorted(self.assignment())
            self._position, self._settled, self._ends_told = {}, {}, {}
            self._unplaced.clear()
            self._reasons.clear()  # they end with the client

    def renew(self) -> None:
        self._broker.group.leave(self._name)
        self.reopen()

    def mark_processed(self, progress: Mapping[TopicPartition, int]) -> None:
        self._settled.update(progress)

    def processed(self) -> Progress:
        return dict(self._settled)

    def rewind(self, progress: Mapping[TopicPartition, int]) -> None:
        with self._step("rewind"):
            for where in sorted(progress.keys() & self.assignment()):
                self._unplaced.discard(where)
                self._position[where] = self._settled[where] = progress[where]
                self._ends_told.pop(where, None)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        with self._step("committed"):
            wanted = list(partitions)
            if any(self._broker.pending(where) for where in wanted):
                self._wait(ANSWER_TIMEOUT_S)
                raise BatchAbortedError("committed: UNSTABLE_OFFSET_COMMIT", resolved=False)
            return {where: self._broker.committed.get(where) for where in wanted}

    def beside(self, where: TopicPartition) -> CommittedMetadata:
        """Return the metadata of the committed offset as of when the partition was placed."""
        mark = self._beside.get(where)
        return CommittedMetadata() if mark is None else CommittedMetadata(**mark._asdict())

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._position) | self._unplaced

    def offset_commit(
        self, progress: Mapping[TopicPartition, int], marks: Marks | None = None
    ) -> OffsetCommit:
        require_assigned(progress, self.assignment())
        marks = marks or {}
        offsets = [
            GroupOffset(*where, offset, marked(None, marks[where]) if where in marks else None)
            for where, offset in progress.items()
        ]
        return OffsetCommit(offsets, self.member())

    def member(self) -> bytes:
        """Return ``member id:generation``; raise BatchAbortedError without a membership."""
        member_id, generation = self._broker.group.identity(self._name)
        if generation < 0:
            raise BatchAbortedError("no live member of the group: offsets are not sent")
        return f"{member_id}:{generation}".encode()

    answered = True

    def cut_off(self, *, now: bool = False) -> bool:
        return now and not self.answered

    def changes(self) -> Changes:
        changes, self._changes = self._changes, Changes()
        return changes

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(where for where, _why in self._reasons)

    def pause(self, why: Why) -> None:
        """Deliver nothing from the partitions that are assigned now, nor when they come back."""
        self._reasons |= {(where, why) for where in self.assignment()}

    def resume(self, why: Why) -> None:
        """Take a reason away, also of what is away and comes back later."""
        self._reasons = {one for one in self._reasons if one[1] != why}

    def hold(self, where: TopicPartition, why: Why, *, held: bool) -> None:
        keep = held and where in self.assignment()
        (self._reasons.add if keep else self._reasons.discard)((where, why))

    def stuck(self) -> dict[TopicPartition, Stuck]:
        return {}

    def ends(self) -> Progress:
        with self._step("ends"):
            return {where: self._broker.logs[where].end for where in self._broker.inputs}

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> Progress:
        ends = self._broker.ends()
        return {where: ends[where] for where in partitions}

    def adopt_orphans(self) -> list[TopicPartition]:
        return self._broker.group.adopt_orphans(self._name)

    def close(self) -> None:
        self._broker.group.leave(self._name)

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        """Let a step meet its fault: before it has its effect, or after it."""
        fault = self._faults(step)
        if fault is not None and not fault.after:
            _raise(fault, step)
        yield
        _raise(fault, step)

    def _read(self, where: TopicPartition, batch: Batch, records_max: int) -> None:
        found = self._broker.fetch(where, self._position[where], records_max)
        records = list(takewhile(lambda record: not self.held(record), found))
        if records:
            batch.first[where] = records[0].offset
            batch.next[where] = self._position[where] = records[-1].offset + 1
            batch.records = [*batch.records, *records]
        end = self._broker.logs[where].stable_end
        if self._position[where] >= end or not self._broker.fetch(where, self._position[where], 1):
            self._tell_end(where, batch, end)

    def _tell_end(self, where: TopicPartition, batch: Batch, end: int) -> None:
        if self._ends_told.get(where) != end:
            self._ends_told[where] = batch.next[where] = self._position[where] = end

    def _shift(self) -> None:
        shift = self._broker.shift(self._name, self.assignment())
        self._moved([*shift.revoked, *shift.lost, *shift.assigned])
        for where in chain(shift.revoked, shift.lost):
            for known in (self._position, self._settled, self._ends_told):
                known.pop(where, None)
            self._unplaced.discard(where)
            self._reasons -= {(where, "window"), (where, "schema"), (where, "state")}
        self._unplaced.update(shift.assigned)
        if self._unplaced:
            self._place()
        if shift.rebalanced:
            self._changes.assigned = [*(self._changes.assigned or []), *shift.assigned]
        self._changes.revoked += shift.revoked
        self._changes.lost += shift.lost

    def _moved(self, partitions: Iterable[TopicPartition]) -> None: ...

    def _place(self) -> None:
        """Begin at the group's offsets; not before its answer is stable."""
        for where in sorted(self._unplaced):
            if self._broker.pending(where):
                continue
            self._unplaced.discard(where)
            offset = self._broker.committed.get(where)
            self._beside[where] = self._broker.beside.get(where)
            if offset is None:
                offset = self._settled[where] = 0
            self._position[where] = offset


def _raise(fault: InjectedFault | None, step: str) -> None:
    if fault is not None and fault.error == "fenced":
        raise MemberFencedError(f"{step}: FENCED_INSTANCE_ID", explained=False)
    if fault is not None and fault.error is not None:
        raise BatchAbortedError(f"{step} failed", resolved=False)


Wire = Callable[[str, Callable[[], None], Callable[[], None]], None]
"""Carries one request: its name as Kafka has it, what delivers it, and what is to be called when it
had to be sent again. Raises ProducerDeadError when no answer came for too long."""


def straight(_kind: str, deliver: Callable[[], None], _again: Callable[[], None]) -> None:
    deliver()


class MemoryTransaction:
    """The Transaction port as one producer of the broker."""

    one_by_one = True

    def __init__(
        self,
        broker: MemoryBroker,
        transactional_id: str,
        *,
        clock: Clock,
        faults: Faults = no_faults,
        wire: Wire = straight,
    ) -> None:
        self.doubts: list[str] = []
        self._broker = broker
        self._transactional_id = transactional_id
        self._clock = clock
        self._faults = faults
        self._wire = wire
        self._epoch: int | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._new_doubts: list[str] = []
        self._rejected = False
        self._refused = False
        self._places: set[TopicPartition | str] = set()
        self._began_s = 0.0

    @property
    def age_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    def open(self) -> None:
        self._epoch = None
        self.doubts = []
        fault = self._faults("open")
        if fault is not None and not fault.after:
            self._fail("open", fault)
        self._wire("InitProducerId", self._register, lambda: None)
        if fault is not None:
            self._fail("open", fault)

    def begin(self) -> None:
        self._name()
        self._refuse_doubts()
        self._new_doubts = []
        self._rejected = self._refused = False
        self._places = set()
        self._began_s = self._clock.monotonic()
        fault = self._faults("begin")
        if fault is not None:
            self._fail("begin", fault)

    def send(self, messages: Sequence[Message]) -> None:
        fault = self._before("send")
        for index, message in enumerate(messages):
            if self._broker.bytes_max is not None and _size(message) > self._broker.bytes_max:
                self.abort()
                raise BatchAbortedError(
                    "MSG_SIZE_TOO_LARGE", refused={index: "MSG_SIZE_TOO_LARGE"}, content=True
                )
        for where, each in self._broker.by_partition(messages).items():
            self._produce(where, each)
        self._rejected = any(self._broker.rejects(message) for message in messages)
        self._after("send", fault)

    def send_offsets(self, commit: OffsetCommit) -> None:
        fault = self._before("send_offsets")
        name, _, generation = commit.group_metadata.decode().rpartition(":")
        member = (name, int(generation))
        progress = {(one.topic, one.partition): one.offset for one in commit.offsets}
        marks = {
            (one.topic, one.partition): Mark(known.deaths, known.until)
            for one in commit.offsets
            if one.metadata
            for known in [CommittedMetadata.decode(one.metadata)]
        }
        broker = self._broker
        try:
            if self._refused:
                raise BatchAbortedError("_STATE: a message was refused")  # noqa: TRY301 - one way out for all refusals
            self._add("AddOffsetsToTxn", OFFSETS)
            self._ask(
                "TxnOffsetCommit", lambda name: broker.add_offsets(name, member, progress, marks)
            )
        except BatchAbortedError:
            self.abort()
            raise
        if fault is not None and fault.doubt:
            self._doubt("send_offsets", offsets=dict(progress))
        self._after("send_offsets", fault)

    def commit(self) -> None:
        fault = self._before("commit")
        if self._refused:
            self._die("Produce: INVALID_TXN_STATE", fenced=False)
        if self._rejected:
            self.abort()
            raise BatchAbortedError("INVALID_RECORD", content=True, resolved=False)
        self._end(commit=True)
        if fault is not None and fault.doubt:
            self._doubt("commit", end=True)
        self.doubts = self._new_doubts
        self._after("commit", fault)

    def _refuse_doubts(self) -> None:
        if self.doubts:
            self._die(f"begin: {IN_DOUBT} ({self.doubts[0]})", fenced=False)

    def _before(self, step: str) -> InjectedFault | None:
        self._name()
        fault = self._faults(step)
        if fault is not None and not fault.after:
            if fault.error == "aborted":
                self.abort()
            self._fail(step, fault)
        return fault

    def _after(self, step: str, fault: InjectedFault | None) -> None:
        if fault is None or not fault.after:
            return
        if fault.error == "aborted" and step != "commit":
            self.abort()
        self._fail(step, fault)

    def _fail(self, step: str, fault: InjectedFault) -> None:
        """Raise what the real adapter raises: begin and open know no abort."""
        if fault.error is None:
            return
        if fault.error == "aborted" and step not in {"open", "begin"}:
            raise BatchAbortedError(f"{step} failed", resolved=step != "commit")
        self._die(f"{step} failed", fenced=fault.error == "fenced")

    def abort(self) -> None:
        fault = self._faults("abort")
        if fault is not None and fault.error is not None:
            self._die("abort failed", fenced=fault.error == "fenced")
        self._end(commit=False)
        if fault is not None and fault.doubt:
            self._doubt("abort", end=False)
        self.doubts = self._new_doubts

    def _doubt(
        self, step: str, *, offsets: Progress | None = None, end: bool | None = None
    ) -> None:
        self._broker.send_late(self._name(), offsets=offsets, end=end)
        self._new_doubts.append(f"{step}: sent twice")

    def _end(self, *, commit: bool) -> None:
        """End it at the broker, which knows of no transaction without partitions."""
        if self._places:
            broker = self._broker
            self._ask("EndTxn", lambda name: broker.end_transaction(name, commit=commit))

    def _add(self, kind: str, place: TopicPartition | str) -> None:
        """Register a place, once: what the coordinator has forgotten since stays forgotten."""
        if place not in self._places:
            self._places.add(place)
            self._ask(kind, lambda name: self._broker.register(name, [place]))

    def _register(self) -> None:
        self._epoch = self._broker.init_producer(self._transactional_id)
        self._sequences = {}

    def _produce(self, where: TopicPartition, messages: list[Message]) -> None:
        """Write to one partition; a refusal is reported by a later call, as the client does."""
        first = self._sequences.get(where, 0)
        self._sequences[where] = first + len(messages)
        broker = self._broker
        self._add("AddPartitionsToTxn", where)
        try:
            self._ask("Produce", lambda name: broker.produce(name, where, first, messages))
        except InvalidTransactionStateError:
            self._refused = True

    def _ask(self, kind: str, request: Callable[[tuple[str, int]], None]) -> None:
        name = self._name()
        try:
            again = partial(self._new_doubts.append, f"{kind}: sent twice")
            self._wire(kind, partial(request, name), again)
        except ProducerDeadError as error:
            if kind != "Produce" or not isinstance(error, InvalidTransactionStateError):
                self._epoch = None
            raise

    def _name(self) -> tuple[str, int]:
        if self._epoch is None:
            raise ProducerDeadError("no producer")
        return (self._transactional_id, self._epoch)

    def _die(self, reason: str, *, fenced: bool) -> NoReturn:
        self._epoch = None
        raise ProducerDeadError(reason, fenced=fenced)


def _size(message: Message) -> int:
    return len(message.value or b"") + sum(len(value or b"") for _, value in message.headers)
