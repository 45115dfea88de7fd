"""One micro-batch and its marker in one Kafka transaction.

Every attempt begins with a new producer: its ``init_transactions`` ends what a predecessor left
and refuses whatever that still sends, so the marker read after it is the truth, and no late
request of an earlier transaction can reach this one.

The marker is committed by a producer whose group has no members. The broker takes such offsets
from any producer, so the group fences none here; the transactional id does: an offset counts only
when its transaction commits, and the coordinator commits for the newest producer alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from hapax.core.errors import (
    BatchAbortedError,
    PreflightError,
    ProducerDeadError,
    StopError,
)
from hapax.core.micro_batches import Marker, due
from hapax.core.offset_commit import GroupOffset, OffsetCommit
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.published import PublishedRecords
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import build, consumer_properties, producer_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError

    from hapax.core.micro_batches import MicroBatch, PublishedRecord
    from hapax.core.ports import Clock, Message, Watch
    from hapax.kafka.produce.doubts import LogLine
    from hapax.settings import Settings

    Chunk = Sequence[Message]
    Chunks = Callable[[], Iterable[Chunk]]

ANSWER_TIMEOUT_S = 5.0
TOO_LONG = (
    "the micro-batch does not fit into one transaction of {:g} s: read fewer records at once"
    " (HAPAX_SPARK__BATCH_RECORDS_MAX, or maxOffsetsPerTrigger of the source), or raise"
    " HAPAX_TRANSACTION__TIMEOUT"
)


def marker_group(app: str) -> str:
    """Return the group that holds the marker; it is never joined."""
    return f"{app}--sink"


def sink_id(app: str) -> str:
    """Return the transactional id; no worker's and no lane's has a word behind the slash."""
    return f"{app}/sink"


class Published(msgspec.Struct, frozen=True):
    """What became of a micro-batch.

    records   published by this call, by topic; none when they had been before
    repeated  whether the micro-batch had been published before
    attempts  transactions that it took
    """

    records: dict[str, int]
    repeated: bool
    attempts: int


class KafkaPublisher:
    """Publishes micro-batches of one app. One call at a time; ``close`` after the last."""

    def __init__(
        self, settings: Settings, *, clock: Clock, forward: LogLine, logger: object, watch: Watch
    ) -> None:
        self._where = (settings.output.topic, 0)
        self._attempts = settings.retry.attempts
        self._deadline_s = settings.transaction.timeout_ms / 1000
        self._clock = clock
        self._watch = watch
        self._published = PublishedRecords(settings)
        name = sink_id(settings.app)
        self._group = build(Consumer, _group_properties(settings, name), logger)
        self._transaction = _CountedTransaction(
            ProducerConfig(
                properties=producer_properties(settings)
                | {"transactional.id": name, "client.id": name},
                required_topics=frozenset({settings.output.topic}),
                round_robin=settings.output.partitioner == "round_robin",
                deadline_s=self._deadline_s,
            ),
            clock=clock,
            forward=forward,
            watch=watch,
        )

    def publish(self, batch: MicroBatch, chunks: Chunks) -> Published:
        """Make the micro-batch visible as a whole, unless it is.

        ``chunks`` is called for each attempt and gives all records, some at a time. Raises
        PositionLostError when the marker contradicts the checkpoint, StopError when no repetition
        can help, and BatchAbortedError or ProducerDeadError when the same call is to be made again
        later; in all cases nothing is visible, or the next call finds out that it is.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                marker = self._opened_marker()
                fresh = marker is None and batch.number == 0
                if not due(batch, marker, self._found({self._where[0]}) if fresh else None):
                    return Published({}, repeated=True, attempts=attempt)
                rows = self._first(batch, chunks()) if fresh else chunks()
                records = self._write(Marker.after(batch), rows)
            except (BatchAbortedError, ProducerDeadError):
                refusal = self._transaction.refusal()
                if refusal is not None:
                    raise StopError(
                        f"record {refusal[0]} of micro-batch {batch.number} was refused:"
                        f" {refusal[1]}. Nothing of the micro-batch was published: fix what the"
                        " pipeline writes, or the topic"
                    ) from None
                if attempt == self._attempts:
                    raise
            else:
                return Published(records, repeated=False, attempts=attempt)
        raise AssertionError("attempts are at least three")

    def list_topics(self, timeout_s: float) -> Any:
        """Return the cluster's metadata; raises KafkaException when no broker answers."""
        return self._group.list_topics(timeout=timeout_s)

    def refresh(self) -> Marker | None:
        """Commit the marker as it is, so that it does not expire; return it.

        A publication that is under way elsewhere is fenced by it, and made again.
        """
        marker = self._opened_marker()
        if marker is not None:
            self._write(marker, ())
        return marker

    def overwrite(self, marker: Marker) -> None:
        """Commit this marker whatever was there: a person has decided where to go on."""
        self._transaction.open()
        self._write(marker, ())

    def close(self) -> None:
        """Drop the clients."""
        self._transaction.close()
        self._group.close()

    def _opened_marker(self) -> Marker | None:
        self._transaction.open()
        with self._watch("committed"):
            try:
                (answer,) = self._group.committed(
                    [TopicPartition(*self._where)], timeout=ANSWER_TIMEOUT_S
                )
            except KafkaException as exception:
                raise _unknown(exception.args[0]) from exception
        if answer.error is not None:
            raise _unknown(answer.error)
        return Marker.parse(answer.offset, answer.metadata or "") if answer.offset >= 0 else None

    def _found(self, topics: set[str]) -> PublishedRecord | None:
        """Return a record that this app has published before, of those at the topics' ends."""
        try:
            return self._published.find(topics)
        except PreflightError as error:
            raise BatchAbortedError(f"what was published before is not known: {error}") from error

    def _first(self, batch: MicroBatch, chunks: Iterable[Sequence[Message]]) -> Iterator[Chunk]:
        """Pass the chunks of a first micro-batch on; look at each topic that their rows name."""
        known = {self._where[0]}
        for chunk in chunks:
            topics = {message.topic for message in chunk} - known
            if topics:
                known |= topics
                due(batch, None, self._found(topics))
            yield chunk

    def _given(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Pass the chunks on; when what gives them fails, no reader waits for the transaction."""
        try:
            for chunk in chunks:
                if self._transaction.age_s > self._deadline_s:
                    raise StopError(TOO_LONG.format(self._deadline_s))  # noqa: TRY301 - one way out
                yield chunk
        except Exception:
            with suppress(ProducerDeadError):
                self._transaction.abort()
            raise

    def _write(self, marker: Marker, chunks: Iterable[Sequence[Message]]) -> dict[str, int]:
        transaction, records = self._transaction, Counter[str]()
        transaction.begin()
        for chunk in self._given(chunks):
            transaction.send(chunk)
            records.update(message.topic for message in chunk)
        offset = GroupOffset(*self._where, marker.next, marker.metadata)
        transaction.send_offsets(
            OffsetCommit([offset], bytes(self._group.consumer_group_metadata()))
        )
        transaction.commit()
        return dict(records)


class _CountedTransaction(KafkaTransaction):
    """A transaction that knows which of all its messages was refused."""

    @cached_property
    def _sent(self) -> list[tuple[int, Mapping[int, str]]]:
        """Per call of ``send`` in this transaction, its messages and those of them refused."""
        return []

    def begin(self) -> None:
        self._sent.clear()
        super().begin()

    def send(self, messages: Sequence[Message]) -> None:
        try:
            super().send(messages)
        except BatchAbortedError as error:
            self._sent.append((len(messages), error.refused))
            raise
        # Delivery reports of these messages may still come in, while later ones are sent. They
        # name whole sets, unless each message has one of its own.
        outbox = self._producer()
        self._sent.append((len(messages), outbox.refused if outbox.alone else {}))

    def refusal(self) -> tuple[int, str] | None:
        """Return the first message of this transaction that was refused by name, and why."""
        before = 0
        for count, refused in self._sent:
            if refused:
                index = min(refused)
                return before + index, refused[index]
            before += count
        return None


def _group_properties(settings: Settings, name: str) -> Mapping[str, Any]:
    properties = consumer_properties(settings)
    properties.pop("group.instance.id", None)
    return properties | {"group.id": marker_group(settings.app), "client.id": name}


def _unknown(error: KafkaError) -> Exception:
    if error.code() in FORBIDDEN:
        return StopError(f"the marker cannot be read: {describe(error)}; grant the right")
    return BatchAbortedError(f"the marker is not known: {describe(error)}", resolved=False)
