"""What outputs on another cluster carry in addition: where they came by, and their place. Pure.

A record names the clusters that it came through, in ``hapax-path``. One that has been on the
cluster of the outputs is not mirrored there again: of two clusters that mirror each other no record
goes round. For a function the header says nothing: any sender may set it, and what it makes is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.headers import ID, PATH, SOURCE

if TYPE_CHECKING:
    from hapax.core.headers import Wire
    from hapax.core.records import Record

APART = b","


class OtherCluster(msgspec.Struct, frozen=True):
    """Where outputs go when that is another cluster.

    source, target  Kafka's ids of both clusters
    mirrors         whether records pass unchanged, rather than through a function
    partitions      of the output topic, when a mirror keeps the partition of the same number; 0:
                    numbers differ, or it is no mirror
    """

    source: bytes
    target: bytes
    mirrors: bool = False
    partitions: int = 0

    def loops(self, record: Record) -> bool:
        """Whether a mirror would send a record back to the cluster of the outputs."""
        return self.mirrors and self.target in _path(record)

    def stamped(self, record: Record, headers: Wire) -> Wire:
        """Return the headers of an output with the clusters that it came through."""
        return [*headers, (PATH, APART.join([*_path(record), self.source]))]

    def mirrored(self, record: Record, stamp: Wire) -> Wire | None:
        """Return the headers of a mirrored record, all of its own among them; None: it is none.

        Those that say where it came from are those of this step.
        """
        if not self.partitions:
            return None
        kept = [pair for pair in record.headers if pair[0] not in {SOURCE, PATH}]
        known = {pair[0] for pair in kept}
        return kept + [pair for pair in stamp if pair[0] != ID or ID not in known]

    def place(self, record: Record) -> int:
        """Return the partition of an output that names none; -1: the partitioner chooses."""
        return record.partition if record.partition < self.partitions else -1


def _path(record: Record) -> list[bytes]:
    """Return the clusters that a record came through, the first one first."""
    for name, value in reversed(record.headers):
        if name == PATH:
            return value.split(APART) if value else []
    return []
