"""Rules of a broker that the promise rests on: what a test needs to hold them; the memory side."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, cast

from hapax.core.errors import ProducerDeadError
from hapax.core.offset_commit import GroupOffset, OffsetCommit, require_assigned
from hapax.core.ports import Source
from hapax.core.record_path import Outputs
from hapax.core.records import Message, Progress, Record, TopicPartition
from hapax.testing.broker import MemoryBroker
from hapax.testing.source import MemorySource, MemoryTransaction
from tests.kit.committing import Committing
from tests.kit.doubles import Ticking
from tests.simulation.groups import ClassicGroup, ConsumerGroup, Timing

PARTITIONS = 2
TURNS_MAX = 600
ACCEPTED = 0
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48


class Claim:
    """Stands in for a source: what a producer says of its membership, true or not."""

    def __init__(self, metadata: bytes, *ours: TopicPartition) -> None:
        self.metadata = metadata
        self._ours = frozenset(ours)

    def offset_commit(
        self, progress: Mapping[TopicPartition, int], _marks: object = None
    ) -> OffsetCommit:
        """Return progress in the name of the membership that it says is its own."""
        require_assigned(progress, self._ours)
        return OffsetCommit(
            [GroupOffset(*where, offset) for where, offset in progress.items()], self.metadata
        )


class Member(Source, Protocol):
    """A client of the group that says who it is."""

    def member(self) -> bytes:
        """Return its live group metadata; raise BatchAbortedError when it is no live member."""


class Late(Protocol):
    """The first copy of a request, kept on its way; its sender has sent it again."""

    def release(self) -> int:
        """Let it arrive; return the error code that it is answered with."""


class Upstream(Protocol):
    """A transaction of somebody else in partition 0 of the input."""

    def end(self, *, commit: bool) -> None:
        """End it; return when readers can tell."""


class Rulebook(Protocol):
    """A broker with an input of two partitions and an output of one, and any number of clients.

    identity   member id and generation of a member's metadata
    metadata   the same metadata with another member id and generation
    """

    topic: str
    target: str

    def member(self, instance: str) -> Member:
        """Return a new client of the group; attending lets it join."""

    def leave(self, source: Source) -> None:
        """Close a member."""

    def producer(self, source: Source | Claim, instance: str = "w") -> Committing:
        """Return a producer, not yet open; its transactional id follows from the instance."""

    def write(self, *values: bytes, partition: int = 0) -> None:
        """Append input outside of any transaction."""

    def upstream(self, *values: bytes) -> Upstream:
        """Append input in a transaction that stays open."""

    def hold(self, api: str) -> Late:
        """Keep the next such request of any producer until it is released."""

    def outputs(self) -> list[Record]:
        """Return what a reader of committed records sees."""

    def committed(self) -> Progress:
        """Return the group's offsets, as somebody outside of it sees them."""

    def ends(self) -> tuple[int, int]:
        """Return last stable offset and high watermark of the output."""

    def identity(self, metadata: bytes) -> tuple[str, int]: ...

    def metadata(self, member_id: str, generation: int, like: bytes | None = None) -> bytes: ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""


def until(world: Rulebook, condition: Callable[[], bool], *sources: Source) -> None:
    """Let sources attend, or time pass, until the condition holds."""
    for _ in range(TURNS_MAX):
        if condition():
            return
        for source in sources:
            source.attend(0.05)
        if not sources:
            world.wait(0.05)
    raise AssertionError("the condition never held")


def share(world: Rulebook, *sources: Source) -> None:
    """Wait until each source has as many partitions as the others."""
    each = PARTITIONS // len(sources)
    until(world, lambda: all(len(one.assignment()) == each for one in sources), *sources)


def places(world: Rulebook) -> tuple[TopicPartition, ...]:
    return tuple((world.topic, number) for number in range(PARTITIONS))


def unfenced(world: Rulebook) -> Claim:
    """Return the claim of somebody who names no member, which is believed (measured)."""
    return Claim(world.metadata("", -1), *places(world))


def send(world: Rulebook, transaction: Committing, *values: bytes) -> None:
    """Write outputs in the open transaction; return when they are in the log."""
    _, before = world.ends()
    transaction.send(Outputs([message(world, value) for value in values]))
    until(world, lambda: world.ends()[1] >= before + len(values))


def fill(world: Rulebook, transaction: Committing, value: bytes, offset: int) -> None:
    """Begin a transaction with an output, and progress of the first partition."""
    transaction.begin()
    send(world, transaction, value)
    transaction.send_offsets({places(world)[0]: offset})


