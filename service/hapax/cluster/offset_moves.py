"""A group's committed offset moved by hand: from where to where, and what that means. Pure.

``Halving`` translates offsets of a topic to those of its mirror. The outputs of an input partition
are in one partition of the mirror, in the order of the input, each with the coordinates of its
record. So the place of an offset is the first record there that comes from it or from a later one,
and can be found by halving: offsets of markers, of aborted and of compacted records lie between,
and cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.cluster.partition_offsets import PartitionOffsets
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.headers import SOURCE, coordinates
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.records import (
    Coordinates,  # noqa: TC001 - msgspec reads the types
    Record,  # noqa: TC001 - msgspec reads the types
)

if TYPE_CHECKING:
    from hapax.core.records import TopicPartition


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
            problem = f"{text}: write TOPIC, TOPIC/PARTITION or TOPIC/PARTITION/OFFSET"
            raise ConfigurationError(problem)
        return cls(topic, *map(int, numbers))


class Placed(PartitionOffsets, frozen=True, kw_only=True):
    """An input partition before its offset is moved, with the metadata of the committed offset.

    topic_id  Kafka's id of the topic that has the name now; None: not known
    """

    beside: CommittedMetadata
    topic_id: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def remade(self) -> bool:
        """Whether the committed offset belongs to a deleted topic of this name."""
        return self.topic_id is not None and self.beside.topic_id not in {None, self.topic_id}

    def require_progress(self) -> None:
        """Raise ConfigurationError if it only informs: what is near it is not certain."""
        if self.beside.elsewhere is not None:
            raise ConfigurationError(
                f"{self}: the progress is on cluster {self.beside.elsewhere}, and the offset here"
                " only informs: use hapax offsets set"
            )

    def moved(self, cluster_id: str | None) -> CommittedMetadata:
        """Return the metadata to write with a moved offset.

        The topic is the one that has the name now: that is where the operator wants to continue.
        The cluster is kept as it was, for claims of another cluster are another command's business.
        How often processes died at the old offset does not matter at the new one.
        """
        return CommittedMetadata(
            topic_id=self.topic_id or self.beside.topic_id,
            cluster_id=self.beside.cluster_id or cluster_id,
            began=self.beside.began,
            span=self.beside.span,
        )


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One partition's offset to be moved. ``remark``: what a person should know of it."""

    placed: Placed
    offset: int
    remark: str = ""

    @property
    def skipped(self) -> int:
        start = self.placed.log.log_start if self.placed.position is None else self.placed.position
        return max(0, self.offset - max(start, self.placed.log.log_start))

    @property
    def again(self) -> int:
        return 0 if self.placed.committed is None else max(0, self.placed.committed - self.offset)

    @property
    def changes(self) -> bool:
        """Whether the group's offset becomes another, or counts where it only informed before."""
        placed = self.placed
        return self.offset != placed.committed or placed.beside.elsewhere is not None


def moved_to(placed: Placed, offset: int) -> Move:
    """Return the move to an offset. Raises ConfigurationError for one that is not in the log."""
    first, end = placed.log.log_start, placed.log.last_stable
    if offset < first:
        problem = f"{placed}: offset {offset} is before the beginning of the log, {first}"
        raise ConfigurationError(problem)
    if offset > end:
        problem = f"{placed}: offset {offset} is beyond the last stable offset, {end}"
        raise ConfigurationError(problem)
    remark = "the offset so far belongs to a deleted topic of this name" if placed.remade else ""
    return Move(placed=placed, offset=offset, remark=remark)


def moved_back(placed: Placed, offset: int) -> Move | None:
    """Return it, or None; what retention has deleted ends it at the first offset in the log."""
    if placed.committed is None or offset >= placed.committed:
        return None
    if placed.remade:
        raise ConfigurationError(
            f"{placed}: the committed offset belongs to a deleted topic of this name, so there"
            " is no way back from it: use hapax offsets set"
        )
    placed.require_progress()
    begin = placed.log.log_start
    remark = f"offsets below {begin} were deleted" if max(0, offset) < begin else ""
    return Move(placed=placed, offset=max(offset, begin), remark=remark)


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
        if not self.reason:
            return "Skipped", "passed by hapax offsets skip"
        last = self.next - 1
        what = f"offsets {self.at.offset} to {last}" if last > self.at.offset else "this offset"
        return "Undecodable", f"{what} cannot be decoded: {self.reason}"


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one committed offset on the other side.

    committed  the group's offset in the input partition
    offset     the next one to read in the mirror: nothing before it is unread, nothing after it
               was read
    record     whether there is a record at ``offset``; else it is the end
    first      the first offset that the mirror still has
    """

    topic: str
    partition: int
    committed: int
    target: str
    offset: int
    record: bool
    first: int

    @property
    def cut(self) -> bool:
        """Whether the mirror has deleted records, which may have been the next ones to read."""
        return self.first > 0 and self.offset <= self.first


class Halving:
    """Looks for the first record of a partition that comes from an offset or a later one.

    at  where to look next: the first record from there on, and before ``end``, decides; None: found
    """

    def __init__(self, source: TopicPartition, committed: int, low: int, end: int) -> None:
        self._source = source
        self._committed = committed
        self._low, self.end = low, end
        self.found: int | None = None

    @property
    def at(self) -> int | None:
        """The offset to query next; None: there is none."""
        return None if self._low >= self.end else (self._low + self.end) // 2

    def see(self, record: Record | None) -> None:
        """Take the first record at ``at`` or after it, before ``end``; None: there is none."""
        at = self.at
        assert at is not None
        if record is None:
            self.end = at
            return
        source = coordinates(dict(record.headers).get(SOURCE))
        if source is None or source[:2] != self._source:
            raise HapaxError(
                f"{record.coordinates} does not come from {self._source[0]}/{self._source[1]}: the"
                " topic is no mirror, and offsets cannot be translated"
            )
        if source.offset >= self._committed:
            self.found, self.end = record.offset, at
        else:
            self._low = record.offset + 1
