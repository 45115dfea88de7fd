"""Offsets of logs and of a group, queried by consumers that join nothing.

Everything in the service that is no member of the group queries here. The admin client's call for
offsets is not used: while brokers were killed it ended the whole process within minutes (assertion
``eonce->refcnt > 0``, librdkafka #3663 and #4605), and it continued to query a dead leader after
the election. A consumer's call does neither, and it keeps to its isolation level, which a client
has for all its requests: so there is one consumer for each.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.properties import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.read.range_reader import Isolation

EARLIEST, LATEST = -2, -1
"""Asked for in place of a time in Unix ms."""
REQUEST_TIMEOUT_S = 1.0
EVENTS_MAX = 100


class Unanswered(NamedTuple):
    """A query without an answer; ``where`` None: all partitions of that leader."""

    leader: int
    where: Where | None
    error: KafkaError

    def __str__(self) -> str:
        why = describe(self.error)
        return why if self.where is None else f"{self.where[0]}/{self.where[1]}: {why}"


class OffsetQueries:
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
        """Return the one that sees what readers of this isolation see."""
        return self.read_committed if isolation == "read_committed" else self.read_uncommitted

    def close(self) -> None:
        """Close the connections."""
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
        """Return the log start and the last stable offset of one partition.

        Raises KafkaException, also for a partition that is not there: from a missing answer
        nothing follows about the log.
        """
        low, high = self.read_committed.get_watermark_offsets(
            TopicPartition(*where), timeout=timeout_s
        )
        return low, high

    def partitions(self, topic: str) -> list[Where]:
        """Return a topic's partitions, in order. Raises KafkaException: no broker answers."""
        if not any(name == topic for name, _number in self._leaders):
            self._look_up(topic, self.read_uncommitted)
        return sorted(where for where in self._leaders if where[0] == topic)

    def forget_leaders(self) -> None:
        """Look them up again: partitions may have been added."""
        self._leaders.clear()

    def log_offsets(self, partitions: Iterable[Where]) -> dict[Where, LogOffsets]:
        """Return where logs begin and end, of the partitions whose leaders answered.

        Raises KafkaException: no broker answers.
        """
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
        """Return the errors, and forget them."""
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
            found[(one.topic, one.partition)] = one.offset if one.offset >= 0 else None
    return found, refused