def disregard(transaction: Committing) -> None:
    """Forget its doubts, so that it begins all the same: to show what a broker does then."""
    cast("list[str]", transaction.doubts).clear()


def shown(world: Rulebook) -> tuple[list[bytes | None], int | None]:
    """Return visible outputs, and the group's offset of partition 0, while no transaction is open.

    The end of a transaction is answered before readers can tell: this waits until they can.
    """
    until(world, lambda: len(set(world.ends())) == 1)
    return visible(world)


def visible(world: Rulebook) -> tuple[list[bytes | None], int | None]:
    return [one.value for one in world.outputs()], world.committed().get(places(world)[0])


def message(world: Rulebook, value: bytes) -> Message:
    return Message(world.target, value, b"key", -1, 1_700_000_000_000, [])


GroupKind = Literal["classic", "static", "consumer"]
TIMEOUT_S = 8.0


class MemoryLate:
    """A request that its sender has sent again, as the simulator keeps it."""

    def __init__(self) -> None:
        self.deliver: Callable[[], None] | None = None

    def release(self) -> int:
        assert self.deliver is not None, "nothing was held"
        try:
            self.deliver()
        except ProducerDeadError as error:
            return INVALID_PRODUCER_EPOCH if error.fenced else INVALID_TXN_STATE
        return ACCEPTED


class MemoryUpstream:
    """An open transaction in the log."""

    def __init__(self, end: Callable[[bool], object]) -> None:
        self._end = end

    def end(self, *, commit: bool) -> None:
        self._end(commit)


class MemoryTopics:
    """An input and an output in this process; ``facts`` of the broker."""

    def __init__(self, **facts: float) -> None:
        self.topic, self.target = "in", "out"
        self._clock = Ticking()
        self.broker = MemoryBroker(
            {"in": PARTITIONS, "out": 1}, inputs=["in"], clock=self._clock, **facts
        )

    def write(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.broker.write(self.topic, value, key=b"key", partition=partition)

    def outputs(self) -> list[Record]:
        return self.broker.records(self.target)

    def committed(self) -> Progress:
        return dict(self.broker.committed)

    def close(self) -> None:
        """Nothing is held."""


class MemoryRulebook(MemoryTopics):
    """All in this process. ``timeout_s``: of a transaction."""

    def __init__(self, kind: GroupKind, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(timeout_s=timeout_s, scan_s=1.0)
        self._held: dict[str, MemoryLate] = {}
        self._clients = 0
        timing = Timing(session_s=60.0, poll_max_s=600.0)
        if kind == "consumer":
            self.broker.group = ConsumerGroup(self.broker.inputs, self._clock, timing)
        else:

            def instance_of(name: str) -> str | None:
                return name.rpartition(".")[0] if kind == "static" else None

            self.broker.group = ClassicGroup(self.broker.inputs, self._clock, timing, instance_of)

    def member(self, instance: str) -> MemorySource:
        self._clients += 1
        return MemorySource(self.broker, f"{instance}.{self._clients}", wait=self._clock.wait)

    def leave(self, source: Source) -> None:
        cast("MemorySource", source).close()

    def producer(self, source: Source | Claim, instance: str = "w") -> Committing:
        transaction = MemoryTransaction(
            self.broker, f"app-{instance}", clock=self._clock, wire=self._carry
        )
        return Committing(transaction, source)

    def upstream(self, *values: bytes) -> MemoryUpstream:
        self._clients += 1
        log, name = self.broker.logs[(self.topic, 0)], f"upstream-{self._clients}"
        for value in values:
            log.append(value, key=None, headers=(), timestamp_ms=0, producer=name)
        return MemoryUpstream(lambda commit: log.mark(name, commit=commit))

    def hold(self, api: str) -> MemoryLate:
        late = self._held[api] = MemoryLate()
        return late

    def ends(self) -> tuple[int, int]:
        self.broker.expire()
        log = self.broker.logs[(self.target, 0)]
        return log.stable_end, log.end

    def identity(self, metadata: bytes) -> tuple[str, int]:
        member_id, _, generation = metadata.decode().rpartition(":")
        return member_id, int(generation)

    def metadata(self, member_id: str, generation: int, like: bytes | None = None) -> bytes:
        del like  # there is nothing else in it
        return f"{member_id}:{generation}".encode()

    def wait(self, seconds: float) -> None:
        self._clock.wait(seconds)

    def _carry(self, api: str, deliver: Callable[[], None], again: Callable[[], None]) -> None:
        late = self._held.pop(api, None)
        if late is not None:
            late.deliver = deliver
            again()
        deliver()
