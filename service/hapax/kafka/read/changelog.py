"""The changelog of keyed state (core/keyed_state.py), read from an offset to its end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from hapax.core.errors import StopError
from hapax.core.headers import SOURCE
from hapax.core.state import ChangelogPiece, entry_of
from hapax.kafka.admin.topics import cluster_id, topic_ids, topic_settings
from hapax.kafka.errors import NO_TEXT, client_headers, offset_of
from hapax.kafka.read.offsets_client import BlockingOffsets, reader_properties
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.records import TopicPartition
    from hapax.core.state import Changes
    from hapax.settings import Settings

_DAY_MS, _MESSAGE_BYTES = 86_400_000, 1_048_588
"""Kafka's defaults of delete.retention.ms and max.message.bytes."""
OVERHEAD_BYTES: Final = 500
"""Of a record beyond its key and value, in a set of its own."""


class Changelog:
    """Reads partitions of one changelog. Methods raise PreflightError when no broker answers.

    kept_s     half of the time for which deleted entries stay in the log
    bytes_max  largest key and value of an entry
    """

    def __init__(self, settings: Settings) -> None:
        """Ask what the topic is; its settings are taken for Kafka's where they may not be read."""
        self._settings = settings
        self.topic = settings.state_topic
        found = topic_settings(reader_properties(settings), {self.topic})
        self._configured = found.get(self.topic, {})
        self.kept_s = self._number("delete.retention.ms", _DAY_MS) / 2000
        self.bytes_max = self._number("max.message.bytes", _MESSAGE_BYTES) - OVERHEAD_BYTES

    def _number(self, name: str, usual: int) -> int:
        return int(self._configured.get(name, usual))

    def problems(self, topic: str) -> Iterator[str]:
        """Yield why it cannot hold the state of this input."""
        what = f"HAPAX_TRANSFORM: topic {self.topic}, which keeps its state,"
        with closing(BlockingOffsets(self._settings)) as client:
            partitions = len(client.partitions([topic]))
            count = 0 if client.absent([self.topic]) else len(client.partitions([self.topic]))
        policy = self._configured.get("cleanup.policy", "compact")
        if count != partitions:
            has = f"has {count} partitions" if count else "does not exist or may not be read"
            yield (
                f"{what} {has}, and the input has {partitions}: create it with as many, and"
                " cleanup.policy=compact"
            )
        elif policy != "compact":
            yield (
                f"{what} has cleanup.policy={policy}, which deletes what is not changed for a"
                " while: set it to compact"
            )

    def ids(self, topic: str) -> tuple[str, ...]:
        """Return Kafka's ids of the cluster, of an input topic and of the changelog."""
        found = topic_ids(self._settings, (topic, self.topic))
        return cluster_id(self._settings), str(found.get(topic)), str(found.get(self.topic))

    def span(self, partition: int) -> tuple[int, int]:
        """Return where the log begins, and where it ends now, open transactions included.

        Those are waited for by who reads: what is committed with an offset of the group may be
        visible a moment later than that. StopError: there is no such partition.
        """
        where: TopicPartition = (self.topic, partition)
        with closing(BlockingOffsets(self._settings)) as client:
            if where not in client.partitions([self.topic]):
                raise StopError(
                    f"topic {self.topic}, which keeps the state, has no partition {partition}: add"
                    " partitions until it has as many as the input"
                )
            low, high = client.log_starts([where]), client.high_watermarks([where])
        return low[where], high[where]

    def read(self, where: TopicPartition, start: int, end: int) -> Iterator[ChangelogPiece]:
        """Yield what committed transactions have changed, in order."""
        partition, place = where[1], f"{where[0]}/{where[1]}/".encode()
        spans = {(self.topic, partition): (start, end)}
        # Of millions of messages: no more is taken from each than is needed.
        for found in RangeReader(self._settings).messages(spans):
            changes: Changes = {}
            source = -1
            for message in found:
                key = message.key()
                if key is None:
                    continue
                changes[entry_of(partition, key)] = message.value()
                for name, value in _headers(message):
                    if name == SOURCE and value and value.startswith(place):
                        digits = value[len(place) :]
                        if digits.isdigit() and (at := int(digits)) > source:
                            source = at
            yield ChangelogPiece(changes, offset_of(found[-1]) + 1, source)


def _headers(message: Any) -> Any:
    try:
        return client_headers(message) or ()
    except NO_TEXT:  # a name that is not UTF-8
        return ()
