"""The feeder's process: two threads, one of them writing in transactions."""

import gc
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.fault.feeding.feed_events import Book, Events, Given, Task
from tests.fault.feeding.feed_state import BOUND, RATE, READY, SAVED, STOP, WRITTEN, shared
from tests.fault.feeding.ledger import COPIES, Fate, Ledger

# -- Who brings events to the brokers, through anything that happens to these --------------

FINISH_TIMEOUT_S = 240.0

COMMON: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "metadata.recovery.strategy": "none",
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


class Writer(ABC):
    """Writes chunks of events and notes what became of them.

    count    is told how many records are written for certain
    stopped  whether there is no time left for anything new
    """

    bound: ClassVar[bool]

    def __init__(
        self, task: Task, book: Book, *, count: Callable[[int], None], stopped: Callable[[], bool]
    ) -> None:
        self.events = Events(task, book, bound=self.bound)
        self._task = task
        self._book = book
        self._count = count
        self._stopped = stopped
        self._producer = self._made()

    @abstractmethod
    def write(self, chunk: list[Given]) -> None:
        """Write events in their order."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until nothing is on its way any more."""

    @abstractmethod
    def _made(self) -> Producer:
        """Return a new producer."""

    def serve(self, wait_s: float) -> None:
        """Let the client report, for at most so long."""
        self._producer.poll(wait_s)

    def _send(self, given: Given, report: Callable[..., None] | None) -> None:
        _at, partition, key, value, headers = given
        topic = self._task.topic
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    report,
                    headers=headers,  # type: ignore[arg-type]
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


class PlainWriter(Writer):
    """Writes without transactions."""

    bound = False

    def write(self, chunk: list[Given]) -> None:
        self._book.note([given.at for given in chunk], Fate.INFO)
        reports = _Reports(chunk, self._book, self._count)
        try:
            for given in chunk:
                self._send(given, reports.delivered)
        except KafkaException:  # a producer that is dead
            self._renew()
        self._producer.poll(0)

    def finish(self) -> None:
        self._producer.flush(FINISH_TIMEOUT_S)

    def _renew(self) -> None:
        self._producer.purge()
        self._producer.flush(10.0)
        self._producer = self._made()

    def _made(self) -> Producer:
        return Producer(
            COMMON | {"bootstrap.servers": self._task.bootstrap, "message.timeout.ms": 900_000}
        )


class _Reports:
    """The delivery reports of one chunk."""

    def __init__(self, chunk: list[Given], book: Book, count: Callable[[int], None]) -> None:
        self._chunk = chunk
        self._book = book
        self._count = count
        self._left = len(chunk)
        self._failed: set[bytes | None] = set()

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.add(message.value())
        self._left -= 1
        if not self._left:
            good = [one.at for one in self._chunk if one.value not in self._failed]
            self._book.note(good, Fate.OK)
            self._count(len(good))


# -- The writer whose events come in transactions ------------------------------------------

DOUBT_S = 1.0
"""A transaction that took longer may have a late request on its way: the next one gets a new
epoch, so that this request cannot reach into it."""
TRANSACTION_TIMEOUT_MS = 10_000
ABORTED, GIVEN_UP = 0.2, 0.03
"""How often a transaction comes after one that is aborted, or after one that was given up."""


