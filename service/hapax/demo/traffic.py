"""What is published, from a seed, and the shop's producers, which have no faults.

The same seed gives the same bursts, however fast they are sent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from enum import Enum
from random import Random
from typing import NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from hapax.demo.orders import ORDERS, PARTITIONS, Line, Order
from hapax.kafka.errors import offset_of, place_of

BY_KEY = -1
_CUSTOMERS = 500
_REPEAT, _ELSEWHERE, _POISON = 0.02, 0.5, 0.005
_REMEMBERED = 3000
_BURSTS_PER_S = 20
_BEHIND_S_MAX = 1.0
_TIMEOUT_S = 30.0


class Fate(Enum):
    """How a burst is sent."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Event(NamedTuple):
    """One record to publish. ``partition`` BY_KEY: where its key belongs."""

    id: bytes
    key: bytes
    value: bytes
    partition: int = BY_KEY


class Traffic:
    """An endless stream of orders: some sent twice, some poison, some in aborted transactions.

    A repeat has the id and the value of an event published shortly before, in half of the cases
    on another partition. The event it repeats may have been aborted: then the repeat is the first
    that counts.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - the traffic is to be repeatable, not secret
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)
        self._number = 0

    def burst(self, size: int) -> tuple[Fate, list[Event]]:
        fates = (Fate.PLAIN, Fate.COMMITTED, Fate.ABORTED)
        fate = self._random.choices(fates, weights=(6, 3, 1))[0]
        return fate, [self._event() for _ in range(size)]

    def _event(self) -> Event:
        if self._recent and self._random.random() < _REPEAT:
            return self._repeat()
        self._number += 1
        name = f"order-{self._number:07}"
        customer = f"customer-{self._random.randrange(_CUSTOMERS)}"
        event = Event(name.encode(), customer.encode(), self._value(name, customer))
        self._recent.append(event)
        return event

    def _repeat(self) -> Event:
        event = self._random.choice(self._recent)
        if self._random.random() < _ELSEWHERE:
            return event._replace(partition=self._random.randrange(PARTITIONS))
        return event

    def _value(self, name: str, customer: str) -> bytes:
        roll = self._random
        poisoned = roll.random() < _POISON
        if poisoned and roll.random() < _ELSEWHERE:
            return b'{"order":"' + name.encode() + b'","lines":'
        lines = [
            Line(f"article-{roll.randrange(100)}", roll.randint(1, 5), roll.randint(99, 9_999))
            for _ in range(roll.randint(2, 4))
        ]
        return msgspec.json.encode(Order(name, customer, [] if poisoned else lines))


class OrderPublisher(threading.Thread):
    """Publishes at a steady pace until it is asked to stop; the last burst is aborted.

    visible  records sent plainly or in committed transactions; ``events``: the ids among them;
             ``last``: the last offset of these in each partition
    aborted  records in transactions that were aborted
    error    what ended it before its time
    """

    def __init__(self, bootstrap_servers: str, traffic: Traffic, rate: int) -> None:
        super().__init__(name="publisher", daemon=True)
        self._traffic = traffic
        self._size = max(1, rate // _BURSTS_PER_S)
        self._interval_s = self._size / rate
        self._asked_to_stop = threading.Event()
        self._properties: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "log_level": 0,
        }
        self.visible = self.aborted = 0
        self.events: set[bytes] = set()
        self.last: dict[int, int] = {}
        self.error: Exception | None = None

    @property
    def published(self) -> int:
        return self.visible + self.aborted

    def run(self) -> None:
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - as above
            self.error = error

    def stop(self) -> None:
        self._asked_to_stop.set()
        if self.ident is not None:
            self.join()

    def _publish(self) -> None:
        plain = Producer(self._properties)
        transactional = Producer({**self._properties, "transactional.id": "shop"})
        transactional.init_transactions(_TIMEOUT_S)
        due_s = time.monotonic()
        while not self._asked_to_stop.wait(max(0.0, due_s - time.monotonic())):
            fate, events = self._traffic.burst(self._size)
            self._send(plain if fate is Fate.PLAIN else transactional, fate, events)
            due_s = max(due_s + self._interval_s, time.monotonic() - _BEHIND_S_MAX)
        if plain.flush(_TIMEOUT_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._send(transactional, Fate.ABORTED, self._traffic.burst(self._size)[1])

    def _send(self, producer: Producer, fate: Fate, events: list[Event]) -> None:
        if fate is not Fate.PLAIN:
            producer.begin_transaction()
        self._produce(producer, events, visible=fate is not Fate.ABORTED)
        if fate is Fate.ABORTED:
            # Without this the client would throw the records away instead of the broker.
            producer.flush(_TIMEOUT_S)
            producer.abort_transaction(_TIMEOUT_S)
            self.aborted += len(events)
            return
        if fate is Fate.COMMITTED:
            producer.commit_transaction(_TIMEOUT_S)
        self.visible += len(events)
        self.events.update(event.id for event in events)

    def _produce(self, producer: Producer, events: list[Event], *, visible: bool) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            elif visible:
                _topic, partition = place_of(message)
                self.last[partition] = max(offset_of(message), self.last.get(partition, 0))

        for one in events:
            producer.produce(
                ORDERS,
                one.value,
                one.key,
                one.partition,
                on_delivery=delivered,
                headers=[("message-id", one.id)],
            )
        producer.poll(0)
        if failures:
            raise KafkaException(failures[0])
