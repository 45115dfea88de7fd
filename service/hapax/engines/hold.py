"""Intake that an operator has paused: the process stays a member and takes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import ClaimsUnavailableError

if TYPE_CHECKING:
    from hapax.core.ports import Claims, Source
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Lifecycle
    from hapax.telemetry.events import Events


class Hold:
    """Follows the operator's wish, and reports when it takes effect.

    The wish is in memory alone: a restart forgets it.
    """

    def __init__(self, lifecycle: Lifecycle, events: Events) -> None:
        self._lifecycle = lifecycle
        self._events = events
        self._held = False
        self._silent = False
        self._asked: frozenset[TopicPartition] = frozenset()

    def on(self) -> bool:
        """Return whether nothing may be taken now."""
        paused = self._lifecycle.paused
        if paused != self._held:
            self._held = paused
            if paused:
                self._events.intake_paused()
            else:
                self._events.intake_resumed()
        return paused

    def attend(self, source: Source, wait_s: float) -> bool:
        """Return whether nothing may be taken; then the group has been attended to so long.

        Partitions are paused each time: some may have come with a rebalance.
        """
        if self.on():
            self._silent = True
            source.pause()
            source.attend(wait_s)
            self._place(source)
            return True
        if self._silent:
            source.resume()  # raises when no broker answers: then again with the next turn
            self._silent = False
        return False

    def _place(self, source: Source) -> None:
        """Look up where partitions are that came meanwhile: their lag is counted from there."""
        unknown = source.assignment() - source.processed().keys()
        if unknown and unknown != self._asked:
            stable = source.committed(unknown)
            source.mark_processed(
                {where: told for where, told in stable.items() if told is not None}
            )
            self._asked = unknown


def claims_answer(claims: Claims | None) -> bool:
    """Whether the claim store answers, where there is one."""
    try:
        if claims is not None:
            claims.ping()
    except ClaimsUnavailableError:
        return False
    return True
