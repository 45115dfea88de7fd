"""What tests write to topics and read back: plain clients, nothing of the service but its words."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.records import Headers, Record
from tests.kit.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Isolation = Literal["read_committed", "read_uncommitted"]
FOREVER = {"retention.ms": "-1"}
"""For topics whose records have old timestamps: brokers delete those half a minute after their
start, and every five minutes, in the middle of a test."""
QUEUED_MAX = 50_000
"""Records on their way: the client refuses more than twice as many."""
_TIMEOUT_S = 60.0
_ANSWER_S = 10.0
"""For what is asked again with a new client: one that met a dying broker may wait in vain."""


class Given(NamedTuple):
    """A record to write. ``partition`` -1: by key as Java does; ``timestamp_ms`` 0: now."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0


def produce(bootstrap_servers: str, topic: str, *records: bytes | Given) -> None:
    """Write records outside of any transaction; return when all are acknowledged."""
    producer = _producer(bootstrap_servers)
    _send(producer, topic, records)


def produce_committed(bootstrap_servers: str, topic: str, *records: bytes | Given) -> None:
    """Write records in one transaction, and commit it."""
    with transaction(bootstrap_servers) as producer:
        _send(producer, topic, records)
        producer.commit_transaction(_TIMEOUT_S)


def produce_aborted(bootstrap_servers: str, topic: str, *records: bytes | Given) -> None:
    """Write records in one transaction, and abort it: offsets that nobody will see."""
    with transaction(bootstrap_servers) as producer:
        _send(producer, topic, records)
        producer.abort_transaction(_TIMEOUT_S)


@contextmanager
def produce_open(bootstrap_servers: str, topic: str, *records: bytes | Given) -> Iterator[Producer]:
    """Write records in a transaction that stays open inside the block, then abort it.

    The block may end it first, with the producer that it is given.
    """
    with transaction(bootstrap_servers) as producer:
        _send(producer, topic, records)
        yield producer
        try:
            producer.abort_transaction(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # the block has ended it
                raise


@contextmanager
def transaction(bootstrap_servers: str, transactional_id: str | None = None) -> Iterator[Producer]:
    """Give a producer in a transaction that has begun; ending it is up to the block."""
    producer = _producer(
        bootstrap_servers,
        {
            "transactional.id": transactional_id or f"test-{uuid.uuid4().hex}",
            "transaction.timeout.ms": 60_000,
        },
    )
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    yield producer


@patient
def read_back(
    bootstrap_servers: str,
    topics: str | Iterable[str],
    isolation: Isolation = "read_committed",
    *,
    patience_ms: int = 500,
) -> list[Record]:
    """Return all there is, from the first offset to the end of every partition.

    Sorted by topic, partition, offset. The end is the last stable offset for ``read_committed``,
    so this never waits for an open transaction. ``patience_ms``: how long a broker waits for more
    before it tells the end, which is also the time that a marker under way has to arrive.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    more = {"fetch.wait.max.ms": patience_ms}
    consumer = _consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}", isolation, more)
    try:
        unfinished = {(name, number) for name in names for number in _partitions(consumer, name)}
        consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in unfinished])
        records = []
        while unfinished:
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"no end of {sorted(unfinished)} within {_TIMEOUT_S} s")
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard((message.topic(), message.partition()))
            elif not error.retriable():
                raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(records, key=lambda record: record.coordinates)


@patient
def committed(bootstrap_servers: str, group: str, topic: str) -> dict[int, int | None]:
    """Return the group's committed offset of each partition; None where there is none."""
    found = _committed(bootstrap_servers, group, topic)
    return {one.partition: one.offset if one.offset >= 0 else None for one in found}


@patient
def beside(bootstrap_servers: str, group: str, topic: str) -> dict[int, str | None]:
    """Return the text beside the committed offset of each partition; None where there is none."""
    found = _committed(bootstrap_servers, group, topic)
    return {one.partition: (one.metadata or "") if one.offset >= 0 else None for one in found}


def unmarked(bootstrap_servers: str, group: str, topic: str) -> bool:
    """Return whether all partitions have an offset, and none the mark of a process at work.

    The mark of a new process goes with a transaction of its own when there is nothing left to read
    (engines/suspects.py): behind lag 0, an idle worker commits once more.
    """
    texts = beside(bootstrap_servers, group, topic).values()
    return all(text is not None and not CommittedMetadata.decode(text).deaths for text in texts)


def _committed(bootstrap_servers: str, group: str, topic: str) -> list[TopicPartition]:
    consumer = _consumer(bootstrap_servers, group)
    try:
        asked = [TopicPartition(topic, number) for number in _partitions(consumer, topic)]
        return consumer.committed(asked, _ANSWER_S)
    finally:
        consumer.close()


@patient
def watermarks(
    bootstrap_servers: str, topic: str, isolation: Isolation
) -> dict[int, tuple[int, int]]:
    """Return where each partition begins, and its end as ``ends`` does."""
    consumer = _consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}", isolation)
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), _ANSWER_S)
            for number in _partitions(consumer, topic)
        }
    finally:
        consumer.close()


def ends(
    bootstrap_servers: str, topic: str, isolation: Isolation = "read_committed"
) -> dict[int, int]:
    """Return the end of each partition.

    That is the last stable offset for ``read_committed``, else the high watermark.
    """
    found = watermarks(bootstrap_servers, topic, isolation)
    return {number: end for number, (_begin, end) in found.items()}


def lag(bootstrap_servers: str, group: str, topic: str) -> int:
    """Return how many offsets a group has not committed yet, up to the last stable ones."""
    done = committed(bootstrap_servers, group, topic)
    return sum(end - (done[number] or 0) for number, end in ends(bootstrap_servers, topic).items())


def _producer(bootstrap_servers: str, more: dict[str, Any] | None = None) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 5,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            **(more or {}),
        }
    )
    # Connected, it finds coordinators and gets its id at once; otherwise a timer of 500 ms runs.
    producer.list_topics(timeout=_TIMEOUT_S)
    return producer


def _consumer(
    bootstrap_servers: str,
    group: str,
    isolation: Isolation = "read_committed",
    more: dict[str, Any] | None = None,
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.queue.backoff.ms": 10,
            "auto.offset.reset": "error",
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            **(more or {}),
        }
    )


def _send(producer: Producer, topic: str, records: Iterable[bytes | Given]) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for one in records:
        given = one if isinstance(one, Given) else Given(one)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.1)
        producer.produce(
            topic,
            value=given.value,
            key=given.key,
            headers=list(given.headers),
            partition=given.partition,
            timestamp=given.timestamp_ms,
            on_delivery=delivered,
        )
    if producer.flush(_TIMEOUT_S) or failures:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return list(found.partitions)


def _record(message: Message) -> Record:
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=message.key(),
        value=message.value(),
        headers=tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
        timestamp_ms=message.timestamp()[1],
    )
