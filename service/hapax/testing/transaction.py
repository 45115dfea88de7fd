"""The Transaction port in memory, for tests and the simulator: one producer of the memory broker.

Rolls back, or leaves open, exactly what the real adapter does at each step, so that a schedule of
faults that this one can play is one that Kafka can play too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.offset_commit import CommittedMetadata, Mark, OffsetCommit
from hapax.core.ports import IN_DOUBT, Clock
from hapax.testing.broker import OFFSETS, InvalidTransactionStateError, MemoryBroker
from hapax.testing.source import Faults, InjectedFault, no_faults

if TYPE_CHECKING:
    from hapax.core.records import Message, Progress, TopicPartition

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
