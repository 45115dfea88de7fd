"""Offsets of logs for the lag monitor: starts, last stable offsets, ends, ages, retention.

Called from a thread of its own (engines/lag_monitor.py). Every request is bounded, a broker that is
away hides its own partitions only, and what fails is part of the answer. The client's admin call
for offsets is not used, for the reasons in end_offsets.py; two consumers that never join anything
ask, because a client has one isolation level for all its questions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.core.lag import OffsetSnapshot, retention_of
from hapax.core.oldest_unread import TimestampSearch
from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.group_state import admin_properties
from hapax.kafka.read.leaders import Leaders
from hapax.kafka.tcp_probe import unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.lag import Retention
    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where

REQUEST_TIMEOUT_S = 1.0
RETENTION_INTERVAL_S = 600.0
"""Topics are configured anew so rarely that an alert may be ten minutes late for it."""
EARLIEST, LATEST = -2, -1


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
        self._clients: _Clients | None = None
        self._retention: dict[str, Retention] = {}
        self._retention_due_s = 0.0
        self._remarked: set[str] = set()

    def probe(self, committed: Progress) -> OffsetSnapshot:
        """Return what brokers tell now; what they do not tell stands under ``failures``."""
        snapshot = OffsetSnapshot(self._wall_s())
        try:
            self._ask(snapshot, committed)
        except KafkaException as error:
            snapshot.failures.append(_told(error))
        if snapshot.failures:
            self._clients = None  # with what it knew of leaders, and of connections
            if not snapshot.offsets:
                snapshot.away = self.unanswered()
        snapshot.retention = self._retention
        return snapshot

    def unanswered(self) -> str:
        """Return the addresses with what is wrong there; empty while any broker answers."""
        clients = self._clients = self._clients or _Clients(self._properties, self._logger)
        try:
            clients.plain.list_topics(self._outputs[0], timeout=REQUEST_TIMEOUT_S)
        except KafkaException:
            return unanswered(str(self._properties["bootstrap.servers"]))
        return ""

    def _ask(self, snapshot: OffsetSnapshot, committed: Progress) -> None:
        clients = self._clients = self._clients or _Clients(self._properties, self._logger)
        partitions = set(committed)
        for topic in self._outputs:
            partitions.update(clients.leaders.of_topic(topic))
        groups = clients.leaders.groups(sorted(partitions))
        # In the order of the log, so that no figure is beyond one to its right; ends before stable
        # ends: the other way round every record between the two questions would look like one of
        # an open transaction. What came in between belongs to the end as well.
        lows = _offsets(clients.plain, groups, EVERY_BEGINNING, snapshot.failures)
        ends = _offsets(clients.plain, groups, EVERY_END, snapshot.failures)
        stable = _offsets(clients.stable, groups, EVERY_END, snapshot.failures)
        for where in ends.keys() & stable.keys() & lows.keys():
            low, last_stable, end = lows[where], stable[where], ends[where]
            if low is not None and last_stable is not None and end is not None:
                snapshot.offsets[where] = LogOffsets.of(low, last_stable, end)
        self._find_ages(snapshot, committed, clients)
        if not snapshot.failures and time.monotonic() >= self._retention_due_s:
            self._retention_due_s = time.monotonic() + RETENTION_INTERVAL_S
            clients.leaders.forget()
            self._look_up_retention({topic for topic, _ in committed}, snapshot)

    def _find_ages(self, snapshot: OffsetSnapshot, committed: Progress, clients: _Clients) -> None:
        unread = {
            where: max(committed[where], offsets.log_start)
            for where, offsets in snapshot.offsets.items()
            if where in committed
            and max(committed[where], offsets.log_start) < offsets.high_watermark
        }
        ages = TimestampSearch(unread, snapshot.at_s)
        while questions := ages.questions():
            groups = clients.leaders.groups(sorted(questions))
            ages.answer(_offsets(clients.plain, groups, questions.__getitem__, snapshot.failures))
        snapshot.unread_s = ages.times_s()

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
                    snapshot.failures.append(f"{resource.name}: {_told(error)}")
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


class _Clients:
    """Two consumers that ask, one for each isolation level."""

    def __init__(self, properties: Mapping[str, Any], logger: object) -> None:
        common = {**properties, "group.id": "lag-monitor", "enable.auto.commit": False}
        self.plain = Consumer({**common, "isolation.level": "read_uncommitted"}, logger=logger)
        self.stable = Consumer({**common, "isolation.level": "read_committed"}, logger=logger)
        self.leaders = Leaders(self.plain, REQUEST_TIMEOUT_S)


def _latest(_where: Where) -> int:
    return LATEST


def _earliest(_where: Where) -> int:
    return EARLIEST


EVERY_END, EVERY_BEGINNING = _latest, _earliest


def _offsets(
    consumer: Consumer,
    groups: Iterable[list[Where]],
    question: Callable[[Where], int],
    failures: list[str],
) -> dict[Where, int | None]:
    """Return what the leaders answer; None: no record is so young. Add to ``failures``."""
    found: dict[Where, int | None] = {}
    for group in groups:
        asked = [TopicPartition(*where, question(where)) for where in group]
        try:
            answers = consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            failures.append(_told(error))
            continue
        for one in answers:
            if one.error is not None:
                reason = _told(KafkaException(one.error))
                failures.append(f"{one.topic}/{one.partition}: {reason}")
            else:
                found[(one.topic, one.partition)] = one.offset if one.offset >= 0 else None
    return found


def _told(exception: KafkaException) -> str:
    return describe(exception.args[0])
