"""OffsetCommit: the progress of a group as one value, and the step that sends it.

The source makes the value: it knows which partitions are assigned, whether it is a live member, and
what is written with an offset. The transaction only sends it, so neither knows the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.errors import BatchAbortedError, MemberFencedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.ports import Source, Transaction
    from hapax.core.records import TopicPartition
    from hapax.core.suspicion import Marks


class GroupOffset(NamedTuple):
    """One offset to commit: the next one to read.

    metadata      the text to keep with it (committed_metadata.py)
    leader_epoch  of the records before it (KIP-320)
    """

    topic: str
    partition: int
    offset: int
    metadata: str | None = None
    leader_epoch: int | None = None


class OffsetCommit(msgspec.Struct, frozen=True, gc=False):
    """Offsets of assigned partitions, and the group metadata of a live member that commits them."""

    offsets: Sequence[GroupOffset]
    group_metadata: bytes


def require_assigned(
    progress: Mapping[TopicPartition, int], assignment: frozenset[TopicPartition]
) -> None:
    """Raise BatchAbortedError when a partition is not assigned: the broker does not check that."""
    foreign = progress.keys() - assignment
    if foreign:
        raise BatchAbortedError(f"partitions are no longer assigned: {sorted(foreign)}")


def send_progress(
    source: Source,
    transaction: Transaction,
    progress: Mapping[TopicPartition, int],
    marks: Marks | None = None,
) -> None:
    """Add progress to the open transaction; a refusal by the source rolls it back.

    The assignment and the group metadata are read here, just before they are sent.
    """
    try:
        commit = source.offset_commit(progress, marks)
    except (BatchAbortedError, MemberFencedError):
        transaction.abort()
        raise
    transaction.send_offsets(commit)
