"""Whether a process died over the records at a committed offset, and which ones are suspects.

A process that is killed by a record logs nothing. So it writes beforehand, with the offset that
it works at, that it is at work there (``Mark``); who finds the mark later knows that a process
ended without committing. Progress drops it, and costs nothing for it:

1  first records of a partition since its assignment: the same offset is committed once more, with
   ``deaths`` one above what was found and ``until`` the end of the batch
2  each commit carries a mark for the batch after it, until as many records as one batch may hold
   have passed since the assignment, or there was nothing to read. What a dead process held lies
   within them: its batch was not larger
3  found with deaths: ``suspects_until`` returns up to where each call of the transform is made in a
   process of its own (core/isolation.py), which may die; the record that kills it is known then
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.committed_metadata import CommittedMetadata

if TYPE_CHECKING:
    from hapax.core.records import TopicPartition


class Mark(NamedTuple):
    """The metadata of the offset that is being worked at.

    deaths  how many processes will have died here if this one does
    until   the end (exclusive) of what is worked on; None: as much as one batch may hold
    """

    deaths: int
    until: int | None = None


Marks = dict["TopicPartition", Mark]


def marked(text: str | None, mark: Mark) -> str:
    """Return the metadata of an offset with the mark in it; the rest of it is kept."""
    known = CommittedMetadata.decode(text)
    return msgspec.structs.replace(known, deaths=mark.deaths, until=mark.until).encode()


def suspects_until(found: CommittedMetadata, first: int, records_max: int) -> int | None:
    """Return the end (exclusive) of the suspects; None when no process died here.

    found        the metadata of the committed offset when the partition was assigned
    first        offset of the first record at or after it
    records_max  most records of one batch

    Without a known end the range is twice as wide as a batch: control records and compaction leave
    gaps among the offsets.
    """
    if not found.deaths:
        return None
    return found.until if found.until is not None else first + 2 * records_max
