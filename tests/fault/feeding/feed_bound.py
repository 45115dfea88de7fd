"""The writer whose events come in transactions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from tests.fault.feeding.feed_writers import COMMON, FINISH_TIMEOUT_S, Writer
from tests.fault.feeding.ledger import Fate

if TYPE_CHECKING:
    from tests.fault.feeding.feed_events import Given

DOUBT_S = 1.0
"""A transaction that took longer may have a late request on its way: the next one gets a new
epoch, so that this request cannot reach into it."""
TRANSACTION_TIMEOUT_MS = 10_000
ABORTED, GIVEN_UP = 0.2, 0.03
"""How often a transaction comes after one that is aborted, or after one that was given up."""


class BoundWriter(Writer):
    """Writes in transactions; some of them follow one that is aborted or given up.

    hidden   records of transactions that were aborted, as planned
    """

    bound = True
    hidden = 0
    _doubt = False

    def write(self, chunk: list[Given]) -> None:
        luck = self.events.rng.random()
        if luck < ABORTED:
            self._abort_planned(self.events.aborted(max(1, len(chunk) // 2)))
        elif luck < ABORTED + GIVEN_UP:
            self._give_up(self.events.aborted(1))
        places = [given.at for given in chunk]
        self._book.note(places, Fate.UNKNOWN)
        fate = self._transaction(chunk)
        self._book.note(places, fate)
        if fate is Fate.COMMITTED:
            self._count(len(chunk))

    def finish(self) -> None:
        """Nothing is on its way between two transactions."""

    def _abort_planned(self, chunk: list[Given]) -> None:
        began_s = time.monotonic()
        try:
            self._begin(chunk)
            self._producer.flush(5.0)  # or the client forgets them without having sent them
            self._producer.abort_transaction(30.0)
        except KafkaException:
            self._doubt = True
        self.hidden += len(chunk)
        if self._doubt or time.monotonic() - began_s > DOUBT_S:
            self._renew()

    def _give_up(self, chunk: list[Given]) -> None:
        """Begin and be gone before records are sent: a marker may be all that is in the log.

        The same producer must not go on after a purge: it would skip sequence numbers.
        """
        try:
            self._begin(chunk)
            self._producer.poll(0.01)  # time for the partition to be added
            self._producer.purge(in_flight=False)
        except KafkaException:
            pass  # it is given up anyway
        self._renew()

    def _transaction(self, chunk: list[Given]) -> Fate:
        began_s = time.monotonic()
        try:
            self._begin(chunk)
        except KafkaException:
            return self._abandoned()
        fate = self._commit()
        if self._doubt or time.monotonic() - began_s > DOUBT_S or fate is Fate.UNKNOWN:
            self._renew()
        return fate

    def _begin(self, chunk: list[Given]) -> None:
        self._producer.begin_transaction()
        for given in chunk:
            self._send(given, None)

    def _commit(self) -> Fate:
        """Commit, the same call again as long as the client allows; else nobody knows."""
        deadline_s = time.monotonic() + FINISH_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                self._producer.commit_transaction(15.0)
            except KafkaException as error:
                if not error.args[0].retriable():
                    break
            else:
                return Fate.COMMITTED
        return Fate.UNKNOWN

    def _abandoned(self) -> Fate:
        """A new epoch aborts what was begun: no commit was ever asked for."""
        self._renew()
        return Fate.ABORTED

    def _renew(self) -> None:
        self._producer = self._made()

    def _made(self) -> Producer:
        while True:
            producer = Producer(
                COMMON
                | {
                    "bootstrap.servers": self._task.bootstrap,
                    "transactional.id": f"{self._task.run}-feeder",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "error_cb": self._doubted,
                    "log_level": 0,
                }
            )
            self._doubt = False
            try:
                producer.init_transactions(15.0)
            except KafkaException:
                if self._stopped():
                    return producer
            else:
                return producer

    def _doubted(self, _error: object) -> None:
        self._doubt = True
