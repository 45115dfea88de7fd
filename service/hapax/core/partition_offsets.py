"""Where a partition is, in one spelling: one struct, one lag. Pure.

The status page, ``/status.json``, ``hapax offsets`` and the doctor's bundle all show ``figures``;
``hapax_consumer_lag`` is ``PartitionOffsets.lag``.
"""

from __future__ import annotations

import msgspec


class PartitionOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as one look saw it; all offsets are "next to read".

    low_watermark       first offset that is still in the log
    committed           the group's offset; None: it has none
    position            where reading goes on; None: a process would refuse to start there
    last_stable_offset  where read_committed readers come to
    high_watermark      end of the log, open transactions included
    """

    topic: str
    partition: int
    low_watermark: int
    committed: int | None
    position: int | None
    last_stable_offset: int
    high_watermark: int

    @property
    def lag(self) -> int:
        """Offsets from the committed one to the last stable one, control records included.

        Without a committed offset it counts from where a start would begin, or from the beginning
        of the log. What was deleted before it was read is ``lost``, and no lag.
        """
        begin = self.position if self.committed is None else self.committed
        return max(0, self.last_stable_offset - max(begin or 0, self.low_watermark))

    @property
    def undecided(self) -> int:
        """Offsets from the first open transaction on: readers cannot see them yet."""
        return max(0, self.high_watermark - self.last_stable_offset)

    @property
    def lost(self) -> int:
        """Offsets that were deleted before they were read."""
        return 0 if self.committed is None else max(0, self.low_watermark - self.committed)

    def log_figures(self) -> dict[str, str | int | None]:
        """Return what a log has without a group, as JSON spells it everywhere."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "low_watermark": self.low_watermark,
            "last_stable_offset": self.last_stable_offset,
            "high_watermark": self.high_watermark,
            "undecided": self.undecided,
        }

    def figures(self) -> dict[str, str | int | None]:
        """Return everything, as JSON spells it everywhere."""
        group = {
            "committed": self.committed,
            "position": self.position,
            "lag": self.lag,
            "lost": self.lost,
        }
        return self.log_figures() | group


def position(committed: int | None, low: int, stable: int, start: str) -> int | None:
    """Return where a process goes on; ``start`` is ``HAPAX_INPUT__START``."""
    if committed is not None:
        return committed
    return {"earliest": low, "latest": stable}.get(start)
