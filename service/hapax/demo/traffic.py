"""What is published, from a seed. Pure: the same seed gives the same bursts, however fast."""

from __future__ import annotations

from collections import deque
from enum import Enum
from random import Random
from typing import NamedTuple

import msgspec

from hapax.demo.orders import Line, Order

PARTITIONS = 4
BY_KEY = -1
_CUSTOMERS = 500
_REPEAT, _ELSEWHERE, _POISON = 0.02, 0.5, 0.005
_REMEMBERED = 3000


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


class Burst(NamedTuple):
    """Records that are sent together."""

    fate: Fate
    events: list[Event]


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

    def burst(self, size: int) -> Burst:
        """Return the next records."""
        fates = (Fate.PLAIN, Fate.COMMITTED, Fate.ABORTED)
        fate = self._random.choices(fates, weights=(6, 3, 1))[0]
        return Burst(fate, [self._event() for _ in range(size)])

    def last(self, size: int) -> Burst:
        """Return records that no reader may ever see: the input has to end with such."""
        return Burst(Fate.ABORTED, [self._event() for _ in range(size)])

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
