"""The producer's registration, beside everything else that a start has to wait for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hapax.core.errors import PreflightError, ProducerDeadError

if TYPE_CHECKING:
    from hapax.engines.lifecycle import Lifecycle
    from hapax.kafka.produce.transaction import KafkaTransaction
    from hapax.kafka.produce.weaker import KafkaAtLeastOnce

START_TIMEOUT_S = 120.0
"""Longest wait for brokers that answer metadata requests and nothing else."""


class Opening(threading.Thread):
    """Registers the producer while the consumer joins: both wait mostly for brokers."""

    TIMEOUT_S = START_TIMEOUT_S + 60.0
    """Beyond it a call of the client hangs; the watchdog sees only the engine's thread."""

    def __init__(
        self, transaction: KafkaTransaction | KafkaAtLeastOnce, lifecycle: Lifecycle
    ) -> None:
        super().__init__(name="opening", daemon=True)
        self._transaction = transaction
        self._lifecycle = lifecycle
        self._failure: BaseException | None = None
        self._abandoned = False
        self.unanswered = False
        self._began_s = time.monotonic()

    @property
    def overdue(self) -> bool:
        """Whether the client should have answered long ago."""
        return time.monotonic() - self._began_s > self.TIMEOUT_S

    def run(self) -> None:
        """Try until it works, it cannot work, or nobody waits any more."""
        while not (self._abandoned or self._lifecycle.stopping):
            try:
                self._transaction.open()
            except ProducerDeadError as error:
                self._failure = PreflightError([f"the producer cannot start: {error}"])
                self.unanswered = error.unanswered
                if error.unanswered:
                    # Waited for as long as it takes; the time is for brokers that answer.
                    self._began_s = time.monotonic()
                if time.monotonic() < self._began_s + START_TIMEOUT_S:
                    continue
            except BaseException as error:  # noqa: BLE001 - told to the thread that waits
                self._failure = error
            else:
                self._failure = None
            return

    def abandon(self) -> None:
        """Stop trying; the process is about to leave."""
        self._abandoned = True

    def finish(self) -> None:
        """Raise what went wrong."""
        self.join()
        if self._failure is not None and not self._lifecycle.stopping:
            raise self._failure
