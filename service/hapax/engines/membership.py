"""A member of the group: what rebalances bring, its start, and when it takes nothing.

It takes nothing for an operator, or while the claim store is away. Partitions that wait for a
schema are held one by one, so that the others continue; the schemas themselves are looked for in
the background (schemas/lookup.py), and here it is only asked whether they have come.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from hapax.core.errors import (
    BatchAbortedError,
    ClaimsUnavailableError,
    MemberFencedError,
    PreflightError,
    ProducerDeadError,
    SchemasUnavailableError,
)
from hapax.schemas.codec import check_output
from hapax.schemas.lookup import lookup_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hapax.core.ports import Changes, Claims, Clock, Source, Transaction
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Lifecycle, Process
    from hapax.processing.batch_result import BatchResult
    from hapax.schemas.lookup import Lookup
    from hapax.settings import Settings
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


def tell_reading(changes: Changes, events: Events) -> None:
    for where, count in changes.repeated.items():
        events.records_redelivered(count, where)
    if changes.routes_lost:
        events.native_route_lost(changes.routes_lost)
    if changes.native_left:
        events.native_path_left(changes.native_left)


def tell_committed(result: BatchResult, events: Events) -> None:
    events.transaction_committed(result)
    for coordinates, failure in result.dead_letter_examples:
        events.dead_letter_written(coordinates, failure.reason, failure.attempts, failure.text)


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
        tell_reading(changes, events)
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


# -- The producer's registration, alongside all else that a start has to wait for -----------------


START_TIMEOUT_S = 120.0
"""Longest wait for brokers that answer metadata requests and nothing else."""
WAIT_S = 0.02
AWAY_INTERVAL_S = 6.0
"""Longer than one try of the producer: its last failure may be older than the first answer."""


class Opening(threading.Thread):
    """Registers the producer while the consumer joins: both wait mostly for brokers."""

    TIMEOUT_S = START_TIMEOUT_S + 60.0
    """Beyond it a call of the client hangs; the watchdog sees only the engine's thread."""

    def __init__(self, transaction: Transaction, process: Process) -> None:
        super().__init__(name="opening", daemon=True)
        self._transaction = transaction
        self._process = process
        self._lifecycle = process.lifecycle
        self._failure: BaseException | None = None
        self._abandoned = False
        self._unanswered = False
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Try until it works, it cannot work, or nothing waits any more."""
        while not (self._abandoned or self._lifecycle.stopping):
            try:
                self._transaction.open()
            except ProducerDeadError as error:
                self._failure = PreflightError(f"the producer cannot start: {error}")
                self._unanswered = error.unanswered
                if error.unanswered:
                    # Waited for as long as it takes; the time is for brokers that answer.
                    self._began_s = time.monotonic()
                if time.monotonic() < self._began_s + START_TIMEOUT_S:
                    continue
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._failure = error
            else:
                self._failure = None
            return

    def abandon(self) -> None:
        self._abandoned = True

    def attend(self, source: Source, unanswered: Callable[[], str]) -> None:
        """Join the group while the producer registers; raise why it could not."""
        clock, events = self._process.clock, self._process.events
        told_s = clock.monotonic()
        while self.is_alive():
            if self._unanswered and clock.monotonic() - told_s > AWAY_INTERVAL_S:
                told_s = clock.monotonic()
                events.brokers_unreachable(unanswered())
            try:
                with suppress(BatchAbortedError):  # positions are looked up by the first take
                    source.attend(WAIT_S)
            except MemberFencedError:
                source.reopen()
            if time.monotonic() - self._began_s > self.TIMEOUT_S:
                raise PreflightError(f"no producer after {self.TIMEOUT_S:.0f} s: a call hangs")
        if events.brokers_are_away:
            events.brokers_reached()
        self.join()
        if self._failure is not None and not self._lifecycle.stopping:
            raise self._failure


# -- A member that takes nothing ------------------------------------------------------------------


LOOK_S: Final = 60.0
"""Between two checks of the claim store."""
HOLD_S = 0.2
"""Between two questions whether a store that was away is back."""
ASK_S = 0.2
"""Between two looks: also the least time that a partition is held."""


class Hold:
    """Follows the operator's wish, which is in memory alone: a restart forgets it."""

    def __init__(self, lifecycle: Lifecycle, events: Events) -> None:
        self._lifecycle = lifecycle
        self._events = events
        self._held = False
        self._silent = False
        self._asked: frozenset[TopicPartition] = frozenset()

    def on(self) -> bool:
        paused = self._lifecycle.paused
        if paused != self._held:
            self._held = paused
            if paused:
                self._events.intake_paused()
            else:
                self._events.intake_resumed()
        return paused

    def attend(self, source: Source, wait_s: float) -> bool:
        """Attend for so long if nothing may be taken; pause each time: partitions may come."""
        if self.on():
            self._silent = True
            source.pause("operator")
            source.attend(wait_s)
            self._place(source)
            return True
        if self._silent:
            source.resume("operator")  # raises without brokers: then again with the next turn
            self._silent = False
        return False

    def _place(self, source: Source) -> None:
        """Look up where partitions are that came meanwhile: their lag is counted from there."""
        unknown = source.assignment() - source.processed().keys()
        if unknown and unknown != self._asked:
            stable = source.committed(unknown)
            source.mark_processed({where: at for where, at in stable.items() if at is not None})
            self._asked = unknown


