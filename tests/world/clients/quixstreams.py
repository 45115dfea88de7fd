"""Quix Streams: a StreamingDataFrame that prints what comes by."""

import base64
import json
import sys
import tempfile
import uuid

from quixstreams import Application, message_context


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def content(text):
    return None if text is None else base64.b64decode(text)


def show(value, key, timestamp, headers):
    place = message_context()
    pairs = [[name, text(content)] for name, content in headers or []]
    line = {"p": place.partition, "o": place.offset, "k": text(key), "v": text(value)}
    print(json.dumps({**line, "h": pairs, "t": timestamp}))


def application(asked, **settings):
    return Application(asked["bootstrap"], loglevel="ERROR", auto_create_topics=False, **settings)


def consume(asked, **settings):
    with tempfile.TemporaryDirectory() as folder:
        app = application(asked, auto_offset_reset="earliest", state_dir=folder, **settings)
        topic = app.topic(asked["topic"], key_deserializer="bytes", value_deserializer="bytes")
        app.dataframe(topic).update(show, metadata=True)
        app.run(timeout=asked["idle_s"] + 2)  # counts from the start, joining the group included


def read(asked):
    level = {} if asked["level"] == "default" else {"isolation.level": asked["level"]}
    consume(asked, consumer_group=str(uuid.uuid4()), consumer_extra_config=level)


def group(asked):
    consume(asked, consumer_group=asked["group"])


def write(asked):
    with application(asked).get_producer() as producer:
        for line in sys.stdin:
            given = json.loads(line)
            producer.produce(
                asked["topic"],
                content(given.get("v")),
                content(given.get("k")),
                headers=[(name, content(value)) for name, value in given.get("h", [])],
                partition=given.get("p"),
                timestamp=given.get("t"),
            )


{"read": read, "group": group, "write": write}[sys.argv[1]](json.loads(sys.argv[2]))
