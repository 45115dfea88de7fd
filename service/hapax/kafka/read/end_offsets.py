"""Last stable offsets of partitions, without ever waiting long for a broker that is away.

A thread of its own queries the brokers, one after the other, so that the partitions of the others
are known meanwhile.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.errors import StopError
from hapax.kafka.errors import FORBIDDEN, describe
from hapax.kafka.read.offset_queries import LATEST, OffsetQueries, Unanswered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where

WAIT_S = 0.2
"""Longest wait for an answer within one call; the question stays open beyond it."""
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
    """What the thread does. Clients that failed are replaced, with what they knew of leaders."""

    def __init__(self, properties: Mapping[str, Any], logger: object) -> None:
        self._properties = {**properties, "group.id": "ends"}  # the client wants one
        self._logger = logger
        self._queries: OffsetQueries | None = None

    def ask(self, partitions: list[Where]) -> Answer:
        """Return what the brokers answer. Never raises: nothing would catch it on this thread."""
        ends: Progress = {}
        errors: list[str] = []
        try:
            if self._queries is None:
                self._queries = OffsetQueries(self._properties, self._logger)
            queries = self._queries
            try:
                found = queries.offsets(dict.fromkeys(partitions, LATEST), committed=True)
            except KafkaException as exception:
                queries.errors.append(Unanswered(-1, None, exception.args[0]))
                found = {}
            ends = {where: offset for where, offset in found.items() if offset is not None}
            errors = [_described(one) for one in queries.take_errors()]
        except Exception as failure:  # noqa: BLE001 - or the thread would end without a word
            return ends, errors, failure
        if len(ends) < len(partitions):
            self._queries = None
        return ends, errors, None


def _described(one: Unanswered) -> str:
    """Return the error in words; raise StopError when asking again is no use."""
    why = describe(one.error)
    if one.error.code() in FORBIDDEN:
        raise StopError(f"not allowed to read: {why}; grant the right and restart")
    return f"ends: {why}" if one.where is None else f"{one.where[0]}/{one.where[1]}: ends: {why}"