class ClaimsWatch:
    """Looks now and then whether the claim store answers, and whether it keeps claims.

    An idle loop would not learn it, and answers about ids do not show that claims were deleted.
    ``waits``: nothing is taken until it does; otherwise records continue unchecked.
    """

    def __init__(self, events: Events, claims: Claims | None, *, waits: bool) -> None:
        self._events = events
        self._claims = claims
        self._waits = waits
        self._due_s = -LOOK_S
        self._away: tuple[float, str] | None = None
        """Since when it does not answer, as far as is known, and why."""
        self._ask_s = 0.0

    def look(self, now_s: float) -> None:
        """Look where it is due; raise ClaimsUnavailableError where that is to be waited for."""
        if self._claims is None or now_s < self._due_s:
            return
        self._due_s = now_s + LOOK_S
        reason = self.problem()
        if reason and self._waits:
            raise ClaimsUnavailableError(reason)
        if reason:
            self._away = self._away or (now_s, reason)
            self._events.claims_unavailable(reason, "pass")
        else:
            self._recover(now_s)

    def problem(self) -> str:
        try:
            if self._claims is not None:
                self._claims.ping()
        except ClaimsUnavailableError as error:
            return str(error)
        return ""

    def hold(self, reason: str, now_s: float) -> None:
        """Take nothing from here on; ``reason``: why the store does not answer."""
        since_s, told = self._away or (now_s, "")
        if reason != told:
            self._events.claims_unavailable(reason, "pause")
        if self._away is None:
            self._ask_s = now_s + HOLD_S
        self._away = since_s, reason

    def holding(self, now_s: float) -> bool:
        """Whether nothing may be taken; asks the store now and then."""
        if self._away is None or not self._waits:
            try:
                self.look(now_s)
            except ClaimsUnavailableError as error:
                self.hold(str(error), now_s)
        elif now_s >= self._ask_s:
            self._ask_s = now_s + HOLD_S
            if reason := self.problem():
                self.hold(reason, now_s)
            else:
                self._recover(now_s)
        return self._waits and self._away is not None

    def _recover(self, now_s: float) -> None:
        if self._away is not None:
            self._events.claims_recovered(now_s - self._away[0])
            self._away = None


class PartitionHold(Protocol):
    """Holds single partitions, so that the others continue."""

    def add(self, error: Exception) -> None:
        """Let the partitions wait that this error names; other errors mean nothing to it."""

    def attend(self, source: Source) -> None:
        """Hold what waits, and release what waits no more. Raises StopError."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Take note that these were assigned or have left."""


class SchemaHold:
    """Holds partitions, and releases each when its schema has come."""

    def __init__(self, process: Process, schemas: Lookup) -> None:
        self._events = process.events
        self._clock = process.clock
        self._schemas = schemas
        self._waiting: dict[TopicPartition, str] = {}
        self._ask_s = 0.0

    def add(self, error: Exception) -> None:
        """Let the partition of a record wait that needs a schema; it is held by ``attend``."""
        if isinstance(error, SchemasUnavailableError) and error.where is not None:
            self._schemas.want(error.key)
            self._waiting[error.where] = error.key
            self._events.schemas_unavailable(str(error), error.where)
            self._ask_s = self._clock.monotonic() + ASK_S

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget nothing: what comes back waits on."""

    def attend(self, source: Source) -> None:
        """Hold again each time: partitions leave and come back."""
        if not self._waiting:
            return
        look = self._clock.monotonic() >= self._ask_s
        for where, key in list(self._waiting.items()):
            waits = not look or self._schemas.missing(key)
            source.hold(where, "schema", held=waits)
            if not waits:
                del self._waiting[where]
        if look:
            self._ask_s = self._clock.monotonic() + ASK_S
        if not self._waiting:
            self._events.schemas_recovered()


def schema_hold(process: Process, settings: Settings) -> list[SchemaHold]:
    formats = settings.formats
    return [SchemaHold(process, _lookup(process, settings))] if formats.needs_registry else []


def await_output_schema(process: Process, settings: Settings) -> bool:
    """Wait at the start for the schema of the outputs; return whether to continue.

    Raises ConfigurationError where waiting is of no use. A bounded run was started by hand or by a
    schedule that wants to know now, so it ends with PreflightError.
    """
    if not settings.formats.needs_registry:
        return True
    lookup, away = _lookup(process, settings), False
    while not process.lifecycle.stopping:
        try:
            check_output(settings.formats, lookup)
        except SchemasUnavailableError as error:
            if error.refused or settings.bounded:
                raise PreflightError(str(error)) from None
            away = True
            process.events.schemas_unavailable(str(error))
        else:
            if away:
                process.events.schemas_recovered()
            return True
        process.lifecycle.rest(ASK_S)
    return False


def _lookup(process: Process, settings: Settings) -> Lookup:
    found = lookup_of(settings.formats)
    found.on_trouble = process.events.schema_file_unusable
    return found
