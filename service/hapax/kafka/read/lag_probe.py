"""Offsets of logs for the lag monitor: starts, last stable offsets, ends, ages, retention.

Called from a thread of its own (engines/lag_monitor.py). Every request is bounded, a broker that is
away hides its own partitions only, and what fails is part of the answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.core.lag import OffsetSnapshot, retention_of
from hapax.core.oldest_unread import TimestampSearch
from hapax.kafka.connection import answers, unanswered
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offset_queries import REQUEST_TIMEOUT_S, OffsetQueries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.lag import Retention
    from hapax.core.records import Progress

RETENTION_INTERVAL_S = 600.0
"""The configuration of a topic changes so rarely that an alert may be ten minutes late for it."""


class KafkaLagProbe:
    """Asks for the marks of input partitions, and of all partitions of ``outputs``."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        outputs: Sequence[str],
        *,
        logger: object,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Connect to nothing yet. ``properties``: where the brokers are, and how to get in."""
        self._properties = admin_properties(properties)
        self._outputs = tuple(dict.fromkeys(outputs))
        self._logger = logger
        self._wall_s = wall_s
        self._queries: OffsetQueries | None = None
        self._retention: dict[str, Retention] = {}
        self._retention_due_s = 0.0
        self._remarked: set[str] = set()

    def probe(self, committed: Progress) -> OffsetSnapshot:
        """Return what brokers answer now; what they do not answer is in ``failures``."""
        snapshot = OffsetSnapshot(self._wall_s())
        client = self._client()
        try:
            self._query(snapshot, committed, client)
        except KafkaException as error:
            snapshot.failures.append(describe(error.args[0]))
        snapshot.failures += [str(one) for one in client.take_errors()]
        if snapshot.failures:
            self._queries = None  # with what it knew of leaders, and of connections
            if not snapshot.offsets:
                snapshot.away = self.unanswered()
        snapshot.retention = self._retention
        return snapshot

    def unanswered(self) -> str:
        """Return the addresses with what is wrong there; empty while any broker answers."""
        topic = self._outputs[0] if self._outputs else None
        if answers(self._client().read_uncommitted, REQUEST_TIMEOUT_S, topic):
            return ""
        self._queries = None  # it may be cut off (kafka/consume/silence.py)
        return unanswered(str(self._properties["bootstrap.servers"]))

    def _client(self) -> OffsetQueries:
        if self._queries is None:
            self._queries = OffsetQueries(
                {**self._properties, "group.id": "lag-monitor"}, self._logger
            )
        return self._queries

    def _query(self, snapshot: OffsetSnapshot, committed: Progress, client: OffsetQueries) -> None:
        partitions = set(committed)
        for topic in self._outputs:
            partitions.update(client.partitions(topic))
        snapshot.offsets = client.log_offsets(sorted(partitions))
        unread = {
            where: max(committed[where], log.log_start)
            for where, log in snapshot.offsets.items()
            if where in committed and max(committed[where], log.log_start) < log.high_watermark
        }
        search = TimestampSearch(unread, snapshot.at_s)
        while questions := search.questions():
            search.answer(client.offsets(questions))
        snapshot.unread_s = search.times_s()
        if not client.errors and time.monotonic() >= self._retention_due_s:
            self._retention_due_s = time.monotonic() + RETENTION_INTERVAL_S
            client.forget_leaders()
            self._look_up_retention({topic for topic, _ in committed}, snapshot)

    def _look_up_retention(self, topics: Iterable[str], snapshot: OffsetSnapshot) -> None:
        """Ask how topics keep their records.

        Rarely, and only while all brokers answer: an admin call that a broker dies under can end
        the process (docs/non-obvious.md).
        """
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        if not asked:
            return
        admin = AdminClient(self._properties, logger=self._logger)
        answers = admin.describe_configs(asked, request_timeout=REQUEST_TIMEOUT_S)
        for resource, answer in answers.items():
            try:
                entries = answer.result(REQUEST_TIMEOUT_S * 2)
            except KafkaException as error:
                if error.args[0].code() in FORBIDDEN:
                    self._remark(snapshot, resource.name, describe(error.args[0]))
                else:
                    snapshot.failures.append(f"{resource.name}: {describe(error.args[0])}")
                continue
            except TimeoutError:
                snapshot.failures.append(
                    f"{resource.name}: its configuration was not returned in time"
                )
                continue
            found = retention_of({name: entry.value for name, entry in entries.items()})
            if found is not None:
                self._retention = self._retention | {resource.name: found}

    def _remark(self, snapshot: OffsetSnapshot, topic: str, reason: str) -> None:
        if topic not in self._remarked:
            self._remarked.add(topic)
            snapshot.remarks.append(
                f"{topic}: its retention cannot be read ({reason}); grant DescribeConfigs on the "
                "topic for the retention metrics"
            )
