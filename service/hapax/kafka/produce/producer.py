"""A librdkafka producer as the three guarantees use it: building, sending, listening.

A transaction is doubtful when requests of it may still arrive. A delayed EndTxn or TxnOffsetCommit
of transaction n is accepted by today's brokers inside n+1 (KAFKA-17754), so a request that was sent
and has no answer means: a new producer before the next transaction. Error callbacks and ordinary
log lines miss most of these, statistics come late. Two sources are exact enough, and
docs/decisions/own-detector.md compares them:

requests  where the native part is loaded: each request as it is sent and answered
lines     otherwise: the client's own lines (``debug=broker``) about lost connections and requests

Both see every request that may arrive late. The lines also report connections that break with no
such request on them, each of which costs a producer for nothing.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException, Producer

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.kafka.connection import answers, new_client_answered
from hapax.kafka.errors import CONTENT, LINE_IS_NO_TEXT, UNKNOWN_TOPIC, describe
from hapax.kafka.properties import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hapax.core.record_path import Outputs
    from hapax.kafka.native import NativePath, Prepared

    LogLine = Callable[[str, int, str, str], None]
    Report = Callable[[KafkaError | None, Any], None]
    Placed = Mapping[int, Report]

_BROKEN = ("-> DOWN", "Disconnected", "REQTMOUT", "Timed out", "timed out")
_OTHER_CLUSTER = "different ClusterId"
METADATA_TIMEOUT_S = 5.0
_QUEUE_FULL_WAIT_S = 0.05
_ASK_TIMEOUT_S = 0.5
LOOK_S = 1.0
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""What is thrown away was not refused; all of an earlier batch that was late ends so."""
_CLIENTS_NOW, _FIRST_MS = 0, 1


class ClientLog:
    """Collects a producer's doubts, and passes its lines on.

    With ``watch`` the client's transactional requests are counted where they are sent and answered.
    A line about another cluster is a doubt, too, from either source: a new producer compares.
    """

    def __init__(self, client: str, forward: LogLine) -> None:
        self._client = client
        self._forward = forward
        self._fast: Any = None
        self._counted: object = None
        self._doubts: list[str] = []
        self._breaks = self._breaks_before = 0
        self._breaks_when_well: int | None = None

    def watch(self, fast: Any, counted: object) -> None:
        """Count from now on; ``counted``: what hapax_fast captured when the client was built."""
        self._fast, self._counted = fast, counted

    def log(self, level: int, _form: str, *parts: object) -> None:
        """Take one line; the C client calls this from inside poll and must never see it raise."""
        facility = str(parts[0]) if parts else ""
        text = str(parts[-1]) if parts else ""
        broken = facility == "REQTMOUT" or any(sign in text for sign in _BROKEN)
        self._breaks += broken
        if (broken and self._fast is None) or _OTHER_CLUSTER in text:
            self._doubts.append(f"{facility}: {text}")
        with suppress(Exception):
            self._forward(self._client, level, facility, text)

    @property
    def doubts(self) -> list[str]:
        """What makes the transaction doubtful so far. Callers add what they know themselves."""
        if self._fast is not None:
            self._doubts += self._fast.requests_lost(self._counted)
        return self._doubts

    @property
    def disconnected(self) -> bool:
        """Whether a connection was lost since begin, whatever was sent on it."""
        return self._disconnects() > self._breaks_before or bool(self.doubts)

    @property
    def lost_since_well(self) -> bool:
        """Whether a connection was lost since a transaction ended last, or the first one began."""
        return self._disconnects() > (self._breaks_when_well or 0)

    def begin(self) -> None:
        """Forget what is older than the transaction that begins: it doubts nothing of it."""
        self.doubts.clear()
        self._breaks_before = self._disconnects()
        if self._breaks_when_well is None:
            self._breaks_when_well = self._breaks_before

    def end(self) -> list[str]:
        """Return its doubts; a request without an answer by then is one: nothing waits for it."""
        self._breaks_when_well = self._disconnects()
        # First these: what is lost meanwhile is among the doubts.
        waiting = [] if self._fast is None else self._fast.requests_unanswered(self._counted)
        return [*self.doubts, *waiting]

    def _disconnects(self) -> int:
        if self._fast is None:
            return self._breaks
        return int(self._fast.requests_disconnects(self._counted))


