"""Last stable offsets of partitions, asked for without ever waiting long for a broker that is away.

A thread of its own asks, one broker after the other, so that the partitions of the others are
known meanwhile. The client's admin call for this is not used: while brokers were killed it ended
the whole process within minutes (assertion ``eonce->refcnt > 0``, librdkafka #3663 and #4605), and
it went on asking a dead leader after the election. A consumer's call does neither, and it keeps to
its isolation level.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from hapax.core.errors import StopError
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.read.leaders import Leaders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where

WAIT_S = 0.2
"""Longest wait for an answer within one call; the question stays open beyond it."""
REQUEST_TIMEOUT_S = 1.0
"""For one broker: so long the partitions of the others are not asked for again."""
LATEST = -1

Answer = tuple["Progress", list[str], Exception | None]
"""Ends, what went wrong, and what the one who asked must hear of."""


class StableEnds:
    """Asks for the ends of partitions; ``errors`` are for the log."""

    def __init__(self, properties: Mapping[str, Any], logger: object) -> None:
        """Connect to nothing yet. ``properties``: where the brokers are, and how to get in."""
        self._asker = _Asker(properties, logger)
        self._questions: queue.SimpleQueue[list[Where]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open = False
        self._known: Progress = {}
        self.errors: list[str] = []

    def of(self, partitions: Iterable[Where]) -> Progress:
        """Return the ends that are known now, of those partitions that have answered at all.

        Raises StopError when they may not be read.
        """
        wanted = list(partitions)
        if wanted and not self._open:
            self._ask(wanted)
        self._harvest()
        return {where: self._known[where] for where in wanted if where in self._known}

    def _ask(self, partitions: list[Where]) -> None:
        if self._thread is None:
            # A daemon: it may sit in the client, and must not keep the process alive.
            self._thread = threading.Thread(target=self._serve, name="ends", daemon=True)
            self._thread.start()
        self._open = True
        self._questions.put(partitions)

    def _harvest(self) -> None:
        try:
            known, errors, failure = self._answers.get(timeout=WAIT_S if self._open else 0)
        except queue.Empty:
            return
        self._open = False
        self._known |= known
        self.errors += errors
        if failure is not None:
            raise failure

    def _serve(self) -> None:
        while True:
            self._answers.put(self._asker.ask(self._questions.get()))


class _Asker:
    """What the thread does. A client that failed is replaced, with what it knew of leaders."""

    def __init__(self, properties: Mapping[str, Any], logger: object) -> None:
        self._properties = {
            **properties,
            "group.id": "ends",  # the client wants one; it is never joined
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._logger = logger
        self._consumer: tuple[Consumer, Leaders] | None = None

    def ask(self, partitions: list[Where]) -> Answer:
        """Return what the brokers say. Never raises: nobody would hear it on this thread."""
        ends: Progress = {}
        errors: list[str] = []
        try:
            consumer, leaders = self._clients()
            for group in leaders.groups(partitions):
                try:
                    ends |= _ends(consumer, group, errors)
                except KafkaException as exception:
                    errors.append(_told(exception))
        except KafkaException as exception:
            errors.append(_told(exception))
        except Exception as failure:  # noqa: BLE001 - or the thread would end without a word
            return ends, errors, failure
        if len(ends) < len(partitions):
            self._consumer = None
        return ends, errors, None

    def _clients(self) -> tuple[Consumer, Leaders]:
        if self._consumer is None:
            consumer = Consumer(self._properties, logger=self._logger)
            self._consumer = (consumer, Leaders(consumer, REQUEST_TIMEOUT_S))
        return self._consumer


def _ends(consumer: Consumer, partitions: list[Where], errors: list[str]) -> Progress:
    """Return the ends of partitions of one leader; add to ``errors`` what it refused."""
    asked = [TopicPartition(*where, LATEST) for where in partitions]
    ends: Progress = {}
    for one in consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S):
        if one.error is not None:
            errors.append(f"{one.topic}/{one.partition}: {_told(KafkaException(one.error))}")
        elif one.offset >= 0:
            ends[(one.topic, one.partition)] = one.offset
    return ends


def _told(exception: KafkaException) -> str:
    """Return the error in words; raise StopError when asking again is no use."""
    error = exception.args[0]
    if error.code() in FORBIDDEN:
        raise StopError(
            f"not allowed to read: {describe(error)}; grant the right and restart"
        ) from exception
    return f"ends: {describe(error)}"
