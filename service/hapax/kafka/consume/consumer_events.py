"""What the client reports in place of records, judged: ends, positions, errors."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from hapax.core.changes import Changes
from hapax.core.errors import BatchAbortedError, StopError
from hapax.kafka.consume.member_metadata import parse_metadata
from hapax.kafka.errors import COORDINATOR_MOVES, describe, place_of
from hapax.kafka.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.client import GroupConsumer
    from hapax.kafka.consume.partition_state import PartitionStates

_NO_OFFSET = KafkaError(KafkaError._NO_OFFSET).str()
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()
"""The client's own words for why it does not read on: the code is the same for each reason."""
PASSING_S = 5.0
"""A coordinator that loads or moves answers within a moment; after that it is worth a warning."""


class ConsumerEvents:
    """Notes what the client reports, in the states of partitions and in ``changes``."""

    def __init__(self, consumer: GroupConsumer, states: PartitionStates, clock: Clock) -> None:
        self.changes = Changes()
        self._consumer = consumer
        self._states = states
        self._clock = clock
        self._moving_s = (-math.inf, -math.inf)
        self._assigned = False

    def take(self) -> Changes:
        """Return and forget the changes.

        A member that gets no partition is assigned none, and is ready: by the consumer protocol
        (KIP-848) the client does not say so, and its epoch is above 0 once it has joined.
        """
        changes, self.changes = self.changes, Changes()
        if not self._assigned and changes.assigned is None and self._joined():
            changes.assigned = []
        self._assigned |= changes.assigned is not None
        return changes

    def _joined(self) -> bool:
        if self._consumer.properties.get("group.protocol") != "consumer":
            return False
        with suppress(BatchAbortedError):
            epoch, _member = parse_metadata(self._consumer.metadata())
            return epoch > 0
        return False

    def meet(self, message: Any, error: KafkaError) -> None:
        """Judge a message that is no record."""
        code, offset = error.code(), message.offset()
        where = place_of(message)
        if code == KafkaError._PARTITION_EOF:
            self._states.meet_end(where, offset)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}:
            self._lose(where, error)
        elif code in UNDECODABLE and offset is not None:
            self._states.stuck.meet(where, offset, describe(error))
            self._consumer.hold(where, held=True)
        elif error.fatal() or code == KafkaError._FATAL:
            self._consumer.fatal(error)
        elif code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}:
            raise StopError(f"not allowed to read: {describe(error)}; grant the right and restart")
        elif code in COORDINATOR_MOVES and self._passes():
            self.changes.passing.append(describe(error))
        else:
            # Transport, time-outs, max.poll.interval: these heal, or end in a rebalance.
            self.changes.errors.append(describe(error))

    def _lose(self, where: Where, error: KafkaError) -> None:
        """Take note that the client cannot read on; only its words say why (librdkafka 2.16)."""
        self._states.unplaced.add(where)
        if _NO_OFFSET in error.str():
            return
        state = self._states[where]
        state.refused = True
        if error.code() == KafkaError._LOG_TRUNCATION or _TRUNCATED in error.str():
            state.truncated = describe(error)

    def _passes(self) -> bool:
        """Whether a coordinator has been moving for a moment only; asked once for each error."""
        now_s = self._clock.monotonic()
        first_s, last_s = self._moving_s
        if now_s - last_s > PASSING_S:
            first_s = now_s
        self._moving_s = (first_s, now_s)
        return now_s - first_s < PASSING_S
