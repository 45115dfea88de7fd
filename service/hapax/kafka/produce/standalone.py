"""Transactions under names of their own: of lanes, of replays, and those that only fence.

A replay writes in Kafka transactions: what is written back and the notes of it, or neither. There
is one transactional id per app: a replay that begins ends what a predecessor left, and no other can
commit at the same time. Offsets have no part in it, so there is no group.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from hapax.core.errors import (
    BatchAbortedError,
    DuplicateInstanceError,
    ProducerDeadError,
    StopError,
)
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import lane_id, producer_properties, transactional_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.ports import Clock
    from hapax.core.records import Message
    from hapax.kafka.native import NativePath
    from hapax.settings import Settings


def replay_id(app: str) -> str:
    """Return the transactional id; no worker's and no lane's has a word after the slash."""
    return f"{app}/replay"


def named_transaction(
    settings: Settings, name: str, native: NativePath | None = None, **around: Any
) -> KafkaTransaction:
    properties = producer_properties(settings) | {"client.id": name, "transactional.id": name}
    return KafkaTransaction(ProducerConfig.of(settings, properties, native), **around)


def alone(settings: Settings, name: str, clock: Clock = time) -> KafkaTransaction:
    """Return one that logs nothing: what matters about it is raised."""
    return KafkaTransaction(
        ProducerConfig(
            # A replay is its record and a header more: the largest records would be refused.
            properties={"compression.type": "lz4"}
            | producer_properties(settings, transactional=True)
            | {"transactional.id": name, "client.id": name},
            deadline_s=settings.transaction.timeout_ms / 1000,
        ),
        clock=clock,
        forward=lambda *_line: None,
        watch=lambda _call: nullcontext(),
    )


def fence(settings: Settings, name: str, clock: Clock = time) -> None:
    """End what this id has open; raise ProducerDeadError without an answer: call again."""
    transaction = alone(settings, name, clock)
    try:
        transaction.open()
    finally:
        transaction.close()


class LaneFences:
    """Fences the lanes of a Spark application: their users commit no more."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def lane(self, number: int) -> None:
        fence(self._settings, lane_id(self._settings, number))

    def predecessor(self) -> None:
        """Fence a worker that ran under this name: its open transaction is over at once."""
        fence(self._settings, transactional_id(self._settings))


class ReplayInterruptedError(Exception):
    """The last batch is undone, or done as a whole: open again and look what was replayed."""


class KafkaReplay:
    """Writes batches, each in a transaction of its own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._transaction = alone(settings, replay_id(settings.app), clock)

    def open(self) -> None:
        """End what an earlier replay left, and keep it from committing ever again."""
        try:
            self._transaction.open()
        except ProducerDeadError as error:
            raise _interrupted(error) from error

    def write(self, messages: Sequence[Message]) -> None:
        """Make all of them visible, or none.

        Raises DuplicateInstanceError when another replay has begun, StopError when a message is
        refused, and ReplayInterruptedError when it must be looked up what has become of them. After
        a request that may have been sent twice it raises that, too, though all is visible: a late
        one of this transaction must not reach into the next.
        """
        transaction = self._transaction
        try:
            transaction.begin()
            transaction.send(messages)
            transaction.commit()
        except (BatchAbortedError, ProducerDeadError) as error:
            raise _interrupted(error) from error
        if transaction.doubts:
            raise ReplayInterruptedError(transaction.doubts[0])

    def close(self) -> None:
        self._transaction.close()


def _interrupted(error: BatchAbortedError | ProducerDeadError) -> Exception:
    if isinstance(error, ProducerDeadError) and error.fenced:
        return DuplicateInstanceError(
            "another replay or skip of this pipeline has begun: one at a time"
        )
    if isinstance(error, BatchAbortedError) and error.content:
        return StopError(
            f"a dead letter cannot be written back: {error}. Leave it out by a filter, or let the"
            " input topic take it"
        )
    return ReplayInterruptedError(str(error))
