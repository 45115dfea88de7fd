"""Whether a consumer is cut off: no broker answers it, and one answers a new client.

An only broker that is stopped in order says that there are no brokers, and so may what stands in
front of brokers. librdkafka 2.16 then forgets all it knew, with the addresses it was given, and
never connects again; without ``metadata.recovery.strategy`` (properties.py says why) nothing but a
new client helps. It is told apart from an outage by asking with one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.kafka.connection import answers, new_client_answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.ports import Clock
    from hapax.core.records import Progress
    from hapax.kafka.consume.client import GroupConsumer
    from hapax.kafka.consume.partition_state import PartitionStates

LOOK_S, ASK_TIMEOUT_S = 2.0, 0.5
FETCH_WAIT_MAX_MS = 500
"""librdkafka's own, where no property says otherwise."""
PATIENCE_S = 1.0
"""A client that is not cut off connects again within half a second, and is asked twice more."""


class Silence:
    """Asks now and then, while nothing is read. One thread only.

    answered  whether a broker has answered when it was last asked
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: Progress | None = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Take note of a new client."""
        self.answered = True
        self._due_s = self._clock.monotonic() + LOOK_S
        self._since_s: float | None = None

    def due(self) -> None:
        """Ask with the next look, whatever was read."""
        self._due_s, self._seen = self._clock.monotonic(), None

    def bound(self, timeout_s: float) -> float:
        """Return how long to wait for an answer; short while brokers answer nothing."""
        return timeout_s if self.answered else min(timeout_s, ASK_TIMEOUT_S)

    def cut_off(self, own: GroupConsumer, topic: str, positions: Callable[[], Progress]) -> bool:
        """Whether new clients have been answered for a while, and this one was not.

        ``positions`` are asked for when a look is due, and not each time round.
        """
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            return False
        before, self._seen = self._seen, positions()
        moved = before is not None and self._seen != before
        wait_s = _longest_fetch_s(own) + ASK_TIMEOUT_S
        self.answered = moved or answers(own.client, wait_s, topic)
        self._due_s = self._clock.monotonic() + (LOOK_S if self.answered else ASK_TIMEOUT_S)
        if self.answered or not new_client_answered(own.properties, ASK_TIMEOUT_S):
            self._since_s = None
            return False
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s >= PATIENCE_S


class AnsweredSource:
    """What sources on a consumer have in common: they know when it is cut off."""

    _consumer: GroupConsumer
    _states: PartitionStates
    _topics: list[str]

    @property
    def answered(self) -> bool:
        """Whether a broker has answered this client when it was last asked."""
        return self._consumer.silence.answered

    def cut_off(self, *, now: bool = False) -> bool:
        """Whether no broker answers this client any more, and new ones are answered."""
        own = self._consumer
        if now:
            own.silence.due()
        return own.silence.cut_off(own, self._topics[0], self._states.next_offsets)


def _longest_fetch_s(own: GroupConsumer) -> float:
    """Return how long a fetch may wait: brokers answer in order, so a question waits behind it."""
    return int(own.properties.get("fetch.wait.max.ms", FETCH_WAIT_MAX_MS)) / 1000
