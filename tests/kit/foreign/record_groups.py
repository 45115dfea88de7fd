"""Record what a group looks like after another client: BROKERS NAME VERSION COMMAND...

The command is given BROKERS TOPIC GROUP earliest|latest COUNT, prints what it reads, and leaves its
group when it has read COUNT records. Prints two lines of groups.jsonl.
"""

import json
import subprocess
import sys
import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 5
OLD = {0: 20, 1: 20, 3: 20}
NEW = {0: 5, 1: 3}
JOINS_S = 45
"""How long a client is given to find the end of each partition: none of them reports it."""


def main(brokers: str, name: str, version: str, *command: str) -> None:
    for start in ("earliest", "latest"):
        told = {"client": name, "version": version, "start": start}
        print(json.dumps(told | played(brokers, start, command)))  # noqa: T201 - what is asked for


def played(brokers: str, start: str, command: tuple[str, ...]) -> dict[str, Any]:
    group = topic = f"group-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    write(brokers, topic, OLD)
    count = sum((OLD if start == "earliest" else NEW).values())
    arguments = (brokers, topic, group, start, str(count))
    with subprocess.Popen([*command, *arguments], stdout=sys.stderr) as client:
        time.sleep(JOINS_S if start == "latest" else 2)
        found = admin.describe_consumer_groups([group])[group].result()
        if start == "latest":
            write(brokers, topic, NEW)
        if client.wait(150):
            raise SystemExit(f"{command} has left with {client.returncode}")
    reader = Consumer({"bootstrap.servers": brokers, "group.id": group})
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    offsets = [
        None if one.offset < 0 else [one.offset, epoch(one), one.metadata or ""]
        for one in reader.committed(places, 30)
    ]
    reader.close()
    return {"assignor": found.partition_assignor, "offsets": offsets}


def epoch(committed: TopicPartition) -> int:
    found: Any = committed.leader_epoch
    return -1 if found is None else int(found)


def write(brokers: str, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    if producer.flush(60):
        raise SystemExit("the broker does not answer")


if __name__ == "__main__":
    main(*sys.argv[1:])