CLIENT_ERRORS: tuple[type[BaseException], ...] = (
    KafkaException,
    # A fatal error comes out of poll and flush bare (measured with two producers of one id); it can
    # be raised and caught although its type derives from no exception.
    cast("type[BaseException]", KafkaError),
    # The same with a delivery report under way: the report runs while the error is set already.
    SystemError,
)


def client_timestamp(timestamp_ms: int | None) -> int:
    """Return a timestamp as the client takes it; None: now.

    To the client 0 is "now" (rd_kafka_produce of librdkafka 2.16 has no other way to say it), so
    1970 itself leaves one millisecond later, and not as today.
    """
    if timestamp_ms is None:
        return _CLIENTS_NOW
    return _FIRST_MS if timestamp_ms == 0 else timestamp_ms


class Outbox:
    """Hands messages to a producer and knows which of them were refused."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        forward: LogLine,
        *,
        round_robin: bool,
        native: NativePath | None = None,
        placed: Placed | None = None,
    ) -> None:
        self._properties = properties
        self._due_s = 0.0
        self._placed = placed
        self._round_robin = round_robin
        self._native = native
        if "transactional.id" not in properties:
            # Nothing else names what was not delivered; what was delivered costs no call.
            reports = {"on_delivery": self._not_delivered, "delivery.report.only.error": True}
            properties = {**properties, **reports}
        self.alone = properties.get("batch.num.messages") == 1
        """Whether each message has a set of its own, so that brokers refuse it and no other."""
        self._turns: dict[str, Iterator[int]] = {}
        self.log = ClientLog("producer", forward)
        if native is not None:
            # Requests are counted: nothing reads its lines.
            silent = {name: value for name, value in properties.items() if name != "debug"}
            properties = native.plug_in(silent)
        self.producer = build(Producer, properties, self.log)
        self._client = None if native is None else native.captured()
        if native is not None:
            self.log.watch(native.module, self._client)
        # Coordinator queries before the first connection is up wait for a 500 ms timer; a
        # metadata request first brings the connection up (measured: 20 ms instead of 505).
        self.refused: dict[int, str] = {}
        self.failed: list[KafkaError] = []
        self.unknown_topics: set[str] = set()

    def connect(self) -> Any:
        """Return cluster metadata; raises KafkaException when no broker answers in time."""
        metadata = self.producer.list_topics(timeout=METADATA_TIMEOUT_S)
        if not metadata.brokers:
            raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "it names none"))
        return metadata

    def serve(self, wait_s: float = 0.0) -> None:
        """Deliver lines and reports. A fatal error is raised here and by the next call."""
        with self._serving():
            self.producer.poll(wait_s)

    def flush(self, timeout_s: float) -> int:
        """Return how many messages are still on their way; ``failed`` has what was refused."""
        left = self.producer.flush(timeout_s)
        self._collect()
        return left

    def await_deliveries(self, timeout_s: float) -> None:
        with self._serving():
            self.producer.flush(timeout_s)

    @contextmanager
    def _serving(self) -> Iterator[None]:
        try:
            with suppress(*CLIENT_ERRORS):
                yield
        except UnicodeDecodeError:
            self.log.doubts.append(LINE_IS_NO_TEXT)  # it may have named a lost connection

    def _turn(self, topic: str) -> int:
        turns = self._turns.get(topic)
        if turns is None:
            try:
                metadata = self.producer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
            except KafkaException as error:
                raise BatchAbortedError(
                    f"partitions of {topic} unknown: {describe(error.args[0])}"
                ) from error
            turns = self._turns[topic] = cycle(sorted(metadata.topics[topic].partitions) or [-1])
        return next(turns)

    def answered(self) -> bool:
        return answers(self.producer, _ASK_TIMEOUT_S)

    def cut_off(self) -> bool:
        """Whether no broker answers this client, and one a new client: consume/client.py.

        Asked once in ``LOOK_S`` of a transaction; False in between. While no connection was lost,
        a broker that is slow with an earlier request has only not come to the question yet: it
        answers what comes on one connection in order.
        """
        now_s = time.monotonic()
        if now_s < self._due_s or not self.log.lost_since_well:
            return False
        self._due_s = now_s + LOOK_S
        return not self.answered() and new_client_answered(self._properties, _ASK_TIMEOUT_S)

    @property
    def failures(self) -> set[int]:
        return {error.code() for error in self.failed}

    def begin(self) -> None:
        """Forget the reports of earlier batches; those that come late are not counted either."""
        self._collect()
        self.failed, self.unknown_topics = [], set()
        self._due_s = time.monotonic() + LOOK_S

    def send(self, messages: Outputs, *, reports: bool) -> None:
        """Hand all messages over; wait while the client's queue is full.

        ``reports`` asks for a delivery report each, which costs as much as sending: only after a
        batch was refused, to learn which message it was. Raises BatchAbortedError when a message
        is refused on the spot: continuing would commit the batch without it.
        """
        self.refused = {}
        one_by_one = reports or self._round_robin
        first = 0 if one_by_one else messages.hand_over(self._send_prepared)
        produce = self.producer.produce
        report = placed = None
        for index, message in enumerate(messages if one_by_one else messages.listed, first):
            if self._placed:
                report = placed = self._placed.get(index)
            if reports:
                report = self._reporter(index, message.topic, placed)
            partition = message.partition
            if self._round_robin and partition < 0:
                partition = self._turn(message.topic)
            while True:
                try:
                    produce(
                        message.topic,
                        message.value,
                        message.key,
                        partition,
                        report,
                        report,
                        client_timestamp(message.timestamp_ms),
                        message.headers,  # type: ignore[arg-type] # list is invariant in the stub
                    )
                except BufferError:
                    self.serve(_QUEUE_FULL_WAIT_S)
                    continue
                except (KafkaException, TypeError, ValueError, OverflowError) as error:
                    raise self._refusal(index, message.topic, error) from error
                break

    def _send_prepared(self, prepared: Prepared) -> None:
        """Let the native path make and send the outputs of a batch; a refusal names its record."""
        assert self._native is not None
        if self._native.unproven > 0:
            self._native.prove(prepared)
        send, index = self._native.module.send, 0
        while True:
            index, code = send(
                self._client, prepared.topic, prepared.records, prepared.results, index
            )
            if not code:
                return
            if code != KafkaError._QUEUE_FULL:
                raise self._refusal(index, prepared.topic, KafkaException(KafkaError(code)))
            self.serve(_QUEUE_FULL_WAIT_S)

    def _refusal(
        self, index: int, topic: str, error: Exception
    ) -> BatchAbortedError | ProducerDeadError:
        inner = error.args[0] if isinstance(error, KafkaException) else None
        if inner is not None and inner.code() in UNKNOWN_TOPIC:
            self.unknown_topics.add(topic)
        if inner is not None and inner.code() not in CONTENT:
            # _STATE: an earlier error of this transaction has made the producer refuse all.
            return BatchAbortedError(f"a message was refused: {describe(inner)}")
        text = describe(inner) if inner is not None else f"{type(error).__name__}: {error}"
        return BatchAbortedError(
            f"a message was refused: {text}", refused={index: text}, content=True
        )

    def _collect(self) -> None:
        """Note what the native path has sent in vain: its messages have no reports."""
        if self._native is not None:
            for code in self._native.module.failures(self._client):
                self._not_delivered(KafkaError(code), None)

    def _not_delivered(self, error: KafkaError | None, message: Any) -> None:
        """Note a failure of a message that asked for no report of its own."""
        if error is None or error.code() in PURGED:
            return
        self.failed.append(error)
        if error.code() in UNKNOWN_TOPIC and message is not None:
            self.unknown_topics.add(message.topic())

    def _reporter(self, index: int, topic: str, placed: Report | None) -> Report:
        # Bound to this batch: reports of an aborted one may come when the next is under way.
        refused, failed, unknown_topics = self.refused, self.failed, self.unknown_topics

        def report(error: KafkaError | None, message: object) -> None:
            if placed is not None and error is None:
                placed(error, message)
            if error is None or error.code() in PURGED:
                return
            failed.append(error)
            if error.code() in CONTENT:
                refused[index] = describe(error)
            if error.code() in UNKNOWN_TOPIC:
                unknown_topics.add(topic)

        return report
