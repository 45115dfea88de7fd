"""A process that publishes numbers and says which of them are safe; it is killed from outside.

``python -m tests.kit.spool_process spool|plain SERVERS TOPIC FOLDER UNTIL``: a line ``ready`` and
then one for each number that the caller may believe. ``plain`` is the control: an idempotent
producer with its buffer, and a file with the number that was handed over last.
"""

import sys
from pathlib import Path

from confluent_kafka import Producer

from hapax.core.records import Message
from hapax.publish import Publisher
from tests.kit.sink_parts import sink_settings

CALL = 3


def publish_spool(servers: str, topic: str, folder: str, until: int) -> None:
    with Publisher(folder, sink_settings(servers, topic)) as publisher:
        number = int(publisher.position or b"0")
        while number < until:
            numbers = range(number + 1, number + CALL + 1)
            messages = [Message(topic, b"%d" % each, None, -1, 0, []) for each in numbers]
            number = numbers[-1]
            publisher.publish_many(messages, position=b"%d" % number)
            print(number, flush=True)  # noqa: T201


def publish_plain(servers: str, topic: str, folder: str, until: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    )
    producer.list_topics(timeout=30)
    done = Path(folder)
    number = int(done.read_text()) if done.exists() else 0
    while number < until:
        for each in range(number + 1, number + CALL + 1):
            producer.produce(topic, b"%d" % each)
        number += CALL
        producer.poll(0)
        done.with_suffix(".new").write_text(str(number))
        done.with_suffix(".new").replace(done)
        print(number, flush=True)  # noqa: T201
    producer.flush(30)


if __name__ == "__main__":
    form, servers, topic, folder, until = sys.argv[1:]
    publish = {"spool": publish_spool, "plain": publish_plain}[form]
    publish(servers, topic, folder, int(until))
