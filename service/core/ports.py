"""All that the core and the engines know of the world. Adapters implement these; memory
adapters do it for tests, and one contract suite runs on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from service.core.records import Coordinates, Progress, Record, TopicPartition


class Batch(msgspec.Struct, gc=False):
    """What one intake found.

    records  in partition order, already free of everything below the next offset
    first    per partition the offset of its first record here: where a rewind goes
    next     per partition the next offset to read once these records have had their effect; it
             may lie behind control records and aborted data, and a partition may stand here
             without records (end-of-partition events)
    """

    records: list[Record]
    first: Progress
    next: Progress


class Message(NamedTuple):
    """One record to produce, ready for the wire."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int  # -1: the partitioner chooses
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


class Source(Protocol):
    """Brings records and owns positions. One thread only."""

    def take(self, records_max: int, bytes_max: int, wait_s: float) -> Batch:
        """Return what is there, waiting up to ``wait_s`` only for the first record."""

    def rewind(self, progress: Mapping[TopicPartition, int]) -> None:
        """Read again from these offsets; partitions that are no longer ours are ignored."""

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's stable committed offsets; None where there is none."""

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are ours now."""

    def member(self) -> bytes:
        """Return the live group metadata; raise BatchAbortedError when we are no live member."""


class Transaction(Protocol):
    """Outputs and progress together, or neither. begin, send, send_offsets, commit; or abort.

    Raises BatchAbortedError (already rolled back: the caller only rewinds) or ProducerDeadError.
    """

    def begin(self) -> None:
        """Start; local, costs no request."""

    def send(self, messages: Sequence[Message]) -> None:
        """Hand the outputs over. Not yet durable, not yet visible."""

    def send_offsets(self, progress: Mapping[TopicPartition, int]) -> None:
        """Add the progress, with the metadata of a live member of the group."""

    def commit(self) -> None:
        """Make all of it visible. Returns only when it is certain."""

    def abort(self) -> None:
        """Make none of it visible."""


class Claim(NamedTuple):
    """One id, and the coordinates of the record (or of the original it replays) that shows it."""

    id: bytes
    owner: Coordinates


class Claims(Protocol):
    """Who owns an id: the coordinates of its first sighting (docs/design.md, claims)."""

    def claim(self, claims: Sequence[Claim]) -> Mapping[int, Coordinates]:
        """Claim all ids in one round trip.

        Return, by index into ``claims``, the owners of those ids that belong to *other*
        coordinates. An id that is missing from the answer is ours, new or seen before. Ids that
        repeat inside ``claims`` belong to the first. Raises ClaimsUnavailableError: nothing is
        decided, and the same call may be made again.
        """


class Clock(Protocol):
    """Time as a parameter."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


