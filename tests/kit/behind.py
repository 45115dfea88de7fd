"""Groups and what lies behind their offsets, in every situation that makes a lag wrong."""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

from hapax.sandbox import Sandbox, jars, machine
from tests.kit import topics
from tests.kit.at_work import delete_topic
from tests.kit.commands import output_of
from tests.kit.kept_clients import administrator
from tests.kit.raw_offsets import commit_raw
from tests.kit.waiting import await_

MANY, AT_ONCE = 1_000_000, 50_000
OPEN_MS = 800_000
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "0",
}
_JAVA_TIMEOUT_S = 200.0


class Behind(NamedTuple):
    """What one partition holds behind a group's offset, as a reader counted it."""

    records: int
    aborted: int
    empty: int
    open: int


class Stage:
    """Topics of a broker, each with the name of its situation, which is that of its group, too."""

    def __init__(self, sandbox: Sandbox, stack: ExitStack) -> None:
        self.sandbox = sandbox
        self.servers = sandbox.bootstrap_servers
        self._stack = stack

    def create(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self.sandbox.create_topic(topic, partitions, config)

    def committed(self, topic: str, count: int, partition: int = 0) -> None:
        topics.produce_committed(self.servers, topic, *some(count, partition))

    def aborted(self, topic: str, count: int, partition: int = 0) -> None:
        topics.produce_aborted(self.servers, topic, *some(count, partition))

    def plain(self, topic: str, count: int) -> None:
        topics.produce(self.servers, topic, *some(count))

    def opened(self, topic: str, count: int) -> None:
        """Write records of a transaction that stays open as long as the stage."""
        records = some(count)
        self._stack.enter_context(
            topics.produce_open(self.servers, topic, *records, timeout_ms=OPEN_MS)
        )

    def commit(self, topic: str, offsets: Mapping[int, int]) -> None:
        topics.committed(self.servers, topic, topic)  # a new broker is no coordinator at first
        at = {number: (offset, -1, "") for number, offset in offsets.items()}
        commit_raw(self.servers, topic, topic, at)


def some(count: int, partition: int = 0) -> list[topics.Given]:
    return [topics.Given(b"%d" % number, b"k", partition=partition) for number in range(count)]


def log(*counts: int, at: int | None, below: int = 0) -> Callable[[Stage, str], None]:
    """Return what writes transactions of so many records, aborted where negative.

    ``at``: the group's offset. ``below``: where the log begins afterwards.
    """

    def make(stage: Stage, topic: str) -> None:
        stage.create(topic)
        for count in counts:
            (stage.committed if count > 0 else stage.aborted)(topic, abs(count))
        if at is not None:
            stage.commit(topic, {0: at})
        if below:
            stage.sandbox.delete_records(topic, 0, below)

    return make


def open_tail(stage: Stage, topic: str) -> None:
    stage.create(topic)
    stage.committed(topic, 7)
    stage.opened(topic, 5)
    stage.committed(topic, 2)  # decided, and yet no reader may have it
    stage.commit(topic, {0: 4})


def compacted(stage: Stage, topic: str) -> None:
    stage.create(topic, config=COMPACTED)
    for _ in range(3):
        stage.committed(topic, 4)
    stage.commit(topic, {0: 2})

    def cleaned() -> bool:
        stage.plain(topic, 1)  # rolls segments
        return len(topics.read_back(stage.servers, topic)) <= 3

    await_(cleaned, 90, lambda: str(topics.read_back(stage.servers, topic)))
    frozen = {"cleanup.policy": "delete"}
    with administrator(stage.servers) as admin:
        topics.configure(admin, ResourceType.TOPIC, [topic], frozen)


def several(stage: Stage, topic: str) -> None:
    stage.create(topic, 4)
    for partition, count in enumerate((3, 5, 8)):
        stage.committed(topic, count, partition)
        stage.aborted(topic, count, partition)
    stage.commit(topic, {0: 3, 1: 0, 2: 12})  # nothing was read of the last one


def many(stage: Stage, topic: str) -> None:
    stage.create(topic)
    write_many(stage.servers, topic, MANY)
    stage.aborted(topic, 10)
    stage.commit(topic, {0: 0})


def recreated(stage: Stage, topic: str) -> None:
    stage.create(topic)
    stage.committed(topic, 20)
    stage.commit(topic, {0: 21})
    delete_topic(stage.servers, topic)
    stage.create(topic)
    stage.committed(topic, 3)
    stage.aborted(topic, 2)
    stage.commit(topic, {0: 21})  # brokers forget the offsets with the topic, its reader does not


SITUATIONS: dict[str, Callable[[Stage, str], None]] = {
    "aborted-tail": log(10, -199, at=10),
    "only-aborted": log(-3, -4, at=0),
    "empty": log(at=0),
    "open-tail": open_tail,
    "compacted": compacted,
    "amid-aborted": log(5, -10, 6, at=9),
    "deleted-by-retention": log(5, -5, 5, at=2, below=8),
    "no-offset": log(5, -2, at=None),
    "several-partitions": several,
    "many-records": many,
    "recreated": recreated,
}


def write_many(servers: str, topic: str, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "batch.num.messages": AT_ONCE,
            "linger.ms": 50,
            "queue.buffering.max.messages": 4 * AT_ONCE,
        }
    )
    for _ in range(0, count, AT_ONCE):
        while len(producer) > AT_ONCE:
            producer.poll(0.05)
        assert producer.produce_batch(topic, [{"value": b"x"} for _ in range(AT_ONCE)]) == AT_ONCE
    assert producer.flush(60) == 0


def counted_by_java(
    groups: Iterable[tuple[str, str]], settings: Mapping[str, str], folder: Path
) -> dict[tuple[str, int], Behind]:
    """Return what a reader of kafka-clients counts, by topic and partition.

    ``groups``: each with a topic. ``settings``: of a consumer. Skips without a compiler for Java.
    """
    java = machine.java()
    if b"jdk.compiler" not in subprocess.check_output([java, "--list-modules"]):
        pytest.skip("this Java has no compiler: it is a runtime, no JDK")
    file = folder / "reader.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    words: Sequence[str] = [word for group in groups for word in group]
    source = __file__.replace("behind.py", "CountBehind.java")
    classes = f"{jars.fetched(jars.kafka())}/*"
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", classes, source, str(file), *words]
    rows = [line.split() for line in output_of(command, timeout=_JAVA_TIMEOUT_S).splitlines()]
    return {(row[0], int(row[1])): Behind(*map(int, row[2:])) for row in rows}
