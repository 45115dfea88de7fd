"""How a bounded run ends: at the ends of the input, or before transactions of others that are open.

Ends are high watermarks; what is read ends at the last stable offset, before the first open one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import StopError
from hapax.core.partition_offsets import HeldBack, held_back

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hapax.core.ports import Source
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.idle_offsets import Bounds
    from hapax.engines.lifecycle import Process

LOOK_INTERVAL_S = 0.5
GRACE_S = 2.0  # a transaction that ends sooner needs no line


class OpenInput:
    """Decides what a run does when all that is left lies behind open transactions."""

    def __init__(self, process: Process, bounds: Bounds) -> None:
        self._events = process.events
        self._clock = process.clock
        self._timeout_s = bounds.open_timeout_s
        self._held: Mapping[TopicPartition, HeldBack] = {}
        self._since_s, self._told = 0.0, False

    def ends_run(self, held: Mapping[TopicPartition, HeldBack]) -> bool:
        """Return whether the run ends before them; raise StopError when it has waited too long.

        ``held``: empty while something else is left. The wait counts from when one moved last.
        """
        now_s = self._clock.monotonic()
        if held != self._held:
            if self._told:
                self._events.open_transactions_awaited({})
            self._held, self._since_s, self._told = dict(held), now_s, False
        if not held:
            return False
        if self._timeout_s is None:
            self._events.open_transactions_left(held)
            return True
        waited_s = now_s - self._since_s
        if waited_s >= self._timeout_s:
            raise StopError(
                f"{held_back(held)}, none of which has ended for {waited_s:.0f} s"
                " (HAPAX_STOP_AFTER__OPEN_TIMEOUT): hapax transactions list shows who has them open"
                " and how to end one that hangs; the same run then continues, and with"
                " HAPAX_STOP_AFTER__OPEN=leave it ends before them"
            )
        if waited_s >= GRACE_S and not self._told:
            self._told = True
            self._events.open_transactions_awaited(held)
        return False


class EndOfRun:
    """Tells when a group has come to the ends of a bounded run. One thread only."""

    def __init__(self, process: Process, source: Source, bounds: Bounds) -> None:
        self._clock = process.clock
        self._source = source
        self._bounds = bounds
        self._open = OpenInput(process, bounds)
        self._told: Progress = {}
        self._seen_s = 0.0

    def due(self) -> bool:
        """Whether to look now. Raises BatchAbortedError when the ends are not told: call again."""
        now_s = self._clock.monotonic()
        if not self._bounds.at_end or now_s - self._seen_s < LOOK_INTERVAL_S:
            return False
        self._seen_s = now_s
        if self._bounds.wants_ends:
            self._bounds.start(self._source.ends())
        return not self._bounds.wants_ends

    def reached(self, known: Progress, ours: Collection[TopicPartition] = ()) -> bool:
        """Whether nothing is left to do; ``known`` of progress, which alone counts for ``ours``.

        Else the group's word counts: other members may have done the rest, and a position that is
        only known to us (START=latest) is forgotten when we leave.
        """
        before = dict(self._told)
        self._told |= known
        others = [where for where in self._bounds.missing(self._told) if where not in ours]
        stable = self._source.committed(others)
        self._told |= {where: offset for where, offset in stable.items() if offset is not None}
        missing = self._bounds.missing(self._told)
        held = self._held(missing) if self._told == before else {}
        return self._open.ends_run(held) or not missing

    def _held(self, missing: Iterable[TopicPartition]) -> dict[TopicPartition, HeldBack]:
        """Return what waits for open transactions, when all that is missing does."""
        stable = self._source.last_stable_offsets(missing)
        if any(offset > self._told.get(where, 0) for where, offset in stable.items()):
            return {}
        ends = self._bounds.ends
        return {where: HeldBack(offset, ends[where]) for where, offset in stable.items()}
