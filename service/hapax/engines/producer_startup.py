"""The producer's registration, alongside everything else that a start has to wait for."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.core.errors import (
    BatchAbortedError,
    MemberFencedError,
    PreflightError,
    ProducerDeadError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.ports import Source, Transaction
    from hapax.engines.lifecycle import Process

START_TIMEOUT_S = 120.0
"""Longest wait for brokers that answer metadata requests and nothing else."""
WAIT_S = 0.02
AWAY_INTERVAL_S = 6.0
"""Longer than one try of the producer: its last failure may be older than the first answer."""


class Opening(threading.Thread):
    """Registers the producer while the consumer joins: both wait mostly for brokers."""

    TIMEOUT_S = START_TIMEOUT_S + 60.0
    """Beyond it a call of the client hangs; the watchdog sees only the engine's thread."""

    def __init__(self, transaction: Transaction, process: Process) -> None:
        super().__init__(name="opening", daemon=True)
        self._transaction = transaction
        self._process = process
        self._lifecycle = process.lifecycle
        self._failure: BaseException | None = None
        self._abandoned = False
        self._unanswered = False
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Try until it works, it cannot work, or nothing waits any more."""
        while not (self._abandoned or self._lifecycle.stopping):
            try:
                self._transaction.open()
            except ProducerDeadError as error:
                self._failure = PreflightError([f"the producer cannot start: {error}"])
                self._unanswered = error.unanswered
                if error.unanswered:
                    # Waited for as long as it takes; the time is for brokers that answer.
                    self._began_s = time.monotonic()
                if time.monotonic() < self._began_s + START_TIMEOUT_S:
                    continue
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._failure = error
            else:
                self._failure = None
            return

    def abandon(self) -> None:
        self._abandoned = True

    def attend(self, source: Source, unanswered: Callable[[], str]) -> None:
        """Join the group while the producer registers; raise why it could not."""
        clock, events = self._process.clock, self._process.events
        told_s = clock.monotonic()
        while self.is_alive():
            if self._unanswered and clock.monotonic() - told_s > AWAY_INTERVAL_S:
                told_s = clock.monotonic()
                events.brokers_unreachable(unanswered())
            try:
                with suppress(BatchAbortedError):  # positions are looked up by the first take
                    source.attend(WAIT_S)
            except MemberFencedError:
                source.reopen()
            if time.monotonic() - self._began_s > self.TIMEOUT_S:
                raise PreflightError([f"no producer after {self.TIMEOUT_S:.0f} s: a call hangs"])
        if events.brokers_are_away:
            events.brokers_reached()
        self.join()
        if self._failure is not None and not self._lifecycle.stopping:
            raise self._failure
