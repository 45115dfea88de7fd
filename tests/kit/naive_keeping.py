"""The control: counts by key in a file of its own, outputs sent, offsets committed after them.

Every part of it is flushed before the next, and yet a kill between two of them counts twice.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, Producer

EVERY = 50


def main(brokers: str, source: str, target: str, folder: str) -> None:
    kept: dict[str, int] = {}
    file = Path(folder) / "counts.json"
    with suppress(FileNotFoundError):
        kept = json.loads(file.read_text())
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"{target}-naive",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    consumer.subscribe([source])
    while True:
        messages = [one for one in consumer.consume(EVERY, 0.5) if one.error() is None]
        for message in messages:
            key = str(message.key())
            kept[key] = kept.get(key, 0) + 1
            producer.produce(target, b"%d" % kept[key], message.key())
        if messages:
            file.with_suffix(".new").write_text(json.dumps(kept))
            file.with_suffix(".new").replace(file)
            producer.flush()
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
