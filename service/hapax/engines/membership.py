"""What rebalances bring, reported and answered: the same for every engine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapax.core.ports import Changes, Clock, Source
    from hapax.engines.lifecycle import Lifecycle
    from hapax.telemetry.events import Events

INFO, WARNING = 20, 30
ANSWERS_WAIT_S = 0.2
ORPHANS_AFTER_S, ORPHANS_INTERVAL_S = 5.0, 60.0
"""When to look for partitions without an owner: soon after an assignment, or after a look that
found nothing out, then now and then.
"""


def cut_off(source: Source, events: Events, *, now: bool = False) -> bool:
    """Return whether the consumer is to be built again, for no broker answers it; say so."""
    found = source.cut_off(now=now)
    events.consumer_answered(answered=source.answered)
    return found


def await_answers(source: Source, events: Events, lifecycle: Lifecycle) -> bool:
    """Let a consumer meet the brokers that have answered the producer; False: build it again."""
    while not lifecycle.stopping:
        if cut_off(source, events, now=True):
            return False
        if source.answered:
            break
        source.attend(ANSWERS_WAIT_S)
        events.loop_moved()
    return True


class Membership:
    """This process's place in the group."""

    def __init__(self, source: Source, events: Events, clock: Clock) -> None:
        self._source = source
        self._events = events
        self._clock = clock
        self._orphans_due_s = math.inf

    def observe(self) -> Changes:
        changes, events = self._source.changes(), self._events
        if changes.revoked:
            events.partitions_revoked(changes.revoked)
        if changes.lost:
            events.partitions_lost(changes.lost)
        if changes.assigned is not None:  # an empty assignment is one, too: a standby is ready
            events.partitions_assigned(changes.assigned)
        for text in changes.errors:
            events.librdkafka_logged("consumer", WARNING, "ERROR", text)
        for text in changes.passing:
            events.librdkafka_logged("consumer", INFO, "ERROR", text)
        for where, count in changes.repeated.items():
            events.records_redelivered(count, where)
        if changes.routes_lost:
            events.native_route_lost(changes.routes_lost)
        if changes.native_left:
            events.native_path_left(changes.native_left)
        if changes.assigned is not None:
            self._orphans_due_s = self._clock.monotonic() + ORPHANS_AFTER_S
        return changes

    def adopt_orphans(self) -> None:
        """Look for partitions without an owner, when it is time.

        Not part of ``observe``: when brokers do not answer this raises, and what changed must have
        been taken note of by then.
        """
        now_s = self._clock.monotonic()
        if now_s > self._orphans_due_s:
            self._orphans_due_s = now_s + ORPHANS_AFTER_S
            found = self._source.adopt_orphans()
            if found is not None:
                self._orphans_due_s = now_s + ORPHANS_INTERVAL_S
            if found:
                self._events.partitions_unowned(found)
