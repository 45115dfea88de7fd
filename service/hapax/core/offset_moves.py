"""A group's committed offset moved by hand: from where to where, and what that means. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import ConfigurationError
from hapax.core.partition_offsets import PartitionOffsets
from hapax.core.records import Coordinates, Record  # noqa: TC001 - msgspec reads the types


class Target(NamedTuple):
    """What a person named: a topic, one of its partitions, or an offset in one."""

    topic: str
    partition: int | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read TOPIC, TOPIC/PARTITION or TOPIC/PARTITION/OFFSET. Raises ConfigurationError."""
        topic, *numbers = text.split("/")
        plain = all(each.isascii() and each.isdecimal() and len(each) < 20 for each in numbers)  # noqa: PLR2004 - digits of an offset
        if not topic or len(numbers) > 2 or not plain:  # noqa: PLR2004 - partition and offset
            raise ConfigurationError(
                [f"{text}: write TOPIC, TOPIC/PARTITION or TOPIC/PARTITION/OFFSET"]
            )
        return cls(topic, *map(int, numbers))


class Placed(PartitionOffsets, frozen=True, kw_only=True):
    """An input partition before its offset is moved, with the metadata of the committed offset."""

    beside: CommittedMetadata


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's offset to be moved. ``remark``: what a person should know of it."""

    placed: Placed
    offset: int
    remark: str = ""

    @property
    def skipped(self) -> int:
        """Offsets that are passed without an effect."""
        start = self.placed.log.log_start if self.placed.position is None else self.placed.position
        return max(0, self.offset - max(start, self.placed.log.log_start))

    @property
    def again(self) -> int:
        """Offsets that are read once more."""
        return 0 if self.placed.committed is None else max(0, self.placed.committed - self.offset)

    @property
    def changes(self) -> bool:
        """Whether the group's offset becomes another, or counts where it only informed before."""
        placed = self.placed
        return self.offset != placed.committed or placed.beside.elsewhere is not None


def moved_to(placed: Placed, offset: int, *, topic_id: str | None) -> Move:
    """Return the move to an offset. Raises ConfigurationError for one that is not in the log."""
    where = f"{placed.topic}/{placed.partition}"
    first, end = placed.log.log_start, placed.log.last_stable
    if offset < first:
        problem = f"{where}: offset {offset} is before the beginning of the log, {first}"
        raise ConfigurationError([problem])
    if offset > end:
        problem = f"{where}: offset {offset} is beyond the last stable offset, {end}"
        raise ConfigurationError([problem])
    remade = placed.beside.topic_id not in {None, topic_id} and topic_id is not None
    remark = "the offset so far belongs to a deleted topic of this name" if remade else ""
    return Move(placed=placed, offset=offset, remark=remark)


def moved_back(placed: Placed, offset: int, *, topic_id: str | None) -> Move | None:
    """Return the move to an earlier offset; None for a partition that is not beyond it.

    What retention has deleted cannot be read again: then the move ends at the first offset.
    """
    if placed.committed is None or offset >= placed.committed:
        return None
    if topic_id is not None and placed.beside.topic_id not in {None, topic_id}:
        where = f"{placed.topic}/{placed.partition}"
        problem = (
            f"{where}: the committed offset belongs to a deleted topic of this name, so there"
            " is no way back from it: use hapax offsets set"
        )
        raise ConfigurationError([problem])
    require_progress(placed)
    begin = placed.log.log_start
    first = max(offset, begin)
    remark = f"offsets below {begin} were deleted" if offset < begin else ""
    return Move(placed=placed, offset=first, remark=remark)


def require_progress(placed: Placed) -> None:
    """Raise ConfigurationError for an offset that only informs: what is near it is not certain."""
    if placed.beside.elsewhere is not None:
        problem = (
            f"{placed.topic}/{placed.partition}: the progress is on cluster"
            f" {placed.beside.elsewhere}, and the offset here only informs: use hapax offsets set"
        )
        raise ConfigurationError([problem])


def beside(placed: Placed, topic_id: str | None, cluster_id: str | None) -> CommittedMetadata:
    """Return the metadata to write with a moved offset.

    The topic is the one that has the name now: that is where the operator wants to continue. The
    cluster is kept as it was, for claims of another cluster are another command's business. How
    often processes died at the old offset does not matter at the new one.
    """
    return CommittedMetadata(
        topic_id=topic_id or placed.beside.topic_id,
        cluster_id=placed.beside.cluster_id or cluster_id,
        began=placed.beside.began,
        span=placed.beside.span,
    )


class Unreadable(msgspec.Struct, frozen=True):
    """A record set that the client cannot decode: the offsets it holds, and the client's error."""

    first: int
    last: int
    reason: str


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """What a skip passes: one record, or a record set that cannot be decoded.

    at        where it begins; next: where the group continues
    record    None: it cannot be decoded
    reason    why it cannot; empty where it can
    """

    at: Coordinates
    next: int
    record: Record | None
    reason: str = ""

    @property
    def error(self) -> tuple[str, str]:
        """Type and text of the error in its dead letter."""
        if not self.reason:
            return "Skipped", "passed by hapax offsets skip"
        last = self.next - 1
        what = f"offsets {self.at.offset} to {last}" if last > self.at.offset else "this offset"
        return "Undecodable", f"{what} cannot be decoded: {self.reason}"
