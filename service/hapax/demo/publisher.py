"""Publishes orders at a steady pace, on a thread of its own, while processes die."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from hapax.demo.traffic import Burst, Fate, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

_BURSTS_PER_S = 20
_BEHIND_S_MAX = 1.0
_TIMEOUT_S = 30.0


class OrderPublisher(threading.Thread):
    """The shop's own producers, which have no faults.

    published  records sent, aborted ones included
    visible    records sent plainly or in committed transactions
    aborted    records in transactions that were aborted
    error      what ended it before its time
    """

    def __init__(self, bootstrap_servers: str, topic: str, traffic: Traffic, rate: int) -> None:
        super().__init__(name="publisher", daemon=True)
        self._topic = topic
        self._traffic = traffic
        self._size = max(1, rate // _BURSTS_PER_S)
        self._interval_s = self._size / rate
        self._asked_to_stop = threading.Event()
        self._servers = bootstrap_servers
        self.visible = self.aborted = 0
        self.error: Exception | None = None

    @property
    def published(self) -> int:
        """Records sent so far."""
        return self.visible + self.aborted

    def run(self) -> None:
        """Publish until asked to stop; the last burst is aborted."""
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - reported to the thread that waits
            self.error = error

    def stop(self) -> None:
        """Ask to stop, and wait until all records are acknowledged; raise what went wrong."""
        self._asked_to_stop.set()
        self.join()
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """Stop for good, whatever came of it."""
        self._asked_to_stop.set()
        if self.ident is not None:
            self.join(_TIMEOUT_S)

    def _publish(self) -> None:
        plain = Producer(self._properties())
        transactional = Producer({**self._properties(), "transactional.id": "shop"})
        transactional.init_transactions(_TIMEOUT_S)
        due_s = time.monotonic()
        while not self._asked_to_stop.wait(max(0.0, due_s - time.monotonic())):
            self._send(plain, transactional, self._traffic.burst(self._size))
            due_s = max(due_s + self._interval_s, time.monotonic() - _BEHIND_S_MAX)
        if plain.flush(_TIMEOUT_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._send(plain, transactional, self._traffic.last(self._size))

    def _send(self, plain: Producer, transactional: Producer, burst: Burst) -> None:
        if burst.fate is Fate.PLAIN:
            self._produce(plain, burst)
            self.visible += len(burst.events)
            return
        transactional.begin_transaction()
        self._produce(transactional, burst)
        if burst.fate is Fate.COMMITTED:
            transactional.commit_transaction(_TIMEOUT_S)
            self.visible += len(burst.events)
        else:
            # Without this the client would throw the records away instead of the broker.
            transactional.flush(_TIMEOUT_S)
            transactional.abort_transaction(_TIMEOUT_S)
            self.aborted += len(burst.events)

    def _produce(self, producer: Producer, burst: Burst) -> None:
        failures: list[KafkaError] = []
        delivered = _recorder(failures)
        for event in burst.events:
            producer.produce(
                self._topic,
                event.value,
                event.key,
                event.partition,
                on_delivery=delivered,
                headers=[("message-id", event.id)],
            )
        producer.poll(0)
        if failures:
            raise KafkaException(failures[0])

    def _properties(self) -> dict[str, str | int | bool]:
        return {
            "bootstrap.servers": self._servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "log_level": 0,
        }


def _recorder(failures: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    return delivered
