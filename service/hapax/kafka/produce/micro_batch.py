"""One micro-batch and its marker in one Kafka transaction, or its rows fixed for its lanes.

Before the first micro-batch of an app the output topics are asked whether they hold records of it:
when checkpoint and marker are both gone, only they know of a query before. A lane publishes the
parcels that a manifest gives it, in order, each once. A marker is a committed offset that counts
them, in the transactions that publish them.

Every attempt begins with a new producer: its ``init_transactions`` ends what a predecessor left and
refuses whatever that still sends, so the marker read after it is the truth, and no late request of
an earlier transaction can reach this one.

The marker is committed by a producer whose group has no members. The broker takes such offsets from
any producer, so the group fences none here; the transactional id does: an offset counts only when
its transaction commits, and the coordinator commits for the newest producer alone.

Registering ends every transaction of the id, so the stable answer comes at once, unless brokers
have dropped a marker (docs/non-obvious.md, "A cluster that is killed whole may forget markers").
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from hapax.cluster.micro_batches import (
    GIVEN_UP,
    LaneMarker,
    Marker,
    PublishedBatch,
    PublishedRecord,
    due,
    published_parcels,
)
from hapax.core.errors import (
    BatchAbortedError,
    PositionLostError,
    PreflightError,
    ProducerDeadError,
    StopError,
)
from hapax.core.offset_commit import GroupOffset, OffsetCommit, text_of
from hapax.core.record_path import Outputs
from hapax.kafka.admin.topics import absent_topics
from hapax.kafka.errors import FORBIDDEN, describe, of_group
from hapax.kafka.produce.base import PROPAGATION_S, ProducerConfig, answer_of
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import build, consumer_properties, producer_properties
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax.cluster.micro_batches import FixedBatch, MicroBatch
    from hapax.core.ports import Clock, Watch
    from hapax.core.records import Message, Progress, TopicPartition as Where
    from hapax.kafka.produce.producer import LogLine, Placed
    from hapax.settings import Settings

    Chunk = Sequence[Message]
    Chunks = Callable[[], Iterable[Chunk]]

ANSWER_TIMEOUT_S = 5.0
_HELD_BACK = (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
TOO_LONG = (
    "the micro-batch does not fit into one transaction of {:g} s: raise HAPAX_TRANSACTION__TIMEOUT,"
    " for its span is fixed; later ones read less by HAPAX_SPARK__BATCH_RECORDS_MAX, or by"
    " maxOffsetsPerTrigger of the source"
)


def stable_offset(member: Consumer, where: Where, what: str) -> TopicPartition:
    """Raise BatchAbortedError when no answer comes, StopError when a right is missing."""

    def asked() -> TopicPartition:
        (answer,) = member.committed([TopicPartition(*where)], timeout=ANSWER_TIMEOUT_S)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return answer

    try:
        return of_group(asked, ANSWER_TIMEOUT_S)
    except KafkaException as exception:
        raise _unknown(what, _refused(member) or exception.args[0]) from None


def _refused(member: Consumer) -> KafkaError | None:
    """Return why: librdkafka asks for a hidden group's coordinator in silence, without end."""
    try:
        event = member.poll(0)
    except UnicodeDecodeError:  # errors.LINE_IS_NO_TEXT
        return None
    error = None if event is None else event.error()
    return error if error is not None and error.code() in FORBIDDEN else None


def _unknown(what: str, error: KafkaError) -> BatchAbortedError | StopError:
    if error.code() in FORBIDDEN:
        return StopError(f"{what} cannot be read: {describe(error)}; grant the right")
    hint = ""
    if error.code() in _HELD_BACK:
        hint = "; if brokers answer otherwise, a transaction hangs in it: hapax transactions list"
    return BatchAbortedError(f"{what} is not known: {describe(error)}{hint}", resolved=False)


class TransactionTooLongError(StopError):
    """The messages were given too slowly for one transaction; it is rolled back."""


