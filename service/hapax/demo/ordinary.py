"""The loop that people write: consume, transform, produce; flush and commit now and then.

At least once: what was produced after the last commit is produced again after a crash. Nothing in
it is made worse than usual; it even has a dead-letter topic, and flushes before it commits. A
process of its own: ``python -m hapax.demo.ordinary SERVERS INPUT OUTPUT DEAD_LETTERS GROUP``.
"""

from __future__ import annotations

import signal
import sys
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaException, Message, Producer

from hapax.core.headers import SOURCE, part
from hapax.core.records import Headers, Record
from hapax.demo.orders import price

COMMIT_EVERY = 500
"""Records between two commits; each commit waits for the broker."""
_POLL_S = 0.2


class Route(NamedTuple):
    """From where to where."""

    bootstrap_servers: str
    source: str
    target: str
    dead_letters: str
    group: str


def run(route: Route) -> None:
    """Work until SIGTERM."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": route.bootstrap_servers,
            "group.id": route.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    producer = Producer(
        {"bootstrap.servers": route.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    consumer.subscribe([route.source])
    uncommitted = 0
    while not stopping:
        message = consumer.poll(_POLL_S)
        if message is not None:
            process(message, producer, route)
            uncommitted += 1
        if uncommitted >= COMMIT_EVERY or (uncommitted and message is None):
            producer.flush()
            consumer.commit(asynchronous=False)
            uncommitted = 0
    producer.flush()
    if uncommitted:
        consumer.commit(asynchronous=False)
    consumer.close()


def process(message: Message, producer: Producer, route: Route) -> None:
    """Transform one record and hand what it gives to the producer."""
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    record = as_record(message)
    headers: list[tuple[str, str | bytes | None]] = [*record.headers]
    headers.append((SOURCE, str(record.coordinates).encode()))
    try:
        outputs = price(record)
    except Exception:  # noqa: BLE001 - as people do: whatever the rule raises is a dead letter
        send(producer, route.dead_letters, record.value, record.key, headers)
        return
    for number, output in enumerate(outputs, start=1):
        here = [*headers, part(number, len(outputs))]
        send(producer, route.target, output.value, record.key, here)


def send(
    producer: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: list[tuple[str, str | bytes | None]],
) -> None:
    """Produce, and wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(_POLL_S)
        else:
            producer.poll(0)
            return


def as_record(message: Message) -> Record:
    """Return what the client received in the service's own words."""
    return Record(
        topic=message.topic() or "",
        partition=cast("int", message.partition()),
        offset=cast("int", message.offset()),
        key=message.key(),
        value=message.value(),
        headers=cast("Headers", tuple(message.headers() or ())),
        timestamp_ms=message.timestamp()[1],
    )


if __name__ == "__main__":
    run(Route(*sys.argv[1:]))
