"""Transactions that carry their own marker: a committed offset that says what they have done.

Every attempt begins with a new producer: its ``init_transactions`` ends what a predecessor left and
refuses whatever that still sends, so the marker read after it is the truth, and no late request of
an earlier transaction can reach this one.

The marker is committed by a producer whose group has no members. The broker takes such offsets from
any producer, so the group fences none here; the transactional id does: an offset counts only when
its transaction commits, and the coordinator commits for the newest producer alone.

Registering ends every transaction of the id, so the stable answer comes at once. It does not come
where the brokers have dropped the marker of a transaction (docs/non-obvious.md, "A cluster that is
killed whole may forget markers"). Nothing is done about that here: a producer cannot know how such
a transaction was decided, and a further one of the same producer would end it along with itself.
Rolled back that way, an offset that was committed went back by a batch (seen once in the campaign
on two clusters).
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, ProducerDeadError, StopError
from hapax.core.offset_commit import GroupOffset, OffsetCommit, text_of
from hapax.kafka.admin.topics import absent_topics
from hapax.kafka.errors import FORBIDDEN, describe, of_group
from hapax.kafka.produce.base import PROPAGATION_S, ProducerConfig, answer_of
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import build, consumer_properties, producer_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hapax.core.ports import Watch
    from hapax.core.records import Message, TopicPartition as Where
    from hapax.kafka.produce.producer import Placed
    from hapax.settings import Settings

    Chunk = Sequence[Message]

ANSWER_TIMEOUT_S = 5.0
_HELD_BACK = (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
TOO_LONG = (
    "the micro-batch does not fit into one transaction of {:g} s: read fewer records at once"
    " (HAPAX_SPARK__BATCH_RECORDS_MAX, or maxOffsetsPerTrigger of the source), or raise"
    " HAPAX_TRANSACTION__TIMEOUT"
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
            transaction.send(chunk)
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
