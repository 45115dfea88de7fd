"""Offsets of a partition and what follows from them: one struct, one lag, one spelling. Pure.

The status page, ``/status.json``, ``hapax offsets`` and the doctor's bundle all show ``figures``;
``hapax_consumer_lag`` is ``PartitionOffsets.lag``.
"""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class LogOffsets(msgspec.Struct, frozen=True):
    """Offsets of one partition's log.

    log_start       first offset that is still in the log
    last_stable     last stable offset: where read_committed readers come to
    high_watermark  every record below it is on all in-sync replicas; open transactions included
    """

    log_start: int
    last_stable: int
    high_watermark: int

    @classmethod
    def of(cls, log_start: int, last_stable: int, high_watermark: int) -> LogOffsets:
        """Return offsets that were queried one after the other: none is beyond one to its right.

        What came between the answers to ``last_stable`` and ``high_watermark`` counts as both.
        """
        return cls(log_start, last_stable, max(high_watermark, last_stable))

    def lag(self, next_offset: int) -> int:
        """Offsets up to the last stable one, control records included, deleted ones left out."""
        return max(0, self.last_stable - max(next_offset, self.log_start))

    @property
    def last_stable_offset_lag(self) -> int:
        """Offsets from the first open transaction on: readers cannot see them yet."""
        return max(0, self.high_watermark - self.last_stable)


class HeldBack(NamedTuple):
    """What open transactions hold back of a partition that a bounded run reads to ``end``."""

    last_stable: int
    end: int


def held_back(held: Mapping[tuple[str, int], HeldBack]) -> str:
    """Return it in words, which stay a line however many they are."""
    places = (f"{w[0]}/{w[1]} from {one.last_stable} to {one.end}" for w, one in held.items())
    count = sum(one.end - one.last_stable for one in held.values())
    named = shorten(", ".join(places), 500, placeholder=" …")
    return f"{count} offsets wait for open transactions ({named})"


class PartitionOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as one look saw it; all offsets are "next to read".

    committed  the group's offset; None: it has none
    position   where reading continues; None: a process would refuse to start there
    """

    topic: str
    partition: int
    log: LogOffsets
    committed: int | None
    position: int | None

    @property
    def where(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def lag(self) -> int:
        """Count from the committed offset, or without one from where a start would begin."""
        begin = self.position if self.committed is None else self.committed
        return self.log.lag(begin or 0)

    @property
    def lost(self) -> int:
        return 0 if self.committed is None else max(0, self.log.log_start - self.committed)

    def log_figures(self) -> dict[str, str | int | None]:
        """Return what a log has without a group, as JSON spells it everywhere."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            **msgspec.structs.asdict(self.log),
            "last_stable_offset_lag": self.log.last_stable_offset_lag,
        }

    def figures(self) -> dict[str, str | int | None]:
        return self.log_figures() | {
            "committed": self.committed,
            "position": self.position,
            "lag": self.lag,
            "lost": self.lost,
        }


def position(committed: int | None, log: LogOffsets, start: str) -> int | None:
    """Return where a process continues; ``start`` is ``HAPAX_INPUT__START``."""
    if committed is not None:
        return committed
    return {"earliest": log.log_start, "latest": log.last_stable}.get(start)
