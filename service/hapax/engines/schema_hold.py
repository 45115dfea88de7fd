"""Partitions that wait for a schema: held one by one, so that the others continue.

The schemas themselves are looked for in the background (schemas/lookup.py); here it is only asked
whether they have come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hapax.core.errors import PreflightError, SchemasUnavailableError
from hapax.schemas.codec import check_output
from hapax.schemas.lookup import lookup_of

if TYPE_CHECKING:
    from hapax.core.ports import Source
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Process
    from hapax.schemas.lookup import Lookup
    from hapax.settings import Settings

ASK_S = 0.2
"""Between two looks: also the least time that a partition is held."""


class Schemas(Protocol):
    """Schemas that step 4 needs, by key; looked for in the background."""

    def want(self, key: str) -> None:
        """Look for one, unless it is known."""

    def missing(self, key: str) -> bool:
        """Whether one is still looked for."""


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
        """Hold what waits, release what need not wait any more; cheap where nothing waits.

        Held again each time: a partition may have left and come back meanwhile, and others release
        partitions, too.
        """
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
    """Return what holds partitions for schemas; None where no format has any."""
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
