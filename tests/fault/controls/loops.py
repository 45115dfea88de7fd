"""The naive loops of the kit as processes: they go on until they are told to stop, or killed.

AutoCommit                  the client commits every second what it has handed out
CommitAfterProduce          produce as records come, commit twice a second: at least once
SetNxThenProcess            Redis ``SET NX``, then process: a crash in between loses the record
PlainTransactions           as in the textbook, with every recovery that the client asks for, but
                            no new epoch when in doubt: correct until a request is delayed
TransactionsWithoutRewind   the same, but an aborted batch is not read again
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from tests.fault.controls.contract import Contract, effects
from tests.kit import naive
from tests.kit.naive import coordinates, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import KafkaError, Message

Answer = TypeVar("Answer")

RECORDS_MAX = 500
TAKE_S = 0.05
GATHER = 8
"""Takes between two commits of a loop that commits now and then: 0.4 s."""
CALL_S = 10.0


class Process(naive.AtLeastOnce):
    """What all of them have in common: the environment, the outputs, the end."""

    def __init__(self, ours: Contract, *arguments: str, **settings: str | int | bool) -> None:
        """``arguments``: further ones of the loop of the kit."""
        self.ours = ours
        self.stopping = False
        route = naive.Route(ours.bootstrap, ours.source, ours.target, ours.app)
        super().__init__(
            route, *arguments, **{"client.id": ours.name, **ours.properties}, **settings
        )

    def membership(self) -> naive.Settings:
        return {
            "client.id": self.ours.name,
            "group.instance.id": self.ours.name,
            "session.timeout.ms": self.ours.session_ms,
            **self.ours.properties,
        }

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        while not self.stopping:
            self.turn()
        self.close()

    def stop(self, *_: object) -> None:
        self.stopping = True

    def turn(self) -> None:
        records = self.take(RECORDS_MAX, TAKE_S)
        if records:
            self.process(records)

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
        assert self.producer.flush(naive.PATIENCE_S) == 0, "the broker does not acknowledge"


class AutoCommit(Process):
    """Nobody asks when the client commits."""

    def membership(self) -> naive.Settings:
        return {
            **super().membership(),
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 1000,
        }

    def process(self, records: Sequence[Message]) -> None:
        self.produce(records)


class CommitAfterProduce(Process):
    """Commits now and then, as most consumers do."""

    def turn(self) -> None:
        done: list[Message] = []
        for _ in range(GATHER):
            records = self.take(RECORDS_MAX, TAKE_S)
            self.send(records)
            done += records
        if done:
            with suppress(KafkaException):  # a rebalance: its next owner reads them again
                self.consumer.commit(offsets=progress(done), asynchronous=False)


class SetNxThenProcess(Process, naive.SetNxThenProcess):
    """Claims each record when it comes, processes and commits now and then."""

    def turn(self) -> None:
        done: list[Message] = []
        fresh: list[Message] = []
        for _ in range(GATHER):
            records = self.take(RECORDS_MAX, TAKE_S)
            fresh += [record for record in records if self._claim(record)]
            done += records
        self.send(fresh)
        if done:
            with suppress(KafkaException):  # a rebalance: its next owner finds all claimed
                self.consumer.commit(offsets=progress(done), asynchronous=False)

    def _claim(self, record: Message) -> bool:
        event = dict(record.headers() or []).get("message-id") or coordinates(record)
        return bool(self.redis.set(f"{self.ours.app}:{event!r}", 1, nx=True))


class PlainTransactions(Process, naive.PlainTransactions):
    """Correct until a request is delayed. Goes back to what the group says is committed."""

    def __init__(self, ours: Contract) -> None:
        settings: dict[str, str | int | bool] = {
            "transactional.id": ours.name,
            "socket.timeout.ms": 10_000,  # that of the kit only makes it lose patience sooner
        }
        super().__init__(ours, **settings)

    def turn(self) -> None:
        records = self.take(RECORDS_MAX, TAKE_S)
        if not records:
            return
        try:
            self.process(records)
        except KafkaException as exception:
            self.recover(exception.args[0], records)

    def batch(self, records: Sequence[Message]) -> Iterator[str]:
        self.producer.begin_transaction()
        # All acknowledged: what is still on its way at an abort would cost the client a new epoch.
        self.send(records)
        yield "sent"
        member = self.consumer.consumer_group_metadata()
        again(lambda: self.producer.send_offsets_to_transaction(progress(records), member, CALL_S))
        yield "progressed"
        again(lambda: self.producer.commit_transaction(CALL_S))
        yield "committed"

    def recover(self, error: KafkaError, records: Sequence[Message]) -> None:
        """Do what the client asks for: abort, or a new producer; then read again."""
        sys.stderr.write(f"{error}\n")
        try:
            if error.txn_requires_abort():
                again(lambda: self.producer.abort_transaction(CALL_S))
            else:
                self.renew()
        except KafkaException:
            self.renew()
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


def start(kind: str, ours: Contract) -> None:
    kinds: dict[str, Callable[[Contract], Process]] = {
        each.__name__: each
        for each in (AutoCommit, CommitAfterProduce, PlainTransactions, TransactionsWithoutRewind)
    }
    kinds[SetNxThenProcess.__name__] = lambda ours: SetNxThenProcess(ours, ours.redis_url)
    kinds[kind](ours).run()
