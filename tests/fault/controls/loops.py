"""Loops that people write, each with the fault it is known for, as processes.

AutoCommit                  the client commits every second what it has handed out
CommitAfterProduce          produce as records come, commit twice a second: at least once
SetNxThenProcess            Redis ``SET NX``, then process: a crash in between loses the record
PlainTransactions           as in the textbook, with every recovery that the client asks for, but
                            no new epoch when in doubt: correct until a request is delayed
TransactionsWithoutRewind   the same, but an aborted batch is not read again
"""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from redis import Redis

from tests.fault.controls.contract import Contract, effects

Answer = TypeVar("Answer")
Settings = dict[str, Any]

RECORDS_MAX = 500
TAKE_S = 0.05
GATHER = 8
"""Takes between two commits of a loop that commits now and then: 0.4 s."""
CALL_S = 10.0
PATIENCE_S = 30.0


class Process:
    """What all of them have in common: the environment, the outputs, the end."""

    def __init__(self, ours: Contract, **settings: str | int) -> None:
        """Join the group; ``settings`` are further librdkafka properties of the producer."""
        self.ours = ours
        self.stopping = False
        common: Settings = {
            "bootstrap.servers": ours.bootstrap,
            "client.id": ours.name,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            **ours.properties,
        }
        self.consumer = Consumer({**common, **self.membership()})
        self.producer_settings: Settings = {**common, "linger.ms": 0, **settings}
        self.producer = Producer(self.producer_settings)
        self.consumer.subscribe([ours.source])

    def membership(self) -> Settings:
        """Return the librdkafka properties of the consumer."""
        return {
            "group.id": self.ours.app,
            "group.instance.id": self.ours.name,
            "session.timeout.ms": self.ours.session_ms,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "heartbeat.interval.ms": 500,
            "fetch.queue.backoff.ms": 10,
            **self.ours.properties,
        }

    def take(self) -> list[Message]:
        """Return the records that come within ``TAKE_S``."""
        taken: list[Message] = []
        deadline_s = time.monotonic() + TAKE_S
        while len(taken) < RECORDS_MAX and time.monotonic() < deadline_s:
            for message in self.consumer.consume(RECORDS_MAX - len(taken), timeout=0.2):
                error = message.error()
                if error is None:
                    taken.append(message)
                elif not error.retriable():
                    raise AssertionError(error.str())
        return taken

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        while not self.stopping:
            self.turn()
        self.consumer.close()  # nothing is flushed or committed on the way

    def stop(self, *_: object) -> None:
        self.stopping = True

    def turn(self) -> None:
        raise NotImplementedError

    def produce(self, records: Sequence[Message]) -> None:
        """Write what must come of records; not yet durable."""
        for record in records:
            for effect in effects(
                self.ours, coordinates(record), record.value(), record.headers() or []
            ):
                self.producer.produce(
                    effect.topic, effect.value, record.key(), headers=list(effect.headers)
                )
        self.producer.poll(0)

    def send(self, records: Sequence[Message]) -> None:
        """Write, and wait until all is acknowledged."""
        self.produce(records)
        assert self.producer.flush(PATIENCE_S) == 0, "the broker does not acknowledge"


class AutoCommit(Process):
    """Nobody asks when the client commits."""

    def membership(self) -> Settings:
        return {**super().membership(), "enable.auto.commit": True, "auto.commit.interval.ms": 1000}

    def turn(self) -> None:
        self.produce(self.take())


class CommitAfterProduce(Process):
    """Commits now and then, as most consumers do."""

    def turn(self) -> None:
        done: list[Message] = []
        for _ in range(GATHER):
            records = self.take()
            self.send(records)
            done += records
        if done:
            with suppress(KafkaException):  # a rebalance: its next owner reads them again
                self.consumer.commit(offsets=progress(done), asynchronous=False)


