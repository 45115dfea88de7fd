"""Rules of a broker that the promise rests on: what a test needs to hold them on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from hapax.core.offset_commit import GroupOffset, OffsetCommit, require_assigned
from hapax.core.ports import Message, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.records import Progress, Record, TopicPartition
    from tests.kit.committing import Committing

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
    """Return all input partitions."""
    return tuple((world.topic, number) for number in range(PARTITIONS))


def unfenced(world: Rulebook) -> Claim:
    """Return the claim of somebody who names no member, which is believed (measured)."""
    return Claim(world.metadata("", -1), *places(world))


def send(world: Rulebook, transaction: Committing, *values: bytes) -> None:
    """Write outputs in the open transaction; return when they are in the log."""
    _, before = world.ends()
    transaction.send([message(world, value) for value in values])
    until(world, lambda: world.ends()[1] >= before + len(values))


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
    """Return the same while a transaction is open."""
    return [one.value for one in world.outputs()], world.committed().get(places(world)[0])


def message(world: Rulebook, value: bytes) -> Message:
    """Return an output."""
    return Message(world.target, value, b"key", -1, 1_700_000_000_000, [])
