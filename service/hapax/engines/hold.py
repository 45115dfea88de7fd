"""A process that stays a member and takes nothing: for an operator, or for the claim store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hapax.core.errors import ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.claim_store import ClaimStore
    from hapax.core.ports import Claims, Source
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Lifecycle, Process
    from hapax.telemetry.events import Events

LOOK_S: Final = 60.0
"""Between two looks at the claim store."""


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


class ClaimsWatch:
    """Looks now and then whether the claim store answers, and whether it keeps claims.

    An idle loop would not learn it, and answers about ids do not show that claims were deleted.
    ``waits``: nothing is taken until it does; otherwise records go on unchecked.
    """

    def __init__(self, events: Events, claims: Claims | None, *, waits: bool) -> None:
        self._events = events
        self._claims = claims
        self._waits = waits
        self._due_s = -LOOK_S
        self._away_s: float | None = None

    def look(self, now_s: float) -> None:
        """Look where it is due; raise ClaimsUnavailableError where that is to be waited for."""
        if self._claims is None or now_s < self._due_s:
            return
        self._due_s = now_s + LOOK_S
        reason = self.problem()
        if reason and self._waits:
            raise ClaimsUnavailableError(reason)
        if reason:
            self._away_s = now_s if self._away_s is None else self._away_s
            self._events.claims_unavailable(reason, "pass")
        elif self._away_s is not None:
            self._events.claims_recovered(now_s - self._away_s)
            self._away_s = None

    def problem(self) -> str:
        """Return why it does not; empty: it does."""
        try:
            if self._claims is not None:
                self._claims.ping()
        except ClaimsUnavailableError as error:
            return str(error)
        return ""

    def wait(self, reason: str, process: Process, hold: Callable[[], None]) -> None:
        """Call ``hold`` until it does, or until the stop; ``reason``: why it does not."""
        told, clock = "", process.clock
        began_s = clock.monotonic()
        while not process.lifecycle.stopping:
            if reason != told:
                self._events.claims_unavailable(reason, "pause")
            told = reason
            hold()
            reason = self.problem()
            if not reason:
                self._events.claims_recovered(clock.monotonic() - began_s)
                return


def looked_at(claims: ClaimStore | None) -> ClaimStore | None:
    """Return a store that was just looked at: where it deletes claims, it refuses to claim."""
    if claims is not None:
        with suppress(ClaimsUnavailableError):
            claims.ping()
    return claims
