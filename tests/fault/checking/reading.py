"""Reads topics back from their beginning, as columns, in two processes.

These run without the collector of cycles: it would look at every header again and again, which
takes as long as to read them (measured: 7.4 us for an output, 4.4 us without).
"""

import gc
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.fault.checking import reading_columns as columns
from tests.fault.checking.reading_columns import Table
from tests.kit import topics

Kind = Literal["input", "output", "dead", "offsets"]
PROCESSES = 2
CHUNK = 10_000
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
PATIENCE_S = 60.0
"""How long a partition may give nothing before its end."""


@dataclass(frozen=True)
class Errand:
    """Some partitions of a topic to read back.

    kind       ``offsets``: only these, of all records, aborted ones among them
    source     input topic that effects name
    run        first part of event ids
    """

    bootstrap: str
    topic: str
    partitions: tuple[int, ...]
    kind: Kind
    source: str
    run: str
    folder: str

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"{self.topic}-{self.partitions[0]}-{self.kind}.npy"


@dataclass(frozen=True)
class Ends:
    """Of one partition: where its log begins, its last stable offset, its high watermark."""

    low: int
    stable: int
    high: int


@dataclass(frozen=True)
class Read:
    """Rows by partition and offset, left in their file, and the names of processes in them."""

    rows: Table
    whos: list[str]


def shares(count: int) -> list[tuple[int, ...]]:
    """Return the partitions of a topic, split among the processes."""
    return [tuple(range(at, count, PROCESSES)) for at in range(min(count, PROCESSES))]


def read(errands: Sequence[Errand]) -> list[Read]:
    """Return what the partitions held, up to the ends at the time; in the errands' order."""
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), gc.disable) as pool:
        return [
            Read(np.load(errand.path, mmap_mode="r"), whos)
            for errand, whos in zip(errands, pool.map(fetch, errands), strict=True)
        ]


def fetch(errand: Errand) -> list[str]:
    """Read partitions into a file; return the names of the processes that wrote."""
    whos: dict[bytes, int] = {}
    names = columns.Names(errand.source, errand.run, whos)
    parse = {
        "input": columns.inputs,
        "output": lambda chunk: columns.outputs(chunk, names),
        "dead": lambda chunk: columns.dead_letters(chunk, names),
        "offsets": columns.offsets,
    }[errand.kind]
    kinds = {"input": columns.INPUT, "offsets": columns.OFFSET}
    rows = [np.zeros(0, kinds.get(errand.kind, columns.EFFECT))]
    isolation: topics.Isolation = "read_committed"
    if errand.kind == "offsets":
        isolation = "read_uncommitted"
    everything = chunks(errand.bootstrap, errand.topic, errand.partitions, isolation)
    rows += [parse(chunk) for chunk in everything]
    table = np.concatenate(rows)
    np.save(errand.path, table[np.argsort(table["lane"], kind="stable")])
    return [name.decode(errors="replace") for name in whos]


def chunks(
    bootstrap: str, topic: str, partitions: Sequence[int], isolation: topics.Isolation
) -> Iterator[list[Message]]:
    consumer = _consumer(bootstrap, isolation)
    consumer.assign([TopicPartition(topic, at, OFFSET_BEGINNING) for at in partitions])
    unfinished = set(partitions)
    last_s = time.monotonic()
    try:
        while unfinished:
            found = consumer.consume(CHUNK, 0.05)
            messages = [message for message in found if message.error() is None]
            if messages:
                last_s = time.monotonic()
                yield messages
            if len(messages) < len(found):
                unfinished -= _ended(found)
            if time.monotonic() - last_s > PATIENCE_S:
                raise TimeoutError(f"{topic}: no end of {unfinished} within {PATIENCE_S} s")
    finally:
        consumer.close()


def _ended(messages: Sequence[Message]) -> set[int]:
    """Return the partitions whose end was reached; raise what no patience helps against."""
    ended = set()
    for message in messages:
        error = message.error()
        if error is None:
            continue
        if error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
        elif not error.retriable() and error.code() not in _PASSING:
            raise KafkaException(error)
    return ended


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "fault-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "metadata.recovery.strategy": "none",
            "fetch.wait.max.ms": 10,  # the end is told with an answer only
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 128 * 1024,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            "fetch.max.bytes": 32 * 1024 * 1024,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )


def ends(bootstrap: str, topic: str) -> list[Ends]:
    stable = topics.watermarks(bootstrap, topic, "read_committed")
    high = topics.watermarks(bootstrap, topic, "read_uncommitted")
    return [Ends(low, end, high[number][1]) for number, (low, end) in sorted(stable.items())]


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fault-reading-")
