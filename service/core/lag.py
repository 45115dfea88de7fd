"""Where a partition stands, and how far behind its readers are. Pure."""

from __future__ import annotations

import msgspec


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One input partition, all offsets "next to read".

    low          first offset that is still there (low watermark)
    committed    the group's offset; None: it has none
    position     where a process goes on; None: it would refuse to start
    stable       last stable offset: where read_committed readers come to
    high         end of the log, open transactions included (high watermark)
    oldest_ms    timestamp of the oldest unread record, Unix time; None: none, or not known
    empty        whether the unread offsets hold no record, only markers and aborted ones
    """

    topic: str
    partition: int
    low: int
    committed: int | None
    position: int | None
    stable: int
    high: int
    oldest_ms: int | None = None
    empty: bool = False

    @property
    def lag(self) -> int:
        """Offsets not yet read; markers and aborted records count, for nobody can tell."""
        start = self.low if self.position is None else self.position
        return max(0, self.stable - max(start, self.low))

    @property
    def undecided(self) -> int:
        """Offsets behind the first open transaction."""
        return max(0, self.high - self.stable)

    @property
    def lost(self) -> int:
        """Offsets that were deleted before they were read."""
        return 0 if self.committed is None else max(0, self.low - self.committed)

    def lag_s(self, now_ms: int) -> float | None:
        """Age of the oldest unread record; 0.0 when nothing is unread, None: not known."""
        if not self.lag or self.empty:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1000)


def position(committed: int | None, low: int, stable: int, start: str) -> int | None:
    """Return where a process goes on; ``start`` is ``HAPAX_INPUT__START``."""
    if committed is not None:
        return committed
    return {"earliest": low, "latest": stable}.get(start)