class BoundWriter(Writer):
    """Writes in transactions; some of them follow one that is aborted or given up.

    hidden   records of transactions that were aborted, as planned
    """

    bound = True
    hidden = 0
    _doubt = False

    def write(self, chunk: list[Given]) -> None:
        luck = self.events.rng.random()
        if luck < ABORTED:
            self._abort_planned(self.events.aborted(max(1, len(chunk) // 2)))
        elif luck < ABORTED + GIVEN_UP:
            self._give_up(self.events.aborted(1))
        places = [given.at for given in chunk]
        self._book.note(places, Fate.UNKNOWN)
        fate = self._transaction(chunk)
        self._book.note(places, fate)
        if fate is Fate.COMMITTED:
            self._count(len(chunk))

    def finish(self) -> None:
        """Nothing is on its way between two transactions."""

    def _abort_planned(self, chunk: list[Given]) -> None:
        began_s = time.monotonic()
        try:
            self._begin(chunk)
            self._producer.flush(5.0)  # or the client forgets them without having sent them
            self._producer.abort_transaction(30.0)
        except KafkaException:
            self._doubt = True
        self.hidden += len(chunk)
        if self._doubt or time.monotonic() - began_s > DOUBT_S:
            self._renew()

    def _give_up(self, chunk: list[Given]) -> None:
        """Begin and be gone before records are sent: a marker may be all that is in the log.

        The same producer must not go on after a purge: it would skip sequence numbers.
        """
        try:
            self._begin(chunk)
            self._producer.poll(0.01)  # time for the partition to be added
            self._producer.purge(in_flight=False)
        except KafkaException:
            pass  # it is given up anyway
        self._renew()

    def _transaction(self, chunk: list[Given]) -> Fate:
        began_s = time.monotonic()
        try:
            self._begin(chunk)
        except KafkaException:
            return self._abandoned()
        fate = self._commit()
        if self._doubt or time.monotonic() - began_s > DOUBT_S or fate is Fate.UNKNOWN:
            self._renew()
        return fate

    def _begin(self, chunk: list[Given]) -> None:
        self._producer.begin_transaction()
        for given in chunk:
            self._send(given, None)

    def _commit(self) -> Fate:
        """Commit, the same call again as long as the client allows; else nobody knows."""
        deadline_s = time.monotonic() + FINISH_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                self._producer.commit_transaction(15.0)
            except KafkaException as error:
                if not error.args[0].retriable():
                    break
            else:
                return Fate.COMMITTED
        return Fate.UNKNOWN

    def _abandoned(self) -> Fate:
        """A new epoch aborts what was begun: no commit was ever asked for."""
        self._renew()
        return Fate.ABORTED

    def _renew(self) -> None:
        self._producer = self._made()

    def _made(self) -> Producer:
        while True:
            producer = Producer(
                COMMON
                | {
                    "bootstrap.servers": self._task.bootstrap,
                    "transactional.id": f"{self._task.run}-feeder",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "error_cb": self._doubted,
                    "log_level": 0,
                }
            )
            self._doubt = False
            try:
                producer.init_transactions(15.0)
            except KafkaException:
                if self._stopped():
                    return producer
            else:
                return producer

    def _doubted(self, _error: object) -> None:
        self._doubt = True


# -- The process ---------------------------------------------------------------------------

BOUND_SHARE = 0.45
"""Of the records, how many are written in transactions."""
CHUNKS_PER_S = 12
CHUNK_MAX = 2000
CATCH_UP_S = 0.5
"""How much of what could not be written in time is made up for."""


class Lane(threading.Thread):
    """Brings chunks of events to one writer at its share of the pace."""

    def __init__(self, writer: Writer, rate: Callable[[], float], stop: Callable[[], bool]) -> None:
        super().__init__()
        self._writer = writer
        self._rate = rate
        self._stopping = stop  # Thread has a method called _stop
        self.failure: BaseException | None = None
        self.idle = False

    def run(self) -> None:
        try:
            self._feed()
            self._writer.finish()
        except BaseException as failure:  # the other thread must not go on alone
            self.failure = failure
            raise

    def _feed(self) -> None:
        next_s = time.monotonic()
        while not self._stopping():
            rate = self._rate()
            if rate <= 0:
                if not self.idle:
                    self._writer.finish()
                    self.idle = True
                self._writer.serve(0.02)
                continue
            self.idle = False
            mean = min(max(rate / CHUNKS_PER_S, 1), CHUNK_MAX)
            size = self._writer.events.rng.randint(1, max(1, int(2 * mean) - 1))
            next_s = max(next_s, time.monotonic() - CATCH_UP_S) + size / rate
            self._writer.write(self._writer.events.take(size))
            while (wait_s := next_s - time.monotonic()) > 0 and not self._stopping():
                self._writer.serve(min(wait_s, 0.05))


def main(task: Task) -> None:
    folder = Path(task.folder)
    cells = shared(folder / "feed.state")
    parent = os.getppid()
    book = Book()
    lanes: list[Lane] = []

    def stopped() -> bool:
        return bool(cells[STOP]) or os.getppid() != parent or any(lane.failure for lane in lanes)

    def counter(cell: int) -> Callable[[int], None]:
        def count(records: int) -> None:
            cells[cell] += records

        return count

    plain = PlainWriter(task, book, count=counter(WRITTEN), stopped=stopped)
    bound = BoundWriter(task, book, count=counter(BOUND), stopped=stopped)
    lanes += [
        Lane(plain, lambda: cells[RATE] * (1 - BOUND_SHARE), stopped),
        Lane(bound, lambda: cells[RATE] * BOUND_SHARE, stopped),
    ]
    for lane in lanes:
        lane.start()
    cells[READY] = 1

    def save() -> None:
        fates = np.frombuffer(bytes(book.fates), np.uint8).reshape(-1, COPIES)
        Ledger(task.run, fates, bound.hidden).save(folder / "ledger.npz")

    while any(lane.is_alive() for lane in lanes):
        time.sleep(0.02)
        if cells[RATE] == 0 and not cells[SAVED] and all(lane.idle for lane in lanes):
            save()
            cells[SAVED] = 1
    if any(lane.failure for lane in lanes):
        sys.exit(1)
    save()


if __name__ == "__main__":
    gc.disable()  # nothing here makes cycles, and much is made
    main(Task(**json.loads(sys.argv[1])))
