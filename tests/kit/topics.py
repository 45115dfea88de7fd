"""What tests write to topics and read back: plain clients, nothing of the service but its words."""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from hapax.core.offset_commit import CommittedMetadata
from hapax.core.records import Headers, Record, TopicPartition as Place
from tests.kit.kept_clients import QUIET, WRITER, administrator, reader, writer
from tests.kit.waiting import patient

Isolation = Literal["read_committed", "read_uncommitted"]
FOREVER = {"retention.ms": "-1"}
"""For topics whose records have old timestamps: brokers delete those half a minute after their
start, and every five minutes, in the middle of a test."""
QUEUED_MAX = 50_000
"""Records on their way: the client refuses more than twice as many."""
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
ISOLATIONS = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
_AGAIN_S = 0.005
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


def delete_group(bootstrap_servers: str, group: str) -> None:
    with administrator(bootstrap_servers) as admin:
        admin.delete_consumer_groups([group])[group].result(30)


def produce(bootstrap_servers: str, topic: str, *records: bytes | Given) -> None:
    """Write records outside of any transaction; return when all are acknowledged."""
    with writer(bootstrap_servers) as producer:
        _send(producer, topic, records)


def produce_committed(bootstrap_servers: str, topic: str, *records: bytes | Given) -> None:
    """Write records in one transaction, and commit it; return when its markers are written."""
    _produce_and(Producer.commit_transaction, bootstrap_servers, topic, records)


def produce_aborted(bootstrap_servers: str, topic: str, *records: bytes | Given) -> None:
    """Write records in one transaction, and abort it; return when its markers are written."""
    _produce_and(Producer.abort_transaction, bootstrap_servers, topic, records)


def _produce_and(end: Any, servers: str, topic: str, records: Sequence[bytes | Given]) -> None:
    name = f"test-{uuid.uuid4().hex}"
    with transaction(servers, name) as producer:
        _send(producer, topic, records)
        end(producer, _TIMEOUT_S)
    _await_markers(servers, name)


def _await_markers(bootstrap_servers: str, transactional_id: str) -> None:
    """Return when a transaction that was ended has its marker in each partition.

    The coordinator answers before it has them written, and another producer's record may come in
    between; the id gets no producer until they are.
    """
    with transaction(bootstrap_servers, transactional_id):
        pass


@contextmanager
def produce_open(
    bootstrap_servers: str, topic: str, *records: bytes | Given, timeout_ms: int = 60_000
) -> Iterator[Producer]:
    """Write records in a transaction that stays open inside the block, then abort it.

    The block may end it first, with the producer that it is given; brokers do after the timeout.
    """
    with transaction(bootstrap_servers, timeout_ms=timeout_ms) as producer:
        _send(producer, topic, records)
        yield producer
        try:
            producer.abort_transaction(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # the block has ended it
                raise


@contextmanager
def transaction(
    bootstrap_servers: str, transactional_id: str | None = None, *, timeout_ms: int = 60_000
) -> Iterator[Producer]:
    """Give a producer in a transaction that has begun; ending it is up to the block."""
    producer = Producer(
        {
            **QUIET,
            **WRITER,
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id or f"test-{uuid.uuid4().hex}",
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.list_topics(timeout=_TIMEOUT_S)  # connected at once, as in kept_clients
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
    so this never waits for an open transaction. ``patience_ms``: how long a marker under way has
    to arrive, as producers are answered before it is in the log.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    with administrator(bootstrap_servers) as admin:
        places = [place for name in names for place in _places(admin, name)]
        ends = _settled(admin, places, isolation, patience_ms / 1000)
    unread = {place: end for place, end in ends.items() if end}
    records = []
    with reader(bootstrap_servers, isolation) as consumer:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in unread])
        while unread:
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"no end of {sorted(unread)} within {_TIMEOUT_S} s")
            place, error = (message.topic() or "", message.partition() or 0), message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                unread.pop(place, None)
            elif error is not None and not error.retriable():
                raise KafkaException(error)
            elif error is None and place in unread:
                record = _record(message)
                if record.offset < unread[place]:
                    records.append(record)
                if record.offset + 1 >= unread[place]:
                    del unread[place]
        consumer.unassign()
    return sorted(records, key=lambda record: record.coordinates)


