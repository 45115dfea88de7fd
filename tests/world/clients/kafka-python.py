"""kafka-python: aborted records are delivered unless the consumer is told otherwise."""

import base64
import json
import sys

from kafka import KafkaConsumer, KafkaProducer


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def content(text):
    return None if text is None else base64.b64decode(text)


def consume(asked, first_s, **settings):
    consumer = KafkaConsumer(
        asked["topic"],
        bootstrap_servers=asked["bootstrap"],
        auto_offset_reset="earliest",
        **settings,
    )
    left_s = first_s
    while left_s > 0:  # only polls that found nothing count: one may check megabytes in Python
        left_s -= 0.2
        for records in consumer.poll(timeout_ms=200).values():
            left_s = asked["idle_s"]
            for record in records:
                headers = [[name, text(value)] for name, value in record.headers]
                line = {"p": record.partition, "o": record.offset, "k": text(record.key)}
                line |= {"v": text(record.value), "h": headers, "t": record.timestamp}
                print(json.dumps(line))
    consumer.close()


def read(asked):
    level = {} if asked["level"] == "default" else {"isolation_level": asked["level"]}
    consume(asked, asked["idle_s"], group_id=None, **level)


def group(asked):
    consume(asked, 20, group_id=asked["group"], isolation_level="read_committed")


def write(asked):
    producer = KafkaProducer(bootstrap_servers=asked["bootstrap"])
    sent = []
    for line in sys.stdin:
        given = json.loads(line)
        sent.append(
            producer.send(
                asked["topic"],
                content(given.get("v")),
                content(given.get("k")),
                [(name, content(value)) for name, value in given.get("h", [])],
                given.get("p"),
                given.get("t"),
            )
        )
    for future in sent:
        future.get(60)
    producer.close()


{"read": read, "group": group, "write": write}[sys.argv[1]](json.loads(sys.argv[2]))
