"""A librdkafka producer as the three guarantees use it: building, sending, listening."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException, Producer

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.kafka.errors import CONTENT, UNKNOWN_TOPIC, describe
from hapax.kafka.properties import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hapax.core.ports import Message

    LogLine = Callable[[str, int, str, str], None]

METADATA_TIMEOUT_S = 5.0
CLIENT_ERRORS: tuple[type[BaseException], ...] = (
    KafkaException,
    # A fatal error comes out of poll and flush bare (measured with two producers of one id); it can
    # be raised and caught although its type derives from no exception.
    cast("type[BaseException]", KafkaError),
)
_DOUBT = ("-> DOWN", "Disconnected", "REQTMOUT", "Timed out", "timed out", "different ClusterId")
_QUEUE_FULL_WAIT_S = 0.05


class ClientLog:
    """Listens to a client's own lines (``debug=broker``) for lost connections and requests.

    This is the only exact signal that the client sent a transactional request twice: error
    callbacks and ordinary log lines miss most, statistics come late. A delayed EndTxn or
    TxnOffsetCommit of transaction n is accepted by today's brokers inside n+1 (KAFKA-17754), so
    any such line inside a transaction means: new producer before the next one. So does one about
    another cluster: a new producer compares.
    """

    def __init__(self, client: str, forward: LogLine) -> None:
        self._client = client
        self._forward = forward
        self.doubts: list[str] = []

    def log(self, level: int, _form: str, *parts: object) -> None:
        """Take one line; the C client calls this from inside poll and must never see it raise."""
        facility = str(parts[0]) if parts else ""
        text = str(parts[-1]) if parts else ""
        if any(sign in text for sign in _DOUBT) or facility == "REQTMOUT":
            self.doubts.append(f"{facility}: {text}")
        self._forward(self._client, level, facility, text)


class Outbox:
    """Hands messages to a producer and knows which of them were refused."""

    def __init__(
        self, properties: Mapping[str, Any], forward: LogLine, *, round_robin: bool
    ) -> None:
        self._round_robin = round_robin
        self.alone = properties.get("batch.num.messages") == 1
        """Whether each message has a set of its own, so that brokers refuse it and no other."""
        self._turns: dict[str, Iterator[int]] = {}
        self.log = ClientLog("producer", forward)
        self.producer = build(Producer, properties, self.log)
        # Coordinator queries before the first connection is up wait for a 500 ms timer; a
        # metadata request first brings the connection up (measured: 20 ms instead of 505).
        self.refused: dict[int, str] = {}
        self.failed: list[KafkaError] = []
        self.unknown_topics: set[str] = set()

    def connect(self) -> Any:
        """Return cluster metadata; raises KafkaException when no broker answers in time."""
        return self.producer.list_topics(timeout=METADATA_TIMEOUT_S)

    def serve(self, wait_s: float = 0.0) -> None:
        """Let the client tell its lines and reports.

        It raises a fatal error here, too; the transactional call that asks next gets the same.
        """
        with suppress(*CLIENT_ERRORS):
            self.producer.poll(wait_s)

    def await_deliveries(self, timeout_s: float) -> None:
        """Give what is under way time to arrive."""
        with suppress(*CLIENT_ERRORS):
            self.producer.flush(timeout_s)

    def _turn(self, topic: str) -> int:
        """Return the next partition in turn; librdkafka has no such partitioner."""
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

    def send(self, messages: Sequence[Message], *, reports: bool) -> None:
        """Hand all messages over; wait while the client's queue is full.

        ``reports`` asks for a delivery report each, which costs as much as sending: only after a
        batch was refused, to learn which message it was. Raises BatchAbortedError when a message
        is refused on the spot: going on would commit the batch without it.
        """
        self.refused, self.failed, self.unknown_topics = {}, [], set()
        produce = self.producer.produce
        report = None
        for index, message in enumerate(messages):
            if reports:
                report = self._reporter(index, message.topic)
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
                        message.timestamp_ms,
                        message.headers,  # type: ignore[arg-type] # list is invariant in the stub
                    )
                except BufferError:
                    self.serve(_QUEUE_FULL_WAIT_S)
                    continue
                except (KafkaException, TypeError, ValueError, OverflowError) as error:
                    raise self._refusal(index, message.topic, error) from error
                break

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

    def _reporter(self, index: int, topic: str) -> Callable[[KafkaError | None, object], None]:
        # Bound to this batch: reports of an aborted one may come when the next is under way.
        refused, failed, unknown_topics = self.refused, self.failed, self.unknown_topics

        def report(error: KafkaError | None, _message: object) -> None:
            if error is None or error.code() == KafkaError._PURGE_QUEUE:
                return
            failed.append(error)
            if error.code() in CONTENT:
                refused[index] = describe(error)
            if error.code() in UNKNOWN_TOPIC:
                unknown_topics.add(topic)

        return report
