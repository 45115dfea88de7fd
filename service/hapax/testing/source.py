"""The Source port in memory, for tests and the simulator, and the faults of both memory ports.

Faults come from a function that is asked at every step. Errors are those that the real adapters
raise there: nothing of the batch visible before the commit, an open outcome from the commit on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Literal

import msgspec

from hapax.core.errors import BatchAbortedError, MemberFencedError
from hapax.core.offset_commit import (
    CommittedMetadata,
    GroupOffset,
    Mark,
    Marks,
    OffsetCommit,
    require_assigned,
)
from hapax.core.ports import Changes, Stuck, Why
from hapax.core.record_path import Batch
from hapax.processing.crash_markers import marked

if TYPE_CHECKING:
    from hapax.core.records import Progress, Record, TopicPartition
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
