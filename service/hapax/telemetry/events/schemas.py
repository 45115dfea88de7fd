"""Events of schemas that records wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.telemetry.events.base import Narrator, named, printable

if TYPE_CHECKING:
    from hapax.core.records import TopicPartition


class SchemaEvents(Narrator):
    """A schema is not to be had, and later it is."""

    def schemas_unavailable(self, reason: str, partition: TopicPartition | None = None) -> None:
        """Say what is waited for, and which partition waits; None: the start does."""
        away = self._health.schemas_away
        self._health.schemas_away = self._outage(away, reason)
        self._metrics.schemas_missing.of().set(1)
        where = "" if partition is None else named(partition)
        if self._first("schemas_unavailable", where) or away is None:
            self._logger.error("schemas_unavailable", reason=printable(reason), partition=where)

    def schemas_recovered(self) -> None:
        """Say that nothing waits for a schema any more."""
        away, self._health.schemas_away = self._health.schemas_away, None
        self._metrics.schemas_missing.of().set(0)
        outage_s = 0.0 if away is None else self._monotonic_s() - away.began_s
        self._logger.info("schemas_recovered", outage_s=round(outage_s, 3))

    def schema_file_unusable(self, reason: str) -> None:
        """Log that a file of the schema cache was damaged, or could not be written."""
        if self._first("schema_file_unusable", reason):
            self._logger.warning("schema_file_unusable", reason=printable(reason))