@patient
def committed(bootstrap_servers: str, group: str, topic: str) -> dict[int, int | None]:
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
    """Return what is committed, once no transaction under way may change it.

    The administrator's client is not asked: it crashes where a coordinator has just moved
    (librdkafka 2.16, rd_kafka_handle_OffsetFetch without a group of its own).
    """
    with reader(bootstrap_servers, "read_committed", group) as consumer:
        asked = [TopicPartition(*place) for place in _places(consumer, topic)]
        return consumer.committed(asked, _ANSWER_S)


@patient
def watermarks(
    bootstrap_servers: str, topic: str, isolation: Isolation
) -> dict[int, tuple[int, int]]:
    """Return where each partition begins, and its end as ``ends`` does."""
    with administrator(bootstrap_servers) as admin:
        places = _places(admin, topic)
        begins = _offsets(admin, places, isolation, EARLIEST)
        found = _offsets(admin, places, isolation)
    return {place[1]: (begins[place], end) for place, end in found.items()}


@patient
def ends(
    bootstrap_servers: str, topic: str, isolation: Isolation = "read_committed"
) -> dict[int, int]:
    """Return the end of each partition.

    That is the last stable offset for ``read_committed``, else the high watermark.
    """
    with administrator(bootstrap_servers) as admin:
        found = _offsets(admin, _places(admin, topic), isolation)
    return {number: end for (_topic, number), end in found.items()}


def lag(bootstrap_servers: str, group: str, topic: str) -> int:
    """Return how many offsets a group has not committed yet, up to the last stable ones."""
    done = committed(bootstrap_servers, group, topic)
    return sum(end - (done[number] or 0) for number, end in ends(bootstrap_servers, topic).items())


def _places(client: AdminClient | Consumer, topic: str) -> list[Place]:
    found = client.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return [(topic, number) for number in sorted(found.partitions)]


def _offsets(
    admin: AdminClient, places: Iterable[Place], isolation: Isolation, which: OffsetSpec = LATEST
) -> dict[Place, int]:
    asked = admin.list_offsets(
        {TopicPartition(*place): which for place in places},
        isolation_level=ISOLATIONS[isolation],
        request_timeout=_ANSWER_S,
    )
    return {(one.topic, one.partition): answer.result().offset for one, answer in asked.items()}


def _settled(
    admin: AdminClient, places: list[Place], isolation: Isolation, patience_s: float
) -> dict[Place, int]:
    """Return the ends, once what was written before is decided or the patience is over."""
    written = _offsets(admin, places, "read_uncommitted")
    give_up_s = time.monotonic() + patience_s
    while True:
        found = _offsets(admin, places, isolation)
        decided = all(found[place] >= end for place, end in written.items())
        if decided or time.monotonic() > give_up_s:
            return found
        time.sleep(_AGAIN_S)


def _send(producer: Producer, topic: str, records: Iterable[bytes | Given]) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    def queue(given: Given) -> None:
        producer.produce(
            topic,
            value=given.value,
            key=given.key,
            headers=list(given.headers),
            partition=given.partition,
            timestamp=given.timestamp_ms,
            on_delivery=delivered,
        )

    for one in records:
        given = one if isinstance(one, Given) else Given(one)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.1)
        try:
            queue(given)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            producer.list_topics(topic, timeout=_TIMEOUT_S)  # added since a kept client asked
            queue(given)
    if producer.flush(_TIMEOUT_S) or failures:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))


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


def configure(
    admin: AdminClient, kind: ResourceType, names: Iterable[str], values: Mapping[str, str]
) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    asked = [ConfigResource(kind, name, incremental_configs=entries) for name in names]
    for future in admin.incremental_alter_configs(asked).values():
        future.result(30)
