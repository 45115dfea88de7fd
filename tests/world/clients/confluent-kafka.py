"""confluent-kafka for Python, with the defaults of librdkafka."""

import base64
import json
import sys
import time
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def content(text):
    return None if text is None else base64.b64decode(text)


def show(message):
    headers = [[name, text(value)] for name, value in message.headers() or []]
    line = {"p": message.partition(), "o": message.offset(), "k": text(message.key())}
    line |= {"v": text(message.value()), "h": headers, "t": message.timestamp()[1]}
    print(json.dumps(line))


def consume(consumer, idle_s, first_s=20):
    last = time.monotonic() + first_s - idle_s
    while time.monotonic() - last < idle_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            last = time.monotonic()
            show(message)


def read(asked):
    settings = {"bootstrap.servers": asked["bootstrap"], "group.id": str(uuid.uuid4())}
    if asked["level"] != "default":
        settings["isolation.level"] = asked["level"]
    consumer = Consumer(settings)
    partitions = consumer.list_topics(asked["topic"], timeout=30).topics[asked["topic"]].partitions
    consumer.assign([TopicPartition(asked["topic"], one, OFFSET_BEGINNING) for one in partitions])
    consume(consumer, asked["idle_s"], first_s=asked["idle_s"])
    consumer.close()


def group(asked):
    consumer = Consumer(
        {
            "bootstrap.servers": asked["bootstrap"],
            "group.id": asked["group"],
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([asked["topic"]])
    consume(consumer, asked["idle_s"])
    consumer.close()


def write(asked):
    producer = Producer({"bootstrap.servers": asked["bootstrap"]})

    def acknowledged(error, _message):
        if error is not None:
            print(json.dumps({"refused": str(error)}))

    for line in sys.stdin:
        given = json.loads(line)
        place = {"partition": given["p"]} if "p" in given else {}
        if "t" in given:
            place["timestamp"] = given["t"]
        headers = [(name, content(value)) for name, value in given.get("h", [])]
        producer.produce(
            asked["topic"],
            key=content(given.get("k")),
            value=content(given.get("v")),
            headers=headers,
            on_delivery=acknowledged,
            **place,
        )
    producer.flush(60)


{"read": read, "group": group, "write": write}[sys.argv[1]](json.loads(sys.argv[2]))
