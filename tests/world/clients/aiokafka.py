"""aiokafka: aborted records are delivered unless the consumer is told otherwise."""

import asyncio
import base64
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def content(text):
    return None if text is None else base64.b64decode(text)


async def consume(asked, first_s, **settings):
    consumer = AIOKafkaConsumer(
        asked["topic"],
        bootstrap_servers=asked["bootstrap"],
        auto_offset_reset="earliest",
        **settings,
    )
    await consumer.start()
    wait_s = first_s
    try:
        while True:
            record = await asyncio.wait_for(consumer.getone(), wait_s)
            wait_s = asked["idle_s"]
            headers = [[name, text(value)] for name, value in record.headers]
            line = {"p": record.partition, "o": record.offset, "k": text(record.key)}
            line |= {"v": text(record.value), "h": headers, "t": record.timestamp}
            print(json.dumps(line))
    except TimeoutError:
        pass
    finally:
        await consumer.stop()


async def read(asked):
    level = {} if asked["level"] == "default" else {"isolation_level": asked["level"]}
    await consume(asked, asked["idle_s"], **level)


async def group(asked):
    await consume(asked, 20, group_id=asked["group"], isolation_level="read_committed")


async def write(asked):
    variants = {"": {}, "idempotent": {"enable_idempotence": True}}
    producer = AIOKafkaProducer(bootstrap_servers=asked["bootstrap"], **variants[asked["variant"]])
    await producer.start()
    try:
        sent = []
        for line in sys.stdin:
            given = json.loads(line)
            sent.append(
                await producer.send(
                    asked["topic"],
                    content(given.get("v")),
                    content(given.get("k")),
                    partition=given.get("p"),
                    timestamp_ms=given.get("t"),
                    headers=[(name, content(value)) for name, value in given.get("h", [])],
                )
            )
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


asyncio.run({"read": read, "group": group, "write": write}[sys.argv[1]](json.loads(sys.argv[2])))
