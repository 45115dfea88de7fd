"""Offsets of partitions and of a group, for the commands: nothing is joined or consumed."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import PreflightError
from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.connection import no_broker, require_listener
from hapax.kafka.errors import COORDINATOR_MOVES, FORBIDDEN, UNKNOWN_TOPIC, describe, of_group
from hapax.kafka.properties import consumer_properties
from hapax.kafka.read.offset_queries import EARLIEST, LATEST, OffsetQueries, list_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Consumer, TopicPartition

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

ANSWER_TIMEOUT_S, BROKERS_TIMEOUT_S = 30.0, 10.0
_REST_S = 0.2
_MEMBERSHIP = (
    "group.instance.id",
    "group.protocol",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    # The client wants it to be longer than the session's time, which is the default here (45 s).
    "max.poll.interval.ms",
)


def reader_properties(settings: Settings) -> dict[str, Any]:
    """Return those of a consumer that belongs to no group, on the service's own way to Kafka."""
    properties = unjoined(consumer_properties(settings))
    return properties | {"client.id": f"{settings.app}-audit", "log_level": 0}


def unjoined(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a consumer's properties without those of its membership."""
    return {name: value for name, value in properties.items() if name not in _MEMBERSHIP}


def input_logs(settings: Settings) -> dict[Where, LogOffsets]:
    """Return where the logs of the inputs begin and end; raises as ``OffsetClient``."""
    with closing(OffsetClient(settings)) as client:
        return client.log_offsets(client.partitions(settings.input.topics))


class OffsetClient:
    """Asks brokers for offsets. Raises PreflightError when they do not answer."""

    def __init__(self, settings: Settings, more: Mapping[str, Any] | None = None) -> None:
        """Connect to nothing yet. ``more``: properties for what else its consumers do."""
        self._settings = settings
        self._properties = reader_properties(settings) | dict(more or {})
        self._queries = OffsetQueries(self._properties)
        _ = self._queries.read_committed  # refuses properties that the client does not take

    def close(self) -> None:
        """Close the connections."""
        self._queries.close()

    @property
    def queries(self) -> OffsetQueries:
        """What holds the consumers."""
        return self._queries

    def partitions(self, topics: Iterable[str] | None) -> list[Where]:
        """Return all partitions of the topics, in order; a topic that is not there is refused.

        None: of all topics that this user may see.
        """
        known = self._known()
        topics = sorted(known) if topics is None else list(topics)
        absent = [topic for topic in topics if topic not in known]
        if absent:
            raise PreflightError(
                [f"topic {topic} does not exist or may not be read" for topic in absent]
            )
        return [(topic, number) for topic in topics for number in sorted(known[topic])]

    def absent(self, topics: Iterable[str]) -> set[str]:
        """Return the topics that are not there."""
        wanted = set(topics)
        return wanted - self._known().keys() if wanted else set()

    def leaders(self) -> dict[Where, tuple[str, int]]:
        """Return where the leader of each partition listens; those without one are left out."""
        found = self._metadata()
        brokers = {number: (one.host, one.port) for number, one in found.brokers.items()}
        return {
            (name, number): brokers[partition.leader]
            for name, topic in found.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader in brokers
        }

    def _known(self) -> dict[str, dict[int, Any]]:
        return {
            name: each.partitions
            for name, each in self._metadata().topics.items()
            if each.error is None
        }

    def cluster_id(self) -> str | None:
        """Return Kafka's id of the cluster that answers (KIP-78)."""
        found: str | None = self._metadata().cluster_id
        return found

    def _metadata(self) -> Any:
        require_listener(self._settings)
        try:
            return self._queries.read_committed.list_topics(timeout=BROKERS_TIMEOUT_S)
        except KafkaException as error:
            raise no_broker(self._settings, error) from error

    def log_starts(self, partitions: Iterable[Where]) -> Progress:
        """Return the first offsets that are still there."""
        return self._offsets(self._queries.read_committed, partitions, EARLIEST)

    def last_stable(self, partitions: Iterable[Where]) -> Progress:
        """Return the last stable offsets: where a read_committed reader comes to."""
        return self._offsets(self._queries.read_committed, partitions, LATEST)

    def high_watermarks(self, partitions: Iterable[Where]) -> Progress:
        """Return the ends of the logs, open transactions included."""
        return self._offsets(self._queries.read_uncommitted, partitions, LATEST)

    def log_offsets(self, partitions: Iterable[Where]) -> dict[Where, LogOffsets]:
        """Return where the logs begin and end."""
        places = list(partitions)
        starts, highs = self.log_starts(places), self.high_watermarks(places)
        # After the ends: what the last stable offset has passed meanwhile is decided.
        stable = self.last_stable(places)
        return {
            where: LogOffsets.of(starts[where], stable[where], highs[where]) for where in places
        }

    def at_time(self, partitions: Iterable[Where], time_ms: int) -> Progress:
        """Return the first offsets from that time on; partitions without any are left out."""
        return self._offsets(self._queries.read_committed, partitions, max(time_ms, 0))

    def committed(
        self, partitions: Iterable[Where], *, stable: bool = True
    ) -> dict[Where, int | None]:
        """Return the offsets of the pipeline's group; None where there is none.

        ``stable``: wait for transactions that carry an offset to be decided. Else the offset
        before them is told at once.
        """
        answers = self.answers(partitions, stable=stable)
        return {where: one.offset if one.offset >= 0 else None for where, one in answers.items()}

    def beside(
        self, partitions: Iterable[Where], *, stable: bool = True
    ) -> dict[Where, CommittedMetadata]:
        """Return what stands beside the group's offsets; ``stable`` as above."""
        answers = self.answers(partitions, stable=stable)
        return {where: CommittedMetadata.of(one) for where, one in answers.items()}

    def answers(self, partitions: Iterable[Where], *, stable: bool) -> dict[Where, TopicPartition]:
        """Return committed offsets as the client hands them out; ``stable`` as above.

        A coordinator that has just started is asked again.
        """
        places = list(partitions)
        timeout_s = ANSWER_TIMEOUT_S if stable else BROKERS_TIMEOUT_S

        def asked() -> dict[Where, TopicPartition]:
            answers = self._queries.group_offsets(places, timeout_s, stable=stable)
            refused = [one.error for one in answers.values() if one.error is not None]
            if refused:
                final = [one for one in refused if one.code() not in COORDINATOR_MOVES]
                raise KafkaException(*final, *refused)
            return answers

        try:
            return of_group(asked, timeout_s)
        except KafkaException as error:
            reasons = "; ".join(dict.fromkeys(describe(one) for one in error.args))
            hint = "a transaction that carries them may be open"
            if KafkaError.GROUP_AUTHORIZATION_FAILED in {one.code() for one in error.args}:
                hint = f"grant DESCRIBE on group {self._settings.app}"
            problem = (
                f"the committed offsets of group {self._settings.app} cannot be read ({reasons});"
                f" {hint}"
            )
            raise PreflightError([problem]) from None

    def _offsets(self, consumer: Consumer, partitions: Iterable[Where], at: int) -> Progress:
        """Return offsets; a partition between two leaders is asked again for a while."""
        found: Progress = {}
        due = list(dict.fromkeys(partitions))
        give_up_s = time.monotonic() + BROKERS_TIMEOUT_S
        while due:
            try:
                answers, errors = list_offsets(consumer, dict.fromkeys(due, at), BROKERS_TIMEOUT_S)
            except KafkaException as error:
                answers, errors, final = {}, dict.fromkeys(due, error.args[0]), True
            else:
                codes = {error.code() for error in errors.values()}
                final = bool(codes & (FORBIDDEN | UNKNOWN_TOPIC))
            found |= {where: offset for where, offset in answers.items() if offset is not None}
            refused = {where: describe(error) for where, error in errors.items()}
            if refused and (final or time.monotonic() > give_up_s):
                raise PreflightError(
                    [
                        f"{topic}/{number}: its offsets cannot be read: {reason}"
                        for (topic, number), reason in refused.items()
                    ]
                )
            due = list(refused)
            if due:
                time.sleep(_REST_S)
        return found
