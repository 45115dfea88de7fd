"""Who brings events to the brokers, through anything that happens to these."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.fault.feeding.feed_events import Book, Events, Given, Task
from tests.fault.feeding.ledger import Fate

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
        self,
        task: Task,
        book: Book,
        *,
        count: Callable[[int], None],
        stopped: Callable[[], bool],
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
