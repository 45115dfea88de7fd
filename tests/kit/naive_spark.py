"""The Spark job that people write: tasks copy ranges with a plain producer, the driver commits.

A task that dies half-way has written already what the next attempt writes again. Reads the same
environment as the service; leaves when it has copied all there is.
"""

import os
import time
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, Producer, TopicPartition

Range = tuple[int, int, int]
"""Partition, first offset, offset behind the last."""
WRITES_MS = 8
"""A moment for each record, so that a kill finds a range half done."""


def copy(environment: dict[str, str], ranges: Iterable[Range]) -> Iterator[Range]:
    """Copy each range; this is the task."""
    producer = Producer({"bootstrap.servers": environment["HAPAX_KAFKA__BOOTSTRAP_SERVERS"]})
    for partition, first, end in ranges:
        consumer = _consumer(environment)
        consumer.assign([TopicPartition(environment["HAPAX_INPUT__TOPICS"], partition, first)])
        for _ in range(first, end):
            record = consumer.poll(30)
            assert record is not None
            producer.produce(environment["HAPAX_OUTPUT__TOPIC"], record.value(), record.key())
            producer.flush(30)
            time.sleep(WRITES_MS / 1000)
        consumer.close()
        yield partition, first, end


def main() -> None:
    """Run a job for all that is there, commit, and again where a job has failed."""
    from hapax.engines.spark.session import (  # noqa: PLC0415 - tasks need nothing of it
        SparkOptions,
        open_context,
    )

    environment = dict(os.environ)
    topic = environment["HAPAX_INPUT__TOPICS"]
    context = open_context(SparkOptions("naive", environment["HAPAX_SPARK__MASTER"]))
    consumer = _consumer(environment)
    while ranges := _ranges(consumer, topic):
        try:
            job = context.parallelize(ranges, len(ranges))
            done = job.mapPartitions(lambda rows: copy(environment, rows)).collect()
        except Exception:  # noqa: BLE001, S112 - a task died: once more, as Spark itself does
            continue
        consumer.commit(
            offsets=[TopicPartition(topic, partition, end) for partition, _first, end in done],
            asynchronous=False,
        )
    consumer.close()
    context.stop()


def _ranges(consumer: Consumer, topic: str) -> list[Range]:
    numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    places = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=30)
    ranges = []
    for place in places:
        end = consumer.get_watermark_offsets(place, timeout=30)[1]
        if max(0, place.offset) < end:
            ranges.append((place.partition, max(0, place.offset), end))
    return ranges


def _consumer(environment: dict[str, str]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": environment["HAPAX_KAFKA__BOOTSTRAP_SERVERS"],
            "group.id": environment["HAPAX_APP"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


if __name__ == "__main__":
    from tests.kit import naive_spark  # what executors import, and not what runs as __main__

    naive_spark.main()