class MarkedNames(NamedTuple):
    """Under which transactional id the producer works, and the group that holds its marker."""

    transactional_id: str
    group: str


def sink_names(app: str) -> MarkedNames:
    """Return those of the sink; no worker's id has a word after the slash."""
    return MarkedNames(f"{app}/sink", f"{app}--sink")


def sink_lane_names(app: str, lane: int) -> MarkedNames:
    """Return those of a lane of the sink; no app's name, and so no other group's, has a slash."""
    sink = sink_names(app)
    return MarkedNames(f"{sink.transactional_id}/{lane}", f"{sink.group}/{lane}")


def spool_names(app: str, spool: str) -> MarkedNames:
    """Return those of a spool in front of Kafka (hapax.publish), by its UUID."""
    return MarkedNames(f"{app}/spool/{spool}", f"{app}--spool-{spool}")


def marker_group(settings: Settings, names: MarkedNames, logger: object) -> Consumer:
    """Return a consumer that never joins: it names the group, and asks for its offsets."""
    properties = consumer_properties(settings)
    properties.pop("group.instance.id", None)
    own = {"group.id": names.group, "client.id": names.transactional_id}
    return build(Consumer, properties | own, logger)


class MarkedTransaction:
    """Transactions of one id, each with its marker. One call at a time; ``close`` after it."""

    def __init__(
        self,
        settings: Settings,
        names: MarkedNames,
        *,
        logger: object,
        placed: Placed | None = None,
        **around: Any,
    ) -> None:
        """``around``: clock, forward and watch, as KafkaProducing has them."""
        self._settings = settings
        self._name = name = names.transactional_id
        self._where = (settings.output.topic, 0)
        self._logger = logger
        self._watch: Watch = around["watch"]
        self.deadline_s = settings.transaction.timeout_ms / 1000
        self._group_name = names.group
        self._group = self._member(names.group)
        self.transaction = CountedTransaction(
            ProducerConfig(
                properties=producer_properties(settings)
                | {"transactional.id": name, "client.id": name},
                required_topics=frozenset({settings.output.topic}),
                round_robin=settings.output.partitioner == "round_robin",
                deadline_s=self.deadline_s,
                placed=placed,
            ),
            **around,
        )

    def opened(self) -> tuple[int, str] | None:
        """Fence all earlier producers of the id; return the marker's number and metadata."""
        with self._renewed_after_failure():
            self.transaction.open()
            with self._watch("committed"):
                answer = stable_offset(self._group, self._where, "the marker")
        return (answer.offset, text_of(answer)) if answer.offset >= 0 else None

    def send(self, chunks: Iterable[Chunk]) -> dict[str, int]:
        """Begin a transaction with these messages; return them by topic. Nothing is visible."""
        transaction, records = self.transaction, Counter[str]()
        transaction.begin()
        for chunk in self._given(chunks):
            transaction.send(Outputs(chunk))
            records.update(message.topic for message in chunk)
        return dict(records)

    def commit(
        self, number: int, metadata: str, others: Mapping[str, tuple[int, str]] | None = None
    ) -> None:
        """``others``: number and metadata for markers of other groups, in one transaction."""
        with self._renewed_after_failure():
            self._mark(self._group, number, metadata)
            for group, marker in (others or {}).items():
                with closing(self._member(group)) as member:
                    self._mark(member, *marker)
            self.transaction.commit()

    def list_topics(self, timeout_s: float) -> Any:
        """Return the cluster's metadata; raises KafkaException when no broker answers."""
        return self._group.list_topics(timeout=timeout_s)

    def cluster_id(self) -> str | None:
        """Return Kafka's id of the cluster; raise ProducerDeadError when no broker answers."""
        with self._renewed_after_failure():
            metadata = answer_of(lambda: self.list_topics(ANSWER_TIMEOUT_S))
            if not metadata.brokers:
                raise ProducerDeadError("the answer names no broker", unanswered=True)
        found: str | None = metadata.cluster_id
        return found

    def lacks(self, topic: str) -> bool:
        """Whether no broker knows a topic, also after a while; ProducerDeadError: none answers."""
        properties = producer_properties(self._settings)
        return bool(answer_of(lambda: absent_topics(properties, {topic}, PROPAGATION_S)))

    def close(self) -> None:
        self.transaction.close()
        self._group.close()

    @contextmanager
    def _renewed_after_failure(self) -> Iterator[None]:
        """Ask with a new client next: this one may be cut off (kafka/consume/client.py)."""
        try:
            yield
        except (BatchAbortedError, ProducerDeadError):
            self._group.close()
            self._group = self._member(self._group_name)
            raise

    def _member(self, group: str) -> Consumer:
        return marker_group(self._settings, MarkedNames(self._name, group), self._logger)

    def _mark(self, member: Consumer, number: int, metadata: str) -> None:
        offset = GroupOffset(*self._where, number, metadata)
        self.transaction.send_offsets(
            OffsetCommit([offset], bytes(member.consumer_group_metadata()))
        )

    def _given(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Pass the chunks on; when what gives them fails, no reader waits for the transaction."""
        try:
            for chunk in chunks:
                if self.transaction.age_s > self.deadline_s:
                    raise TransactionTooLongError(TOO_LONG.format(self.deadline_s))  # noqa: TRY301 - one way out
                yield chunk
        except Exception:
            with suppress(ProducerDeadError):
                self.transaction.abort()
            raise


class CountedTransaction(KafkaTransaction):
    """A transaction that knows which of all its messages was refused."""

    @cached_property
    def _sent(self) -> list[tuple[int, Mapping[int, str]]]:
        return []

    def begin(self) -> None:
        self._sent.clear()
        super().begin()

    def send(self, messages: Outputs) -> None:
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


NEAR_OFFSETS = 100
"""How far back from the last stable offset each partition is read first."""
FAR_OFFSETS, FAR_OFFSETS_ALL = 10_000, 200_000
"""How far then: of one partition, and of all together."""
PART_OF_TIMEOUT = 4
"""A transaction takes further parcels for a quarter of its time; one parcel may take all of it."""


def published_record(settings: Settings, topics: set[str]) -> PublishedRecord | None:
    """Return one at the ends of existing topics; what lies further back is not found.

    Raises PreflightError when they cannot be read.
    """
    with closing(BlockingOffsets(settings)) as client:
        partitions = client.partitions(sorted(topics - client.absent(topics)))
        lows, ends = client.log_starts(partitions), client.last_stable(partitions)
    far = min(FAR_OFFSETS, FAR_OFFSETS_ALL // max(1, len(partitions)))
    near = {where: max(lows[where], end - NEAR_OFFSETS) for where, end in ends.items()}
    beyond = {where: max(lows[where], end - far) for where, end in ends.items()}
    return _record_within(settings, near, ends) or _record_within(settings, beyond, near)


def _record_within(settings: Settings, starts: Progress, ends: Progress) -> PublishedRecord | None:
    spans = {where: (start, ends[where]) for where, start in starts.items()}
    for seen in RangeReader(settings).read(spans):
        for one in seen:
            found = PublishedRecord.parse(one.record, settings.app)
            if found is not None:
                return found
    return None


Done = TypeVar("Done")


class KafkaPublisher:
    """Publishes micro-batches of one app. One call at a time; ``close`` after the last."""

    def __init__(
        self, settings: Settings, *, clock: Clock, forward: LogLine, logger: object, watch: Watch
    ) -> None:
        self._settings = settings
        self._app = settings.app
        self._topic = settings.output.topic
        self._attempts = settings.retry.attempts
        self._named = partial(
            MarkedTransaction, settings, clock=clock, forward=forward, logger=logger, watch=watch
        )
        self._marked = self._named(sink_names(settings.app))
        self.list_topics: Callable[[float], Any] = self._marked.list_topics

    def publish(self, batch: MicroBatch, chunks: Chunks) -> PublishedBatch | FixedBatch:
        """Make the micro-batch visible as a whole, unless it is.

        ``chunks`` is called for each attempt and gives all records, some at a time. Returns the
        rows that were fixed before, of which lanes may have published parts: those are to be
        published, and then ``finish`` is to be called. Raises PositionLostError when the marker
        contradicts the checkpoint, StopError when no repetition can help, and BatchAbortedError or
        ProducerDeadError when the same call is to be repeated later; in all cases nothing is
        visible, or the next call finds out that it is.
        """

        def once(marker: Marker | None) -> dict[str, int] | FixedBatch | None:
            if not self._due(batch, marker):
                return None
            if marker is not None and marker.fixed is not None:
                return marker.fixed
            return self._write(Marker.after(batch), self._looked_at(batch, marker, chunks()))

        done, attempt = self._attempted(batch, once)
        if done is None or isinstance(done, dict):
            return PublishedBatch(done or {}, repeated=done is None, attempts=attempt)
        return done

    def fix(self, batch: MicroBatch, fixed: FixedBatch, chunks: Chunks) -> FixedBatch | None:
        """Return which rows hold; None: the micro-batch is published. Raises as ``publish``."""

        def once(marker: Marker | None) -> FixedBatch | None:
            if not self._due(batch, marker):
                return None
            if marker is not None and marker.fixed is not None:
                return marker.fixed
            if marker is None:
                for _ in self._looked_at(batch, marker, chunks()):
                    pass
            lanes = dict.fromkeys(range(fixed.lanes), LaneMarker(0, fixed.manifest))
            self._write(Marker.fixing(batch, marker, fixed), (), lanes)
            return fixed

        return self._attempted(batch, once)[0]

    def finish(self, batch: MicroBatch, fixed: FixedBatch) -> None:
        """Say that all lanes have published these rows; raise as ``publish``."""

        def once(marker: Marker | None) -> None:
            if not self._due(batch, marker):
                return  # by another driver, or by an attempt whose outcome was not known
            if marker is None or marker.fixed != fixed:
                raise PositionLostError(
                    f"micro-batch {batch.number} of query {batch.query} was published from"
                    f" {fixed.manifest}, which its marker does not name any more: two queries run"
                    " on it. docs/dataframes.md, section Stops, describes how to continue"
                )
            self._write(Marker.after(batch), ())

        self._attempted(batch, once)

    def refresh(self) -> Marker | None:
        """Commit the marker as it is, so that it does not expire; return it.

        Those of lanes as well while they have something to publish. A publication that is under
        way elsewhere is fenced by it, and repeated.
        """
        marker = self._opened_marker()
        if marker is None:
            return None
        self._write(marker, ())
        for lane in range(0 if marker.fixed is None else marker.fixed.lanes):
            with closing(self._named(sink_lane_names(self._app, lane))) as marked:
                found = marked.opened()
                if found is not None:
                    marked.send(())
                    marked.commit(*found)
        return marker

    def overwrite(self, marker: Marker) -> None:
        """Commit this marker whatever was there: a person has decided where to continue.

        What lanes have not published of a former choice of rows stays unpublished.
        """
        try:
            former = self._opened_marker()
        except PositionLostError:  # of another program; it is replaced
            former = None
        lanes = range(0 if former is None or former.fixed is None else former.fixed.lanes)
        for lane in lanes:
            with closing(self._named(sink_lane_names(self._app, lane))) as marked:
                marked.transaction.open()  # a producer that still publishes is fenced
        self._write(marker, (), dict.fromkeys(lanes, GIVEN_UP))

    def close(self) -> None:
        self._marked.close()

    def _attempted(
        self, batch: MicroBatch, once: Callable[[Marker | None], Done]
    ) -> tuple[Done, int]:
        for attempt in range(1, self._attempts + 1):
            try:
                return once(self._opened_marker()), attempt
            except (BatchAbortedError, ProducerDeadError):
                refusal = self._marked.transaction.refusal()
                if refusal is not None:
                    raise StopError(
                        f"record {refusal[0]} of micro-batch {batch.number} was refused:"
                        f" {refusal[1]}. Nothing of the micro-batch was published: fix what the"
                        " pipeline writes, or the topic"
                    ) from None
                if attempt == self._attempts:
                    raise
        raise AssertionError("attempts are at least three")

    def _opened_marker(self) -> Marker | None:
        found = self._marked.opened()
        return None if found is None else Marker.parse(*found)

    def _due(self, batch: MicroBatch, marker: Marker | None) -> bool:
        fresh = marker is None and batch.number == 0
        return due(batch, marker, self._found({self._topic}) if fresh else None)

    def _found(self, topics: set[str]) -> PublishedRecord | None:
        try:
            return published_record(self._settings, topics)
        except PreflightError as error:
            raise BatchAbortedError(f"what was published before is not known: {error}") from error

    def _looked_at(
        self, batch: MicroBatch, marker: Marker | None, chunks: Iterable[Chunk]
    ) -> Iterator[Chunk]:
        """Pass the chunks on; search each topic that the rows of a first micro-batch name."""
        known = {self._topic}
        for chunk in chunks:
            topics = {message.topic for message in chunk} - known if marker is None else set()
            if topics:
                known |= topics
                due(batch, None, self._found(topics))
            yield chunk

    def _write(
        self, marker: Marker, chunks: Iterable[Chunk], lanes: dict[int, LaneMarker] | None = None
    ) -> dict[str, int]:
        records = self._marked.send(chunks)
        others = {
            sink_lane_names(self._app, lane).group: (each.done, each.metadata)
            for lane, each in (lanes or {}).items()
        }
        self._marked.commit(marker.next, marker.metadata, others)
        return records


class LanePublished(msgspec.Struct):
    """What a lane has done: parcels that are published, and what this call published, by topic.

    ``attempts``: producers that it took.
    """

    done: int = 0
    records: dict[str, int] = {}
    attempts: int = 0


def publish_lane(
    marked: MarkedTransaction,
    lane: int,
    manifest: str,
    parcels: Sequence[Chunks],
    published: LanePublished,
    *,
    attempts_max: int,
) -> None:
    """Publish what one lane has of a manifest, and keep ``published`` up meanwhile.

    Raises PositionLostError when the lane's marker does not know the manifest, StopError when no
    repetition can help, BatchAbortedError or ProducerDeadError when the same call is to be repeated
    later.
    """
    failures, records = 0, Counter[str]()
    while True:
        published.attempts += 1
        try:
            found = marked.opened()
            marker = None if found is None else LaneMarker.parse(*found)
            published.done = published_parcels(lane, manifest, marker)
            while published.done < len(parcels):
                taken, sent = _part(marked, manifest, parcels, published.done)
                records.update(sent)
                published.done, published.records = taken, dict(records)
                failures = 0
        except (BatchAbortedError, ProducerDeadError):
            failures += 1
            refusal = marked.transaction.refusal()
            if refusal is not None:
                raise StopError(
                    f"a record was refused, number {refusal[0]} from parcel {published.done} of"
                    f" lane {lane}: {refusal[1]}"
                ) from None
            if failures == attempts_max:
                raise
        else:
            return


def _part(
    marked: MarkedTransaction, manifest: str, parcels: Sequence[Chunks], done: int
) -> tuple[int, dict[str, int]]:
    taken = done

    def chunks() -> Iterator[Chunk]:
        nonlocal taken
        for parcel in parcels[done:]:
            yield from parcel()
            taken += 1
            if marked.transaction.age_s > marked.deadline_s / PART_OF_TIMEOUT:
                return

    records = marked.send(chunks())
    marker = LaneMarker(taken, manifest)
    marked.commit(marker.done, marker.metadata)
    return taken, records
