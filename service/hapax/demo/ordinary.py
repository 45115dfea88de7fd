"""The loop that people write: consume, transform, produce; flush and commit now and then.

At least once: what was produced after the last commit is produced again after a crash. Nothing in
it is made worse than usual; it even has a dead-letter topic, and flushes before it commits. The
headers that it adds are for the audit. A process of its own: ``python -m hapax.demo.ordinary
SERVERS GROUP``.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer

from hapax.core.headers import ERROR, SOURCE, part
from hapax.demo.orders import ORDERS, ORDINARY_DEAD_LETTERS, ORDINARY_PRICED, price
from hapax.kafka.read.range_reader import record_of

if TYPE_CHECKING:
    from confluent_kafka import Message

    from hapax.core.records import Headers

COMMIT_EVERY = 500
"""Records between two commits; each commit waits for the broker."""
_POLL_S = 0.2


def run(bootstrap_servers: str, group: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    consumer.subscribe([ORDERS])
    uncommitted = 0
    while not stopping:
        message = consumer.poll(_POLL_S)
        if message is not None:
            process(message, producer)
            uncommitted += 1
        if uncommitted >= COMMIT_EVERY or (uncommitted and message is None):
            producer.flush()
            consumer.commit(asynchronous=False)
            uncommitted = 0
    producer.flush()
    if uncommitted:
        consumer.commit(asynchronous=False)
    consumer.close()


def process(message: Message, producer: Producer) -> None:
    if (error := message.error()) is not None:
        raise KafkaException(error)
    record, _readable = record_of(message)
    headers = (*record.headers, (SOURCE, str(record.coordinates).encode()))
    try:
        outputs = price(record)
    except Exception as problem:  # noqa: BLE001 - whatever the rule raises is a dead letter
        dead = (*headers, (ERROR, str(problem).encode()))
        _send(producer, ORDINARY_DEAD_LETTERS, record.value, record.key, dead)
        return
    for number, output in enumerate(outputs, start=1):
        here = (*headers, part(number, len(outputs)))
        _send(producer, ORDINARY_PRICED, output.value, record.key, here)


def _send(
    producer: Producer, topic: str, value: bytes | None, key: bytes | None, headers: Headers
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, headers=list(headers))
        except BufferError:
            producer.poll(_POLL_S)
        else:
            producer.poll(0)
            return


if __name__ == "__main__":
    run(*sys.argv[1:])
