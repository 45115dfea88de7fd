"""The business rule of the demo, and the ordinary loop that calls it, too.

An order gets its total, a large one becomes two shipments.

The loop is the one that people write: consume, transform, produce; flush and commit now and then.
At least once: what was produced after the last commit is produced again after a crash. Nothing in
it is made worse than usual; it even has a dead-letter topic, and flushes before it commits. The
headers that it adds are for the audit. A process of its own: ``python -m hapax.demo.orders SERVERS
GROUP``.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer

from hapax.core.headers import ERROR, SOURCE, part
from hapax.core.records import Output, Record
from hapax.kafka.read.range_reader import record_of

if TYPE_CHECKING:
    from confluent_kafka import Message


ORDERS, PRICED, DEAD_LETTERS = "orders", "orders-priced", "orders-dead"
ORDINARY_PRICED, ORDINARY_DEAD_LETTERS = "ordinary-priced", "ordinary-dead"
PARTITIONS = 4
LARGE_CENTS = 50_000
"""Orders from this total on are split."""
COMMIT_EVERY = 500
"""Records between two commits of the loop; each commit waits for the broker."""
_POLL_S = 0.2


class Line(msgspec.Struct, frozen=True):
    """One line of an order."""

    article: str
    quantity: int
    price_cents: int


class Order(msgspec.Struct, frozen=True):
    """What the shop publishes."""

    order: str
    customer: str
    lines: list[Line]


class Shipment(msgspec.Struct, frozen=True):
    """An output: a priced order, or half of one."""

    order: str
    customer: str
    lines: list[Line]
    total_cents: int
    shipment: int


def price(record: Record) -> list[Output]:
    """Raise ValueError for what is no order: not JSON, no lines, a quantity below 1."""
    order = msgspec.json.decode(record.value or b"", type=Order)
    if not order.lines or any(line.quantity < 1 for line in order.lines):
        raise ValueError(f"order {order.order} cannot be shipped")
    large = _total(order.lines) >= LARGE_CENTS
    parts = [order.lines[::2], order.lines[1::2]] if large else [order.lines]
    shipments = [
        Shipment(order.order, order.customer, lines, _total(lines), number)
        for number, lines in enumerate(parts, start=1)
    ]
    return [Output(msgspec.json.encode(shipment)) for shipment in shipments]


def _total(lines: list[Line]) -> int:
    return sum(line.quantity * line.price_cents for line in lines)


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

    def send(topic: str, value: bytes | None, *more: tuple[str, bytes]) -> None:
        producer.produce(topic, value, record.key, headers=[*headers, *more])
        producer.poll(0)

    try:
        outputs = price(record)
    except Exception as problem:  # noqa: BLE001 - whatever the rule raises is a dead letter
        send(ORDINARY_DEAD_LETTERS, record.value, (ERROR, str(problem).encode()))
        return
    for number, output in enumerate(outputs, start=1):
        send(ORDINARY_PRICED, output.value, part(number, len(outputs)))


if __name__ == "__main__":
    run(*sys.argv[1:])