class SetNxThenProcess(Process):
    """Claims each record when it comes, processes and commits now and then."""

    def __init__(self, ours: Contract) -> None:
        super().__init__(ours)
        self.redis = Redis.from_url(ours.redis_url)

    def turn(self) -> None:
        done: list[Message] = []
        fresh: list[Message] = []
        for _ in range(GATHER):
            records = self.take()
            fresh += [record for record in records if self._claim(record)]
            done += records
        self.send(fresh)
        if done:
            with suppress(KafkaException):  # a rebalance: its next owner finds all claimed
                self.consumer.commit(offsets=progress(done), asynchronous=False)

    def _claim(self, record: Message) -> bool:
        event = dict(record.headers() or []).get("message-id") or coordinates(record)
        return bool(self.redis.set(f"{self.ours.app}:{event!r}", 1, nx=True))


class PlainTransactions(Process):
    """Correct until a request is delayed. Goes back to what the group says is committed."""

    def __init__(self, ours: Contract) -> None:
        settings: Settings = {
            "transactional.id": ours.name,
            "transaction.timeout.ms": 10_000,
            "socket.timeout.ms": 10_000,
            "retry.backoff.ms": 5,
            "metadata.recovery.strategy": "none",
        }
        super().__init__(ours, **settings)
        self._initialise()

    def _renew(self) -> None:
        """Take a new producer of the same name, which the broker gives a new epoch."""
        self.producer = Producer(self.producer_settings)
        self._initialise()

    def _initialise(self) -> None:
        self.producer.list_topics(self.ours.target, timeout=PATIENCE_S)
        self.producer.init_transactions(PATIENCE_S)

    def turn(self) -> None:
        records = self.take()
        if not records:
            return
        try:
            self._process(records)
        except KafkaException as exception:
            self.recover(exception.args[0], records)

    def _process(self, records: Sequence[Message]) -> None:
        self.producer.begin_transaction()
        # All acknowledged: what is still on its way at an abort would cost the client a new epoch.
        self.send(records)
        member = self.consumer.consumer_group_metadata()
        again(lambda: self.producer.send_offsets_to_transaction(progress(records), member, CALL_S))
        again(lambda: self.producer.commit_transaction(CALL_S))

    def recover(self, error: KafkaError, records: Sequence[Message]) -> None:
        """Do what the client asks for: abort, or a new producer; then read again."""
        sys.stderr.write(f"{error}\n")
        try:
            if error.txn_requires_abort():
                again(lambda: self.producer.abort_transaction(CALL_S))
            else:
                self._renew()
        except KafkaException:
            self._renew()
        self.rewind(records)

    def rewind(self, records: Sequence[Message]) -> None:
        """Go back to the committed offsets, of the partitions that are still ours."""
        ours = self.consumer.assignment()
        if ours:
            for place in again(lambda: self.consumer.committed(ours, CALL_S)):
                offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                with suppress(KafkaException):  # it has left meanwhile
                    self.consumer.seek(TopicPartition(place.topic, place.partition, offset))


class TransactionsWithoutRewind(PlainTransactions):
    """An aborted batch is forgotten: the consumer stands behind it already."""

    def rewind(self, records: Sequence[Message]) -> None:
        """Do nothing, which is the fault."""


def again(call: Callable[[], Answer]) -> Answer:
    """Repeat a call for as long as the client says that it may be repeated."""
    while True:
        try:
            return call()
        except KafkaException as exception:
            if not exception.args[0].retriable():
                raise


def coordinates(record: Message) -> tuple[str, int, int]:
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def progress(records: Sequence[Message]) -> list[TopicPartition]:
    following = {(topic, at): offset + 1 for topic, at, offset in map(coordinates, records)}
    return [TopicPartition(topic, at, offset) for (topic, at), offset in following.items()]


def start(kind: str, ours: Contract) -> None:
    kinds: tuple[Callable[[Contract], Process], ...] = (
        *(AutoCommit, CommitAfterProduce, SetNxThenProcess),
        *(PlainTransactions, TransactionsWithoutRewind),
    )
    {each.__name__: each for each in kinds}[kind](ours).run()
