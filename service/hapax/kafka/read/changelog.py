"""The changelog of keyed state (core/keyed_state.py), read from an offset to its end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from hapax.core.errors import PreflightError
from hapax.core.headers import SOURCE, coordinates
from hapax.core.state import entry_of
from hapax.kafka.admin.topics import topic_settings
from hapax.kafka.client_log import kafkas_id
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.offsets_client import BlockingOffsets, reader_properties
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.records import TopicPartition
    from hapax.core.state import Changes
    from hapax.settings import Settings

_ANSWER_S = 30.0


class Piece(NamedTuple):
    """Some of a partition.

    changes  the last of each entry
    next     offset after them
    source   the highest offset of the input that they come from; -1: none says
    """

    changes: Changes
    next: int
    source: int


class Changelog:
    """Reads partitions of one changelog. Methods raise PreflightError when no broker answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.topic = settings.state_topic

    def problems(self, partitions: int) -> list[str]:
        """Return why it cannot hold the state of an input with so many partitions."""
        found = topic_settings(reader_properties(self._settings), {self.topic})
        with closing(BlockingOffsets(self._settings)) as client:
            count = 0 if client.absent([self.topic]) else len(client.partitions([self.topic]))
        policy = found.get(self.topic, {}).get("cleanup.policy", "compact")
        if count != partitions:
            has = f"has {count} partitions" if count else "does not exist or may not be read"
            problem = (
                f"HAPAX_TRANSFORM: topic {self.topic}, which keeps its state, {has}, and the input"
                f" has {partitions}: create it with as many, and cleanup.policy=compact"
            )
            return [problem]
        if policy != "compact":
            problem = (
                f"HAPAX_TRANSFORM: topic {self.topic}, which keeps its state, has"
                f" cleanup.policy={policy}, which deletes what is not changed for a while: set it"
                " to compact"
            )
            return [problem]
        return []

    def ids(self, topic: str) -> tuple[str, ...]:
        """Return Kafka's ids of the cluster, of an input topic and of the changelog."""
        admin = build(AdminClient, admin_properties(reader_properties(self._settings)), None)
        names = [topic, self.topic]
        try:
            answers = admin.describe_topics(TopicCollection(names), request_timeout=_ANSWER_S)
            found = [kafkas_id(str(answers[one].result(_ANSWER_S).topic_id)) for one in names]
            cluster = admin.list_topics(topic, timeout=_ANSWER_S).cluster_id
        except (KafkaException, TimeoutError) as error:
            inner = error.args[0] if isinstance(error, KafkaException) else error
            problem = f"the ids of {' and '.join(names)} cannot be read: {inner}"
            raise PreflightError([problem]) from error
        return (str(cluster), *map(str, found))

    def span(self, partition: int) -> tuple[int, int]:
        """Return where the log begins, and where it ends now, open transactions included.

        Those are waited for by who reads: what is committed with an offset of the group may be
        visible a moment later than that.
        """
        where: TopicPartition = (self.topic, partition)
        with closing(BlockingOffsets(self._settings)) as client:
            low, high = client.log_starts([where]), client.high_watermarks([where])
        return low[where], high[where]

    def read(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        """Yield what committed transactions have changed, in order."""
        spans = {(self.topic, partition): (start, end)}
        for found in RangeReader(self._settings).read(spans):
            changes: Changes = {}
            source = -1
            for record, _readable in found:
                if record.key is None:
                    continue
                changes[entry_of(partition, record.key)] = record.value
                for name, value in record.headers:
                    if name == SOURCE and (at := coordinates(value)) is not None:
                        source = max(source, at.offset)
            yield Piece(changes, found[-1].record.offset + 1, source)
