"""Offsets for the monitors of lag, queried from threads of their own (engines/monitors.py).

Every request is bounded, a broker that is away hides its own partitions only, and what fails is
part of the answer.

KafkaLagProbe   starts, last stable offsets, ends, ages and retention of the pipeline's topics
TaskProgress    what tasks of Spark have committed before they report
ReaderLagProbe  what other groups have not read
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from hapax.cluster.lag import (
    Counted,
    OffsetSnapshot,
    ReaderLag,
    TimestampSearch,
    retention_of,
    shares,
    stretch,
)
from hapax.kafka.connection import answers, unanswered
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offsets_client import (
    REQUEST_TIMEOUT_S,
    OffsetsClient,
    offset_or_none,
    reader_properties,
)
from hapax.kafka.read.range_reader import COUNTING, count_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.cluster.lag import GroupProgress, Retention
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.settings import Settings

RETENTION_INTERVAL_S = 600.0
"""The configuration of a topic changes so rarely that an alert may be ten minutes late for it."""
LOOK_S = 5.0
"""Longest reading of one look."""
KEPT_MAX = 2_000_000
"""Offsets of one group about which is known whether they hold a record: 16 MB at the most."""
RENEWED_S = 600.0
"""So often the topics of a group are looked up, and what one look can read is counted again:
compaction may have removed records."""


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
        self._queries: OffsetsClient | None = None
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
        topic = self._outputs[0] if self._outputs else None
        if answers(self._client().read_uncommitted, REQUEST_TIMEOUT_S, topic):
            return ""
        self._queries = None  # it may be cut off (kafka/consume/client.py)
        return unanswered(str(self._properties["bootstrap.servers"]))

    def _client(self) -> OffsetsClient:
        if self._queries is None:
            self._queries = OffsetsClient(
                {**self._properties, "group.id": "lag-monitor"}, self._logger
            )
        return self._queries

    def _query(self, snapshot: OffsetSnapshot, committed: Progress, client: OffsetsClient) -> None:
        partitions = set(committed)
        for topic in self._outputs:
            partitions.update(client.partitions_of(topic))
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
        """Ask rarely, and while all brokers answer: an admin call may end the process."""
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
            except TimeoutError:
                late = f"{resource.name}: its configuration was not returned in time"
                snapshot.failures.append(late)
            else:
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


def reader_probes(settings: Settings) -> dict[str, ReaderLagProbe]:
    properties, topic = reader_properties(settings.target), settings.output.topic
    return {
        group: ReaderLagProbe({**properties, "group.id": group}, topic)
        for group in settings.telemetry.readers or ()
    }


class ReaderLagProbe:
    """Keeps what it has read: a look reads what is new between the group's offset and the end."""

    def __init__(self, properties: Mapping[str, Any], topic: str) -> None:
        """Connect to nothing yet. ``properties``: with the id of the group, which is not joined.

        ``topic``: counts also while the group has no offset in it.
        """
        self._properties = properties
        self._topic = topic
        self._topics: list[str] = []
        self._renew_s = -math.inf
        self._queries: OffsetsClient | None = None
        self._counted: dict[Where, Counted] = {}

    def look(self, offsets_max: int) -> list[ReaderLag]:
        """Raise KafkaException or PreflightError when group or records cannot be asked for."""
        queries = self._queries = self._queries or OffsetsClient({**self._properties, **COUNTING})
        answered = False
        try:
            lags = self._look(queries, offsets_max)
            answered = not queries.take_errors()
        finally:
            if not answered:  # replaced, with what it knows of leaders and connections
                queries.close()
                self._queries = None
        return lags

    def _look(self, queries: OffsetsClient, offsets_max: int) -> list[ReaderLag]:
        renewed = time.monotonic() >= self._renew_s
        if renewed:
            self._topics = self._topics_of_group(queries)
            self._renew_s = time.monotonic() + RENEWED_S
        places = [where for topic in self._topics for where in queries.partitions_of(topic)]
        committed = _committed(queries, places)
        logs = queries.log_offsets(committed)  # after the offsets: none is beyond its log
        stretches = {where: stretch(committed[where], log) for where, log in logs.items()}
        again = renewed and sum(end - start for start, end in stretches.values()) <= offsets_max
        self._counted = {
            where: self._kept(where, start, end, again=again)
            for where, (start, end) in stretches.items()
        }
        counted, ends = self._counted, self._ends(stretches, offsets_max)
        problems = count_records(queries, "read_committed", counted, ends, within_s=LOOK_S)
        return [
            ReaderLag(
                *where,
                log=logs[where],
                committed=committed[where],
                records=one.total,
                uncounted=stretches[where][1] - one.end,
                problem=problems.get(where, ""),
            )
            for where, one in sorted(counted.items())
        ]

    def _topics_of_group(self, queries: OffsetsClient) -> list[str]:
        queries.forget_leaders()
        found = queries.read_uncommitted.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        places = [(name, number) for name, topic in found.items() for number in topic.partitions]
        committed = _committed(queries, places)
        read = {where[0] for where, offset in committed.items() if offset is not None}
        return sorted(read | ({self._topic} & found.keys()))

    def _kept(self, where: Where, start: int, end: int, *, again: bool) -> Counted:
        """Return what is known of a stretch; nothing after a rewind, or of another log."""
        one = self._counted.get(where)
        if again or one is None or start < one.start or end < one.end:
            return Counted(start)
        one.drop_before(start)
        return one

    def _ends(
        self, stretches: Mapping[Where, tuple[int, int]], offsets_max: int
    ) -> dict[Where, int]:
        kept = shares({w: end - start for w, (start, end) in stretches.items()}, KEPT_MAX)
        due = {w: max(0, one.start + kept[w] - one.end) for w, one in self._counted.items()}
        read = shares(due, offsets_max)
        return {where: one.end + read[where] for where, one in self._counted.items()}


def _committed(queries: OffsetsClient, places: list[Where]) -> dict[Where, int | None]:
    answers = queries.group_offsets(places, REQUEST_TIMEOUT_S, stable=False) if places else {}
    return {where: offset_or_none(one) for where, one in answers.items() if one.error is None}


class TaskProgress:
    """Asks the group about the partitions that the driver knows of. One thread only.

    A task that stays commits for as long as HAPAX_SPARK__RANGE_INTERVAL before it reports: by its
    driver's word alone, whatever arrived since would pass for lag.
    """

    def __init__(self, settings: Settings, told: Callable[[], GroupProgress]) -> None:
        """Connect to nothing yet. ``told``: what reports have said."""
        self._queries = OffsetsClient(
            reader_properties(settings) | {"client.id": f"{settings.app}-lag"}
        )
        self._told = told

    def __call__(self) -> GroupProgress:
        """Return what is committed now; where the group does not answer, what was reported."""
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
