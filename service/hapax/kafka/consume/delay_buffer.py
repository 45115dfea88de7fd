"""Messages of the retry topic that have arrived and have not waited long enough.

They stay in memory in the order of their partitions, so that reading continues everywhere and each
is handed out when its time is over, without another fetch. Nothing after one that waits is handed
out: progress never passes it. What is too much is left to the brokers: the partition is paused.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError

from hapax.core.headers import Retried
from hapax.kafka.errors import NO_TEXT, client_headers
from hapax.kafka.undecodable import UNDECODABLE
from hapax.processing.retry_later import LEVELS, LOWEST_MS, WAITS_MS

if TYPE_CHECKING:
    from collections.abc import Collection

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where

RECORDS_MAX, BYTES_MAX = 2_000, 4 << 20
"""Of one partition; half as much is left when reading continues."""
_IN_ORDER = frozenset({KafkaError._PARTITION_EOF, *UNDECODABLE})


class Held(NamedTuple):
    """A message, and from when on it may be handed out, by ``Clock.monotonic``."""

    message: Any
    due_s: float


class DelayBuffer:
    """What waits, by partition. One thread only; ``records`` may be asked by any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[Where, deque[Held]] = {}
        self._bytes: dict[Where, int] = {}

    def put(self, where: Where, message: Any, now_ms: int) -> None:
        """Add the next message of a partition: a record, or its end."""
        held = self._held.setdefault(where, deque())
        held.append(Held(message, self._clock.monotonic() + _wait_ms(message, now_ms) / 1000))
        self._bytes[where] = self._bytes.get(where, 0) + len(message)

    def due(self, count: int) -> int:
        now_s, found = self._clock.monotonic(), 0
        for held in self._held.values():
            for one in held:
                if one.due_s > now_s or found >= count:
                    break
                found += 1
        return found

    def take(self, count: int) -> list[Any]:
        now_s, taken = self._clock.monotonic(), list[Any]()
        for where, held in self._held.items():
            while held and held[0].due_s <= now_s and len(taken) < count:
                message = held.popleft().message
                self._bytes[where] -= len(message)
                taken.append(message)
        return taken

    def wait_s(self, most_s: float) -> float:
        now_s = self._clock.monotonic()
        heads = [held[0].due_s for held in self._held.values() if held]
        return max(0.0, min([most_s, *(due_s - now_s for due_s in heads)]))

    def next_offset(self, where: Where) -> int | None:
        """Return where reading of a partition continues after what is here; None: nothing is."""
        held = self._held.get(where)
        if not held:
            return None
        last = held[-1].message
        return int(last.offset()) + (last.error() is None)

    def full(self) -> list[Where]:
        return [
            where
            for where, held in self._held.items()
            if len(held) >= RECORDS_MAX or self._bytes[where] >= BYTES_MAX
        ]

    def has_room(self, where: Where) -> bool:
        count, size = len(self._held.get(where, ())), self._bytes.get(where, 0)
        return count <= RECORDS_MAX // 2 and size <= BYTES_MAX // 2

    @property
    def records(self) -> int:
        """How many records wait here; more may wait on the brokers for room."""
        return sum(
            one.message.error() is None for held in list(self._held.values()) for one in list(held)
        )

    def drop(self, partitions: Collection[Where]) -> None:
        for where in partitions:
            self._held.pop(where, None)
            self._bytes.pop(where, None)

    def clear(self) -> None:
        self._held.clear()
        self._bytes.clear()


def _wait_ms(message: Any, now_ms: int) -> int:
    """Return it, bounded: a longer wait is of a wrong clock, and the record is then moved."""
    if message.error() is not None:
        return 0
    try:
        headers = client_headers(message)
    except NO_TEXT:
        return 0
    found = Retried.decode(dict(headers or ()))
    if found is None:
        return 0
    most_ms = max(LOWEST_MS, WAITS_MS[min(message.partition(), LEVELS - 1)])
    wait_ms: int = min(found.until - now_ms, most_ms)
    return max(0, wait_ms)


def keeps_order(message: Any) -> bool:
    """Whether a message counts only after those before it: a record, an end, a broken set."""
    error = message.error()
    return error is None or error.code() in _IN_ORDER
