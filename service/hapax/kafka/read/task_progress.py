"""How far the tasks of a Spark application are, of which their driver hears when they end.

A task that stays commits for as long as HAPAX_SPARK__RANGE_INTERVAL before it reports: by its
driver's word alone, whatever arrived since would pass for lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from hapax.kafka.read.offset_client import reader_properties
from hapax.kafka.read.offset_queries import REQUEST_TIMEOUT_S, OffsetQueries

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.lag import GroupProgress
    from hapax.settings import Settings


class TaskProgress:
    """Asks the group about the partitions that the driver knows of. One thread only."""

    def __init__(self, settings: Settings, told: Callable[[], GroupProgress]) -> None:
        """Connect to nothing yet. ``told``: what reports have told."""
        self._queries = OffsetQueries(
            reader_properties(settings) | {"client.id": f"{settings.app}-lag"}
        )
        self._told = told

    def __call__(self) -> GroupProgress:
        """Return what is committed now; where the group does not answer, what was told."""
        progress = self._told()
        if not progress.committed:
            return progress
        try:
            # What hangs in a transaction is not waited for: some task always has one open.
            answers = self._queries.group_offsets(
                progress.committed, REQUEST_TIMEOUT_S, stable=False
            )
        except KafkaException:
            self._queries.close()
            return progress
        for where, answer in answers.items():
            if answer.error is None and answer.offset > progress.committed[where]:
                progress.committed[where] = answer.offset
        return progress
