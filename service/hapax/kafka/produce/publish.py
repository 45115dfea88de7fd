"""Records from outside of a pipeline, written to its input: delivered, and known to be."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from hapax.core.errors import HapaxError, PreflightError
from hapax.kafka.admin.topics import topic_settings
from hapax.kafka.connection import no_broker, require_listener
from hapax.kafka.errors import describe
from hapax.kafka.produce.producer import CLIENT_ERRORS, client_timestamp
from hapax.kafka.properties import build, producer_properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.records import Message
    from hapax.settings import Settings

BROKERS_TIMEOUT_S, DELIVERY_TIMEOUT_S, CALL_TIMEOUT_S, QUEUE_WAIT_S = 10.0, 30.0, 30.0, 0.1
REASONS_MAX = 10
TRANSACTION_TIMEOUT_MS = 60_000
"""A whole file goes into one transaction; readers wait so long for one that was killed."""


class Sender:
    """Writes with acks of all in-sync replicas and without doubling by its own retries.

    ``transactional_id``: everything in one transaction, under this name; "": each by itself.
    """

    def __init__(self, settings: Settings, topic: str, transactional_id: str = "") -> None:
        """Raise PreflightError when no broker answers."""
        require_listener(settings)
        properties: dict[str, Any] = {
            **producer_properties(settings, transactional=False),
            "client.id": transactional_id or f"{settings.app}-publish",
            "log_level": 0,
        }
        if transactional_id:
            properties["transactional.id"] = transactional_id
            properties["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
        else:
            properties["message.timeout.ms"] = int(DELIVERY_TIMEOUT_S * 1000)
        # Brokers refuse a message set as a whole: one larger than the topic takes would cost its
        # neighbors their place, one of this size leaves a record that is too large by itself.
        if taken := topic_settings(properties, [topic]).get(topic, {}).get("max.message.bytes"):
            properties["batch.size"] = min(int(properties["batch.size"]), int(taken))
        self._settings, self._topic = settings, topic
        self._producer = build(Producer, properties, None)
        self._transactional = bool(transactional_id)
        self.delivered = self.failed = 0
        self.reasons: dict[str, int] = {}
        self.first: dict[str, int] = {}
        """By reason, the first record that failed for it, by its number of ``send``."""

    def open(self) -> None:
        """Check that the topic exists; begin the transaction. Raises PreflightError."""
        topic = self._topic
        try:
            found = self._producer.list_topics(topic, timeout=BROKERS_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise no_broker(self._settings, error) from error
        if found.error is not None:
            problem = f"topic {topic} does not exist or may not be written: {describe(found.error)}"
            raise PreflightError([problem])
        if self._transactional:
            try:
                self._producer.init_transactions(CALL_TIMEOUT_S)
                self._producer.begin_transaction()
            except CLIENT_ERRORS as error:
                raise PreflightError([f"no transaction: {_said(error)}"]) from error

    def send(self, messages: Iterable[tuple[int, Message]]) -> None:
        """Hand numbered messages over; what becomes of them is counted by ``close``."""
        for number, message in messages:
            report, at_ms = partial(self._report, number), client_timestamp(message.timestamp_ms)
            given = message.topic, message.value, message.key, message.partition, report
            while True:
                try:
                    # The list of headers is invariant in the stub.
                    self._producer.produce(*given, timestamp=at_ms, headers=message.headers)  # type: ignore[arg-type]
                except BufferError:
                    self._serve(QUEUE_WAIT_S)
                    continue
                except KafkaException as error:
                    self._fail(number, describe(error.args[0]))
                break
            self._serve(0)

    def close(self) -> None:
        """Wait until all is delivered or given up; commit, or roll back when anything failed."""
        with suppress(*CLIENT_ERRORS):
            if left := self._producer.flush(DELIVERY_TIMEOUT_S + QUEUE_WAIT_S):
                self.failed += left
                self.reasons["not acknowledged in time"] = left
        if not self._transactional:
            return
        if self.failed:
            self.abort()
            return
        try:
            self._producer.commit_transaction(CALL_TIMEOUT_S)
        except CLIENT_ERRORS as error:
            delivered, self.delivered = self.delivered, 0
            raise HapaxError(
                f"it is unknown whether the {delivered:,} records were committed ({_said(error)}); "
                "check the topic before you publish them again"
            ) from error

    def abort(self) -> None:
        """Leave nothing of the transaction; without one, what was delivered stays."""
        if not self._transactional:
            with suppress(*CLIENT_ERRORS):
                self._producer.flush(DELIVERY_TIMEOUT_S)
            return
        self.failed += self.delivered
        self.delivered = 0
        with suppress(*CLIENT_ERRORS):
            self._producer.abort_transaction(CALL_TIMEOUT_S)

    def _serve(self, wait_s: float) -> None:
        with suppress(*CLIENT_ERRORS):
            self._producer.poll(wait_s)

    def _report(self, number: int, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self._fail(number, describe(error))

    def _fail(self, number: int, reason: str) -> None:
        self.failed += 1
        if reason in self.reasons or len(self.reasons) < REASONS_MAX:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            self.first[reason] = min(number, self.first.get(reason, number))


def _said(error: BaseException) -> str:
    inner = error.args[0] if isinstance(error, KafkaException) else None
    return describe(inner) if inner is not None else str(error)
