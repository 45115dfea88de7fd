"""Offsets of logs and of a group, queried by consumers that join nothing.

Everything in the service that is no member of the group queries here. The admin client's call for
offsets is not used: while brokers were killed it ended the whole process within minutes (assertion
``eonce->refcnt > 0``, librdkafka #3663 and #4605), and it continued to query a dead leader after
the election. A consumer's call does neither, and it keeps to its isolation level, which a client
has for all its requests: so there is one consumer for each.

OffsetsClient    one attempt at each leader, in bounded time; what is not answered is a result
BlockingOffsets  for commands: repeats until all is answered, or raises PreflightError
BackgroundEnds   for loops that must not wait for a broker: on a thread of its own
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from hapax.cluster.partition_offsets import LogOffsets
from hapax.core.errors import PreflightError, StopError
from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.connection import no_broker, require_listener
from hapax.kafka.errors import COORDINATOR_MOVES, FORBIDDEN, UNKNOWN_TOPIC, describe, of_group
from hapax.kafka.properties import build, consumer_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.offset_commit import GroupOffset
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.settings import Settings

    _Ends = tuple[Progress, list[str], Exception | None]

Isolation = Literal["read_committed", "read_uncommitted"]
EARLIEST, LATEST = -2, -1
"""Asked for in place of a time in Unix ms."""
NO_EPOCH = -1
REQUEST_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S, BROKERS_TIMEOUT_S = 30.0, 10.0
EVENTS_MAX = 100
BACKGROUND_WAIT_S = 0.2
"""Longest wait for an answer within one call; the question stays open beyond it."""
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
    return {name: value for name, value in properties.items() if name not in _MEMBERSHIP}


class Unanswered(NamedTuple):
    """A query without an answer; ``where`` None: all partitions of that leader."""

    leader: int
    where: Where | None
    error: KafkaError

    def __str__(self) -> str:
        why = describe(self.error)
        return why if self.where is None else f"{self.where[0]}/{self.where[1]}: {why}"


class OffsetsClient:
    """Queries one leader after the other, so that one that is away hides its own partitions only.

    Replace it after an error, with the leaders and connections that it knows.

    errors  queries of ``offsets`` and ``log_offsets`` without an answer
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        logger: object = None,
        *,
        leaders: Mapping[Where, int] | None = None,
        left_s: Callable[[], float] = lambda: REQUEST_TIMEOUT_S,
    ) -> None:
        """Connect to nothing yet.

        ``properties``: with the id of a group, never joined. ``leaders``: where they are known;
        the others are looked up. ``left_s``: how long the next request may take.
        """
        self._properties = {**properties, "enable.auto.commit": False}
        self._logger = logger
        self._left_s = left_s
        self._leaders = dict(leaders or {})
        self.errors: list[Unanswered] = []

    @cached_property
    def read_uncommitted(self) -> Consumer:
        """Sees open transactions: its end of a log is the high watermark."""
        return self._consumer("read_uncommitted")

    @cached_property
    def read_committed(self) -> Consumer:
        """Sees none: its end of a log is the last stable offset."""
        return self._consumer("read_committed")

    def of(self, isolation: Isolation) -> Consumer:
        return self.read_committed if isolation == "read_committed" else self.read_uncommitted

    def close(self) -> None:
        for name in ("read_uncommitted", "read_committed"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    def group_offsets(
        self, partitions: Iterable[Where], timeout_s: float, *, stable: bool
    ) -> dict[Where, TopicPartition]:
        """Return the group's committed offsets as the client does: negative where there is none.

        ``stable``: wait for transactions that carry an offset to be decided; otherwise the offset
        before them is returned at once. The client queries stable offsets when it reads committed
        records, and only then. Raises KafkaException when the coordinator does not answer.
        """
        consumer = self.read_committed if stable else self.read_uncommitted
        asked = [TopicPartition(*where) for where in partitions]
        try:
            answers = consumer.committed(asked, timeout_s)
        except KafkaException as error:
            # Without the right to the group the call times out, and the reason is an event.
            for event in consumer.consume(EVENTS_MAX, 0):
                if (why := event.error()) is not None and why.code() in FORBIDDEN:
                    raise KafkaException(why) from error
            raise
        return {(one.topic, one.partition): one for one in answers}

    def watermarks(self, where: Where, timeout_s: float) -> tuple[int, int]:
        """Raise KafkaException, for a missing partition too: silence says nothing of the log."""
        low, high = self.read_committed.get_watermark_offsets(
            TopicPartition(*where), timeout=timeout_s
        )
        return low, high

    def partitions_of(self, topic: str) -> list[Where]:
        """Return a topic's partitions, in order. Raises KafkaException: no broker answers."""
        if not any(name == topic for name, _number in self._leaders):
            self._look_up(topic, self.read_uncommitted)
        return sorted(where for where in self._leaders if where[0] == topic)

    def forget_leaders(self) -> None:
        """Look them up again: partitions may have been added."""
        self._leaders.clear()

    def log_offsets(self, partitions: Iterable[Where]) -> dict[Where, LogOffsets]:
        """Return where logs begin and end, of answered partitions; raises as ``offsets``."""
        # In the order of the log, so that no figure is beyond one to its right; ends before stable
        # ends: the other way round every record between the two requests would look like one of
        # an open transaction.
        places = list(partitions)
        starts = self.offsets(dict.fromkeys(places, EARLIEST))
        highs = self.offsets(dict.fromkeys(places, LATEST))
        stable = self.offsets(dict.fromkeys(places, LATEST), committed=True)
        found = {}
        for where in places:
            start, last, high = starts.get(where), stable.get(where), highs.get(where)
            if start is not None and last is not None and high is not None:
                found[where] = LogOffsets.of(start, last, high)
        return found

    def offsets(
        self, wanted: Mapping[Where, int], *, committed: bool = False
    ) -> dict[Where, int | None]:
        """Return the offset of each partition's time; what is not answered is in ``errors``.

        ``wanted`` and None as in ``list_offsets``. Raises KafkaException: no broker answers.
        """
        found: dict[Where, int | None] = {}
        consumer = self.read_committed if committed else self.read_uncommitted
        for leader, group in self._by_leader(sorted(wanted), consumer).items():
            due = {where: wanted[where] for where in group}
            try:
                offsets, refused = list_offsets(consumer, due, self._left_s())
            except KafkaException as error:
                self.errors.append(Unanswered(leader, None, error.args[0]))
                continue
            found |= offsets
            self.errors += [Unanswered(leader, where, why) for where, why in refused.items()]
        return found

    def take_errors(self) -> list[Unanswered]:
        errors, self.errors = self.errors, []
        return errors

    def _by_leader(self, wanted: Sequence[Where], consumer: Consumer) -> dict[int, list[Where]]:
        for topic in sorted({topic for topic, _ in set(wanted) - self._leaders.keys()}):
            self._look_up(topic, consumer)
        groups: dict[int, list[Where]] = {}
        for where in wanted:
            groups.setdefault(self._leaders.get(where, -1), []).append(where)
        return groups

    def _look_up(self, topic: str, consumer: Consumer) -> None:
        metadata = consumer.list_topics(topic, timeout=self._left_s())
        for number, partition in metadata.topics[topic].partitions.items():
            self._leaders[(topic, number)] = partition.leader

    def _consumer(self, isolation: str) -> Consumer:
        return build(Consumer, {**self._properties, "isolation.level": isolation}, self._logger)


def list_offsets(
    consumer: Consumer, wanted: Mapping[Where, int], timeout_s: float
) -> tuple[dict[Where, int | None], dict[Where, KafkaError]]:
    """Return the offset of each partition's time, and by partition why there is none.

    ``wanted``: Unix ms, EARLIEST or LATEST. None: no record is that young. Raises KafkaException
    when a leader among them does not answer.
    """
    asked = [TopicPartition(*where, time_ms) for where, time_ms in wanted.items()]
    found: dict[Where, int | None] = {}
    refused: dict[Where, KafkaError] = {}
    for one in consumer.offsets_for_times(asked, timeout=timeout_s):
        if one.error is not None:
            refused[(one.topic, one.partition)] = one.error
        else:
            found[(one.topic, one.partition)] = offset_or_none(one)
    return found, refused


def offset_or_none(answer: TopicPartition) -> int | None:
    return answer.offset if answer.offset >= 0 else None


def client_offset(one: GroupOffset) -> TopicPartition:
    """Return an offset to commit, in the client's form."""
    epoch = NO_EPOCH if one.leader_epoch is None else one.leader_epoch
    if one.metadata is None:  # the client refuses a None
        return TopicPartition(one.topic, one.partition, one.offset, leader_epoch=epoch)
    return TopicPartition(one.topic, one.partition, one.offset, one.metadata, epoch)


class BlockingOffsets(OffsetsClient):
    """Waits for partitions between two leaders and for coordinators that have just started.

    Its methods raise PreflightError when brokers do not answer, or do not allow it.
    """

    def __init__(self, settings: Settings, more: Mapping[str, Any] | None = None) -> None:
        """Connect to nothing yet. ``more``: properties for what else its consumers do."""
        super().__init__(reader_properties(settings) | dict(more or {}))
        self._settings = settings
        _ = self.read_committed  # refuses properties that the client does not take

    def partitions(self, topics: Iterable[str] | None) -> list[Where]:
        """Return partitions in order; None: of all visible topics. A missing topic is refused."""
        known = self._known()
        topics = sorted(known) if topics is None else list(topics)
        absent = [topic for topic in topics if topic not in known]
        if absent:
            raise PreflightError(
                [f"topic {topic} does not exist or may not be read" for topic in absent]
            )
        return [(topic, number) for topic in topics for number in sorted(known[topic])]

    def absent(self, topics: Iterable[str]) -> set[str]:
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
        found: str | None = self._metadata().cluster_id
        return found

    def _metadata(self) -> Any:
        require_listener(self._settings)
        try:
            return self.read_committed.list_topics(timeout=BROKERS_TIMEOUT_S)
        except KafkaException as error:
            raise no_broker(self._settings, error) from error

    def log_starts(self, partitions: Iterable[Where]) -> Progress:
        return self._known_offsets(partitions, EARLIEST)

    def last_stable(self, partitions: Iterable[Where]) -> Progress:
        return self._known_offsets(partitions, LATEST)

    def high_watermarks(self, partitions: Iterable[Where]) -> Progress:
        return self._known_offsets(partitions, LATEST, committed=False)

    def at_time(self, partitions: Iterable[Where], time_ms: int) -> Progress:
        """Return the first offsets from that time on; partitions without any are left out."""
        return self._known_offsets(partitions, max(time_ms, 0))

    def committed(
        self, partitions: Iterable[Where], *, stable: bool = True
    ) -> dict[Where, int | None]:
        answers = self.answers(partitions, stable=stable)
        return {where: offset_or_none(one) for where, one in answers.items()}

    def beside(
        self, partitions: Iterable[Where], *, stable: bool = True
    ) -> dict[Where, CommittedMetadata]:
        answers = self.answers(partitions, stable=stable)
        return {where: CommittedMetadata.of(one) for where, one in answers.items()}

    def answers(self, partitions: Iterable[Where], *, stable: bool) -> dict[Where, TopicPartition]:
        places = list(partitions)
        timeout_s = ANSWER_TIMEOUT_S if stable else BROKERS_TIMEOUT_S

        def asked() -> dict[Where, TopicPartition]:
            answers = self.group_offsets(places, timeout_s, stable=stable)
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
            raise PreflightError(
                f"the committed offsets of group {self._settings.app} cannot be read ({reasons});"
                f" {hint}"
            ) from None

    def _known_offsets(
        self, partitions: Iterable[Where], at: int, *, committed: bool = True
    ) -> Progress:
        found = self.offsets(dict.fromkeys(partitions, at), committed=committed)
        return {where: offset for where, offset in found.items() if offset is not None}

    def offsets(
        self, wanted: Mapping[Where, int], *, committed: bool = False
    ) -> dict[Where, int | None]:
        """Return the offset of each partition's time; all are asked for at once."""
        found: dict[Where, int | None] = {}
        due, consumer = dict(wanted), self.read_committed if committed else self.read_uncommitted
        give_up_s = time.monotonic() + BROKERS_TIMEOUT_S
        while due:
            try:
                answers, errors = list_offsets(consumer, due, BROKERS_TIMEOUT_S)
            except KafkaException as error:
                answers, errors, final = {}, dict.fromkeys(due, error.args[0]), True
            else:
                codes = {error.code() for error in errors.values()}
                final = bool(codes & (FORBIDDEN | UNKNOWN_TOPIC))
            found |= answers
            if errors and (final or time.monotonic() > give_up_s):
                raise PreflightError(
                    [
                        f"{topic}/{number}: its offsets cannot be read: {describe(error)}"
                        for (topic, number), error in errors.items()
                    ]
                )
            due = {where: wanted[where] for where in errors}
            if due:
                time.sleep(_REST_S)
        return found


def input_logs(settings: Settings) -> dict[Where, LogOffsets]:
    """Return where the logs of the inputs begin and end; raises as ``BlockingOffsets``."""
    with closing(BlockingOffsets(settings)) as client:
        return client.log_offsets(client.partitions(settings.input.topics))


class BackgroundEnds:
    """Last stable offsets, queried by a thread; ``errors`` are for the log."""

    def __init__(self, properties: Mapping[str, Any], logger: object) -> None:
        self._properties = {**properties, "group.id": "ends"}  # the client wants one
        self._logger = logger
        self._client: OffsetsClient | None = None
        self._questions: queue.SimpleQueue[list[Where]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Ends] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open = False
        self._known: Progress = {}
        self.errors: list[str] = []

    def of(self, partitions: Iterable[Where]) -> Progress:
        """Return what is known now; raise StopError when ends may not be read."""
        wanted = list(partitions)
        if wanted and not self._open:
            if self._thread is None:
                # A daemon: it may sit in the client, and must not keep the process alive.
                self._thread = threading.Thread(target=self._serve, name="ends", daemon=True)
                self._thread.start()
            self._open = True
            self._questions.put(wanted)
        self._harvest()
        return {where: self._known[where] for where in wanted if where in self._known}

    def _harvest(self) -> None:
        try:
            known, errors, failure = self._answers.get(
                timeout=BACKGROUND_WAIT_S if self._open else 0
            )
        except queue.Empty:
            return
        self._open = False
        self._known |= known
        self.errors += errors
        if failure is not None:
            raise failure

    def _serve(self) -> None:
        while True:
            self._answers.put(self._ask(self._questions.get()))

    def _ask(self, partitions: list[Where]) -> _Ends:
        """Query once. Never raises; a client that failed is replaced, with its leaders."""
        ends: Progress = {}
        errors: list[str] = []
        try:
            client = self._client = self._client or OffsetsClient(self._properties, self._logger)
            try:
                found = client.offsets(dict.fromkeys(partitions, LATEST), committed=True)
            except KafkaException as exception:
                client.errors.append(Unanswered(-1, None, exception.args[0]))
                found = {}
            ends = {where: offset for where, offset in found.items() if offset is not None}
            errors = [_end_error(one) for one in client.take_errors()]
        except Exception as failure:  # noqa: BLE001 - or the thread would end without a word
            return ends, errors, failure
        if len(ends) < len(partitions):
            self._client = None
        return ends, errors, None


def _end_error(one: Unanswered) -> str:
    """Return the error in words; raise StopError when asking again is no use."""
    why = describe(one.error)
    if one.error.code() in FORBIDDEN:
        raise StopError(f"not allowed to read: {why}; grant the right and restart")
    return f"ends: {why}" if one.where is None else f"{one.where[0]}/{one.where[1]}: ends: {why}"
