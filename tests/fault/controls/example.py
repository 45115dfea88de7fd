"""The client library's own example of exactly-once processing, as a service that goes on.

After confluent-kafka-python's ``examples/eos-transactions.py``: a transaction is always open, every
100 records the consumer's positions go into it and it is committed; no error is handled, so any
ends the process. Two things differ, because several processes share the input: it subscribes where
the example assigns one partition to itself, and at the end of the input it commits and goes on.
"""

import signal

from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.fault.controls.contract import Contract, effects
from tests.fault.controls.loops import coordinates

RECORDS = 100


class Example:
    """Consume, produce, commit every 100 records."""

    def __init__(self, ours: Contract) -> None:
        self.ours = ours
        self.stopping = False
        common = {"bootstrap.servers": ours.bootstrap, "client.id": ours.name, **ours.properties}
        self.consumer = Consumer(
            {
                **common,
                "group.id": ours.app,
                "session.timeout.ms": ours.session_ms,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        self.producer = Producer({**common, "transactional.id": ours.name})
        self.gathered = 0
        self.at_end: set[tuple[str | None, int | None]] = set()

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        self.consumer.subscribe([self.ours.source])
        self.producer.init_transactions()
        self.producer.begin_transaction()
        while not self.stopping:
            self.producer.poll(0)
            message = self.consumer.poll(0.2)
            if message is not None:
                self.take(message)
        self.commit()
        self.consumer.close()

    def stop(self, *_: object) -> None:
        self.stopping = True

    def take(self, message: Message) -> None:
        place = (message.topic(), message.partition())
        error = message.error()
        if error is None:
            self.at_end.discard(place)
            self.process(message)
            if self.gathered == RECORDS:
                self.commit()
        elif error.code() == KafkaError._PARTITION_EOF:
            self.at_end.add(place)
            if self.gathered and len(self.at_end) == len(self.consumer.assignment()):
                self.commit()

    def process(self, message: Message) -> None:
        self.gathered += 1
        for effect in effects(
            self.ours, coordinates(message), message.value(), message.headers() or []
        ):
            self.producer.produce(
                effect.topic, effect.value, message.key(), headers=list(effect.headers)
            )

    def commit(self) -> None:
        self.producer.send_offsets_to_transaction(
            self.consumer.position(self.consumer.assignment()),
            self.consumer.consumer_group_metadata(),
        )
        self.producer.commit_transaction()
        self.producer.begin_transaction()
        self.gathered = 0
