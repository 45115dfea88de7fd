"""A process that stays a member and takes nothing: for an operator, or for the claim store.

Partitions that wait for a schema are held one by one, so that the others continue. The schemas
themselves are looked for in the background (schemas/lookup.py); here it is only asked whether they
have come.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from hapax.core.errors import ClaimsUnavailableError, PreflightError, SchemasUnavailableError
from hapax.schemas.codec import check_output
from hapax.schemas.lookup import lookup_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.claim_store import ClaimStore
    from hapax.core.ports import Claims, Source
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Lifecycle, Process
    from hapax.schemas.lookup import Lookup
    from hapax.settings import Settings
    from hapax.telemetry.events import Events


LOOK_S: Final = 60.0
"""Between two checks of the claim store."""
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
    ``waits``: nothing is taken until it does; otherwise records continue unchecked.
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


class Schemas(Protocol):
    """Schemas that step 4 needs, by key; looked for in the background."""

    def want(self, key: str) -> None:
        """Look for one, unless it is known."""

    def missing(self, key: str) -> bool: ...


class SchemaHold:
    """Holds partitions, and releases each when its schema has come."""

    def __init__(self, process: Process, schemas: Schemas) -> None:
        self._events = process.events
        self._clock = process.clock
        self._schemas = schemas
        self._waiting: dict[TopicPartition, str] = {}
        self._ask_s = 0.0

    def add(self, error: SchemasUnavailableError) -> None:
        """Let the partition of a record wait that needs a schema; it is held by ``attend``."""
        if error.where is not None:
            self._schemas.want(error.key)
            self._waiting[error.where] = error.key
            self._events.schemas_unavailable(str(error), error.where)
            self._ask_s = self._clock.monotonic() + ASK_S

    def attend(self, source: Source) -> None:
        """Hold again each time: partitions leave and come back, and others release them too."""
        if not self._waiting:
            return
        look = self._clock.monotonic() >= self._ask_s
        for where, key in list(self._waiting.items()):
            waits = not look or self._schemas.missing(key)
            source.hold(where, held=waits)
            if not waits:
                del self._waiting[where]
        if look:
            self._ask_s = self._clock.monotonic() + ASK_S
        if not self._waiting:
            self._events.schemas_recovered()


def schema_hold(process: Process, settings: Settings) -> SchemaHold | None:
    formats = settings.formats
    return SchemaHold(process, _lookup(process, settings)) if formats.needs_registry else None


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
                raise PreflightError([str(error)]) from None
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
