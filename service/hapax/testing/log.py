"""One partition's log in memory: records, control records, and transactions still open."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from hapax.core.records import Record

if TYPE_CHECKING:
    from hapax.core.ports import Message
    from hapax.core.records import Headers, TopicPartition


class MemoryLog:
    """Offsets in order. What is aborted, and every marker, keeps its offset and is never read.

    hidden  aborted records so far
    """

    def __init__(self, where: TopicPartition) -> None:
        self.hidden = 0
        self._where = where
        self._entries: list[Record | None] = []
        self._open: dict[str, list[int]] = {}

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self._entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: no ``read_committed`` reader sees anything at or above it."""
        return min((held[0] for held in self._open.values()), default=len(self._entries))

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        producer: str | None = None,
    ) -> int:
        """Append a record, into the producer's open transaction when one is named."""
        offset = len(self._entries)
        self._entries.append(Record(*self._where, offset, key, value, headers, timestamp_ms))
        if producer is not None:
            self._open.setdefault(producer, []).append(offset)
        return offset

    def produce(self, message: Message, producer: str) -> int:
        """Append an output to the producer's open transaction."""
        return self.append(
            message.value,
            key=message.key,
            headers=tuple(message.headers),
            timestamp_ms=0 if message.timestamp_ms is None else message.timestamp_ms,
            producer=producer,
        )

    def mark(self, producer: str, *, commit: bool) -> list[Record]:
        """Write the marker that ends the producer's transaction; return what becomes visible."""
        held = self._open.pop(producer, [])
        found = [record for at in held if (record := self._entries[at]) is not None]
        if not commit:
            self.hidden += len(held)
            for offset in held:
                self._entries[offset] = None
        self._entries.append(None)
        return found if commit else []

    def hide(self, count: int) -> None:
        """Append offsets that no reader sees."""
        self._entries += [None] * count

    def remove(self, offset: int) -> None:
        """Remove a record as the log cleaner does: its offset stays, nothing is read there."""
        self._entries[offset] = None

    def fetch(self, offset: int, records_max: int) -> list[Record]:
        """Return what a ``read_committed`` reader gets from ``offset`` on."""
        there = self._entries[offset : self.stable_end]
        return list(islice((entry for entry in there if entry is not None), records_max))

    def at(self, offset: int) -> Record | None:
        """Return the record that a ``read_committed`` reader finds at an offset."""
        return self._entries[offset] if 0 <= offset < self.stable_end else None
