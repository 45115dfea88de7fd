"""What Kafka says about partitions and a group, for the commands: nothing is joined or consumed.

Offsets are asked for by consumers, one for each isolation. The admin client's call for them ended
the whole process while brokers were killed (see end_offsets.py), which is when people look.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import PreflightError
from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.connection import no_broker, require_listener
from hapax.kafka.errors import COORDINATOR_MOVES, FORBIDDEN, UNKNOWN_TOPIC, describe
from hapax.kafka.group_state import admin_properties
from hapax.kafka.properties import build, consumer_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

ANSWER_TIMEOUT_S, BROKERS_TIMEOUT_S = 30.0, 10.0
_REST_S = 0.2
_LATEST, _EARLIEST = -1, -2
_MEMBERSHIP = (
    "group.instance.id",
    "group.protocol",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)


def reader_properties(settings: Settings) -> dict[str, Any]:
    """Return those of a consumer that belongs to no group, on the service's own way to Kafka."""
    properties = {
        name: value
        for name, value in consumer_properties(settings).items()
        if name not in _MEMBERSHIP
    }
    return properties | {"client.id": f"{settings.app}-audit", "log_level": 0}


class OffsetClient:
    """Asks brokers for offsets. Raises PreflightError when they do not answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._properties = reader_properties(settings)
        self._group = settings.app
        self._consumer = build(Consumer, self._properties, None)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        if "_plain" in self.__dict__:
            self._plain.close()

    @cached_property
    def _plain(self) -> Consumer:
        """Return a consumer that sees open transactions."""
        return build(Consumer, {**self._properties, "isolation.level": "read_uncommitted"}, None)

    def partitions(self, topics: Iterable[str]) -> list[Where]:
        """Return all partitions of the topics, in order; a topic that is not there is refused."""
        topics = list(topics)
        known = self._known()
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
            return self._consumer.list_topics(timeout=BROKERS_TIMEOUT_S)
        except KafkaException as error:
            raise no_broker(self._settings, error) from error

    def log_starts(self, partitions: Iterable[Where]) -> Progress:
        """Return the first offsets that are still there."""
        return self._offsets(self._consumer, partitions, _EARLIEST)

    def last_stable(self, partitions: Iterable[Where]) -> Progress:
        """Return the last stable offsets: where a read_committed reader comes to."""
        return self._offsets(self._consumer, partitions, _LATEST)

    def high_watermarks(self, partitions: Iterable[Where]) -> Progress:
        """Return the ends of the logs, open transactions included."""
        return self._offsets(self._plain, partitions, _LATEST)

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
        found = self._offsets(self._consumer, partitions, max(time_ms, 0))
        return {where: offset for where, offset in found.items() if offset >= 0}

    def committed(
        self, partitions: Iterable[Where], group: str | None = None, *, stable: bool = True
    ) -> dict[Where, int | None]:
        """Return the group's offsets (default: the pipeline's); None where there is none.

        ``stable``: wait for transactions that carry an offset to be decided. Else the offset
        before them is told at once.
        """
        answers = self._answers(partitions, group, stable=stable)
        return {where: one.offset if one.offset >= 0 else None for where, one in answers.items()}

    def beside(self, partitions: Iterable[Where]) -> dict[Where, CommittedMetadata]:
        """Return what stands beside the group's offsets."""
        answers = self._answers(partitions, None, stable=True)
        return {where: CommittedMetadata.decode(one.metadata) for where, one in answers.items()}

    def _answers(
        self, partitions: Iterable[Where], group: str | None, *, stable: bool
    ) -> dict[Where, TopicPartition]:
        """Ask for committed offsets; a coordinator that has just started is asked again."""
        group = group or self._group
        asked = [TopicPartition(*where) for where in partitions]
        consumer = self._consumer if stable else self._plain
        if group != self._group:
            consumer = build(Consumer, {**self._properties, "group.id": group}, None)
        timeout_s = ANSWER_TIMEOUT_S if stable else BROKERS_TIMEOUT_S
        give_up_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.1, give_up_s - time.monotonic())
            answers: list[TopicPartition] = []
            try:
                answers = consumer.committed(asked, left_s)
            except KafkaException as error:
                refused, passing = [error.args[0]], error.args[0].code() in COORDINATOR_MOVES
            else:
                refused = [one.error for one in answers if one.error is not None]
                passing = all(one.code() in COORDINATOR_MOVES for one in refused)
            if not refused:
                return {(one.topic, one.partition): one for one in answers}
            if not passing or time.monotonic() > give_up_s:
                reasons = "; ".join(dict.fromkeys(describe(one) for one in refused))
                raise PreflightError(
                    [
                        (
                            f"the committed offsets of group {group} cannot be read ({reasons});"
                            " a transaction that carries them may be open"
                        )
                    ]
                )
            time.sleep(_REST_S)

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Return the topics that are compacted, as far as we may know."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found = set()
        admin = AdminClient({**admin_properties(self._properties), "log_level": 0})
        answers = admin.describe_configs(asked, request_timeout=ANSWER_TIMEOUT_S)
        for resource, answer in answers.items():
            try:
                policy = answer.result(ANSWER_TIMEOUT_S)["cleanup.policy"].value
            except (KafkaException, TimeoutError):
                continue  # not allowed to look: the topic counts as one that keeps its records
            if "compact" in policy:
                found.add(resource.name)
        return found

    def _offsets(self, consumer: Consumer, partitions: Iterable[Where], at: int) -> Progress:
        """Return offsets; a partition between two leaders is asked again for a while."""
        found: Progress = {}
        due = list(dict.fromkeys(partitions))
        give_up_s = time.monotonic() + BROKERS_TIMEOUT_S
        while due:
            refused: dict[Where, str] = {}
            final = False
            try:
                asked = [TopicPartition(*where, at) for where in due]
                answers = consumer.offsets_for_times(asked, timeout=BROKERS_TIMEOUT_S)
            except KafkaException as error:
                final = True
                refused = dict.fromkeys(due, describe(error.args[0]))
                answers = []
            for one in answers:
                if one.error is None:
                    found[(one.topic, one.partition)] = one.offset
                else:
                    refused[(one.topic, one.partition)] = describe(one.error)
                    final |= one.error.code() in FORBIDDEN | UNKNOWN_TOPIC
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
