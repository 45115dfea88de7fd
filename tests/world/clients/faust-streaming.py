"""Faust: an agent that prints what comes by, in the worker that ``faust worker`` starts."""

import asyncio
import base64
import json
import os
import signal
import sys
import tempfile
import threading
import time
import uuid

import faust

STDOUT = sys.stdout  # the worker puts its log in the place of it


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def content(text):
    return None if text is None else base64.b64decode(text)


def application(asked, name, **settings):
    return faust.App(
        name,
        broker=f"kafka://{asked['bootstrap']}",
        key_serializer="raw",
        value_serializer="raw",
        datadir=tempfile.mkdtemp(),
        topic_disable_leader=True,
        web_enabled=False,
        **settings,
    )


def work(app):
    sys.argv[1:] = ["worker", "--logfile=/dev/null", "--without-web"]
    app.main()


def consume(asked, name, **settings):
    app = application(asked, name, **settings)
    last = time.monotonic() + 15

    @app.agent(app.topic(asked["topic"]))
    async def show(stream):
        nonlocal last
        async for event in stream.events():
            last = time.monotonic()
            record = event.message
            pairs = dict(record.headers or {}).items()
            line = {"p": record.partition, "o": record.offset, "k": text(record.key)}
            line |= {"v": text(record.value), "h": [[name, text(value)] for name, value in pairs]}
            line["t"] = round(1000 * record.timestamp)
            print(json.dumps(line), file=STDOUT, flush=True)

    @app.timer(0.2)
    async def idle():
        nonlocal last
        if time.monotonic() > last + asked["idle_s"]:
            last = float("inf")
            threading.Timer(10, os._exit, (0,)).start()  # with exactly_once its stop may hang
            os.kill(os.getpid(), signal.SIGTERM)

    work(app)


def read(asked):
    is_default = asked["level"] == "default"
    level = {} if is_default else {"processing_guarantee": "exactly_once"}
    consume(asked, str(uuid.uuid4()), **level)


def group(asked):
    consume(asked, asked["group"], processing_guarantee="exactly_once")


def write(asked):
    app = application(asked, str(uuid.uuid4()))
    topic = app.topic(asked["topic"])

    async def send():
        await app.producer.start()
        for line in sys.stdin:
            given = json.loads(line)
            await topic.send(
                key=content(given.get("k")),
                value=content(given.get("v")),
                partition=given.get("p"),
                timestamp=given["t"] / 1000 if "t" in given else None,
                headers=[(name, content(value)) for name, value in given.get("h", [])],
                force=True,
            )
        await app.producer.flush()
        await app.producer.stop()

    asyncio.get_event_loop().run_until_complete(send())


{"read": read, "group": group, "write": write}[sys.argv[1]](json.loads(sys.argv[2]))
