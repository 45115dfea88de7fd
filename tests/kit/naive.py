"""Loops that people write, each with the fault it is known for: the controls of every claim.

PlainTransactions   correct until a request is delayed: no new epoch when in doubt
WithoutRewind       transactions, but an aborted batch is not read again: loss
AtLeastOnce         produce, flush, commit: duplicates after a crash
SetNxThenProcess    Redis SET NX, then process: loss after a crash

A test drives them step by step: ``take`` records, then walk through ``batch``, which yields the
name of each step it has done; to crash is to stop walking and to ``close``. As processes that
may be killed they are in tests/fault/controls/loops.py.
"""

import time
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from redis import Redis

Settings = dict[str, str | int | bool | object]

PATIENCE_S = 30.0


class Route(NamedTuple):
    """From where to where, and under which name."""

    bootstrap: str
    source: str
    target: str
    app: str


class AtLeastOnce:
    """Produce, flush, commit. A crash before the commit makes duplicates."""

    settings: ClassVar[Settings] = {}

    def __init__(self, route: Route, **settings: str | int | bool) -> None:
        """Join the group; ``settings`` are further librdkafka properties of the producer."""
        self.route = route
        common: Settings = {
            "bootstrap.servers": route.bootstrap,
            "client.id": route.app,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self.consumer = Consumer(
            {
                **common,
                "group.id": route.app,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "fetch.queue.backoff.ms": 10,
                **self.membership(),
            }
        )
        self.producer_settings: Settings = {**common, "linger.ms": 0, **self.settings, **settings}
        self.producer = Producer(self.producer_settings)
        self.consumer.subscribe([route.source])

    def membership(self) -> Settings:
        """Return further librdkafka properties of the consumer."""
        return {}

    def take(self, count: int, timeout_s: float = PATIENCE_S) -> list[Message]:
        """Return ``count`` records, or fewer when they do not come in time."""
        taken: list[Message] = []
        deadline_s = time.monotonic() + timeout_s
        while len(taken) < count and time.monotonic() < deadline_s:
            for message in self.consumer.consume(count - len(taken), timeout=0.2):
                error = message.error()
                if error is None:
                    taken.append(message)
                elif not error.retriable():
                    raise AssertionError(error.str())
        return taken

    def batch(self, records: Sequence[Message]) -> Iterator[str]:
        self.send(records)
        yield "sent"
        self.consumer.commit(offsets=progress(records), asynchronous=False)
        yield "committed"

    def process(self, records: Sequence[Message]) -> None:
        for _ in self.batch(records):
            pass

    def send(self, records: Sequence[Message]) -> None:
        for record in records:
            source = f"{record.topic()}/{record.partition()}/{record.offset()}".encode()
            self.producer.produce(
                self.route.target,
                record.value(),
                record.key(),
                headers=[*(record.headers() or []), ("hapax-source", source)],
            )
        assert self.producer.flush(PATIENCE_S) == 0, "the broker does not acknowledge"

    def close(self) -> None:
        """Leave the group. Nothing is flushed or committed on the way."""
        self.consumer.close()


class PlainTransactions(AtLeastOnce):
    """Transactions as in the textbook. A delayed request of one transaction hits the next one."""

    settings: ClassVar[Settings] = {
        "transaction.timeout.ms": 10000,
        "socket.timeout.ms": 1500,
        "retry.backoff.ms": 5,
        "metadata.recovery.strategy": "none",
    }

    def __init__(self, route: Route, **settings: str | int | bool) -> None:
        super().__init__(route, **{"transactional.id": route.app, **settings})
        self._initialise()

    def renew(self) -> None:
        """Take a new producer of the same name, which the broker gives a new epoch: the cure."""
        self.producer = Producer(self.producer_settings)
        self._initialise()

    def _initialise(self) -> None:
        self.producer.list_topics(self.route.target, timeout=PATIENCE_S)
        self.producer.init_transactions(PATIENCE_S)

    def abort(self, records: Sequence[Message]) -> None:
        """Write the outputs of a batch, give up, and go back."""
        self.producer.begin_transaction()
        self.send(records)
        self.producer.abort_transaction(PATIENCE_S)
        self.rewind(records)

    def batch(self, records: Sequence[Message]) -> Iterator[str]:
        self.producer.begin_transaction()
        self.send(records)
        yield "sent"
        self.producer.send_offsets_to_transaction(
            progress(records), self.consumer.consumer_group_metadata(), PATIENCE_S
        )
        yield "progressed"
        self.producer.commit_transaction(PATIENCE_S)
        yield "committed"

    def rewind(self, records: Sequence[Message]) -> None:
        first: dict[tuple[str, int], int] = {}
        for topic, partition, offset in map(coordinates, records):
            first.setdefault((topic, partition), offset)
        for (topic, partition), offset in first.items():
            self.consumer.seek(TopicPartition(topic, partition, offset))


class WithoutRewind(PlainTransactions):
    """An aborted batch is forgotten: the consumer stands behind it already."""

    def rewind(self, records: Sequence[Message]) -> None:
        """Do nothing, which is the fault."""


class SetNxThenProcess(AtLeastOnce):
    """Claim the value in Redis, process if it was new. A crash in between loses the record."""

    def __init__(self, route: Route, redis_url: str, **settings: str | int | bool) -> None:
        super().__init__(route, **settings)
        self.redis = Redis.from_url(redis_url)

    def batch(self, records: Sequence[Message]) -> Iterator[str]:
        fresh = [
            record
            for record in records
            if self.redis.set(b"%s:%s" % (self.route.app.encode(), record.value()), 1, nx=True)
        ]
        yield "claimed"
        self.send(fresh)
        yield "sent"
        self.consumer.commit(offsets=progress(records), asynchronous=False)
        yield "committed"

    def close(self) -> None:
        super().close()
        self.redis.close()


def coordinates(record: Message) -> tuple[str, int, int]:
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def progress(records: Sequence[Message]) -> list[TopicPartition]:
    following = {(topic, at): offset + 1 for topic, at, offset in map(coordinates, records)}
    return [TopicPartition(topic, at, offset) for (topic, at), offset in following.items()]
