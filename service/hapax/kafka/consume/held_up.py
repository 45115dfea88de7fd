"""Partitions that are held up: those that are tried again, and those that are found to be."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError
from hapax.kafka.read.offsets_client import LATEST, unjoined
from hapax.kafka.read.too_large import too_large

if TYPE_CHECKING:
    from hapax.core.ports import Clock
    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.client import GroupConsumer
    from hapax.kafka.consume.partition_state import PartitionStates
    from hapax.kafka.consume.positions import Positions

LOOK_S, SEARCH_S = 0.5, 2.0
"""Between two searches, shorter than from line to line; and how long one takes at most."""
RETRY_LARGE_S = 60.0
"""A property does not change while the client lives, but retention may delete the record."""


class HeldUpPartitions:
    """Attends to partitions whose next records cannot be read. One thread only."""

    def __init__(
        self, consumer: GroupConsumer, states: PartitionStates, positions: Positions, clock: Clock
    ) -> None:
        self._consumer = consumer
        self._states = states
        self._positions = positions
        self._clock = clock
        self._due_s = 0.0
        self._seen: Progress = {}
        self._tries: Counter[Where] = Counter()
        self._large: set[Where] = set()

    def attend(self) -> None:
        """Do what is due. Inside of ``asking``; costs nothing while all can be read."""
        if self._states.stuck.known:
            self._states.stuck.retry(self._try_again)
        if self._consumer.log.too_large.reason and self._clock.monotonic() >= self._due_s:
            self._search()

    def _try_again(self, where: Where, offset: int) -> None:
        """Read a set once more; one that was too large is looked at by another client first."""
        at = max(offset, self._states[where].untaken)
        if where not in self._large or not self._hold_large(where, at):
            self._positions.read_on(where, at)
            self._consumer.hold(where, held=False)

    def _search(self) -> None:
        """Find out which partition it is: one that stands still before the end of its log.

        At first one of which nothing was handed out, for a task of Spark may not live for longer.
        """
        now_s = self._clock.monotonic()
        self._consumer.log.too_large.reason = ""  # it comes again while one is not held
        before, self._seen = self._seen, self._states.next_offsets()
        still = {
            where: at
            for where, at in self._seen.items()
            if before.get(where, self._states[where].settled) == at
            and not self._states.stuck.holds(where)
        }
        ends: Progress = {}
        with suppress(BatchAbortedError):  # the line comes again
            ends = self._consumer.offsets(still, LATEST)
        for where in sorted(ends, key=self._tries.__getitem__):
            if ends[where] > still[where] and self._clock.monotonic() - now_s < SEARCH_S:
                self._tries[where] += 1  # others come first the next time
                self._hold_large(where, still[where])
        self._due_s = self._clock.monotonic() + LOOK_S

    def _hold_large(self, where: Where, offset: int) -> bool:
        """Hold a partition whose next record is too large; return whether it is."""
        reason = too_large(unjoined(self._consumer.properties), where, offset)
        self._large.discard(where)
        if reason:
            self._large.add(where)
            self._states.stuck.meet(where, offset, reason, RETRY_LARGE_S)
            self._consumer.hold(where, held=True)
        return bool(reason)
