"""What clients read. A value says what the record is: ``c-…`` committed, ``a-…`` aborted.

A topic is made once a run; it holds what its name says, and its records are known.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Producer

from hapax.sandbox import SandboxTopic
from tests.kit.kept_clients import QUIET, WRITER
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import (
    Given,
    produce,
    produce_aborted,
    produce_committed,
    produce_open,
    read_back,
    transaction,
)
from tests.kit.waiting import await_
from tests.world.wire import CODECS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.sandbox import Sandbox

LONG_BYTES = 3 * 1024 * 1024
"""Longer than what a fetch of a partition asks for by default: 1 MiB in most clients."""
KILLS = 4
FILLER = b"-"
"""A value that is not counted."""
FIELDS = (
    Given(b"c-null-key", None),
    Given(b"c-empty-key", b""),
    Given(b"", b"empty value"),
    Given(None, b"null value"),
    Given(b"c-headers", b"k", (("x", None), ("x", b"1"), ("", b"2"), ("empty", b""))),
    Given(b"c-bytes", bytes(range(256))),
)
"""Null and empty keys, values and headers; what a client makes of them is compared byte by byte."""


class Make(Protocol):
    """Fills a topic that exists and is empty."""

    def __call__(self, brokers: str, topic: str) -> None: ...


def records(kind: str, count: int, size: int = 0) -> list[Given]:
    """Return so many, numbered, filled up to ``size`` bytes."""
    texts = (f"{kind}-{number:05d}".encode() for number in range(count))
    return [Given(text.ljust(size, b"."), text) for text in texts]


def aborted(brokers: str, topic: str) -> None:
    """Ten committed, ten aborted, ten committed: a batch and a marker each."""
    produce_committed(brokers, topic, *records("c", 10))
    produce_aborted(brokers, topic, *records("a", 10))
    produce_committed(brokers, topic, *records("c", 10))


def several(brokers: str, topic: str) -> None:
    """One producer, sixty transactions of a record, every other one aborted: all in one fetch."""
    with transaction(brokers) as producer:
        for number in range(60):
            if number:
                producer.begin_transaction()
            kind = "a" if number % 2 else "c"
            producer.produce(topic, f"{kind}-{number:05d}".encode(), b"k", partition=0)
            producer.flush(30)
            producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)


def interleaved(brokers: str, topic: str) -> None:
    """Two transactions side by side, one committed, one aborted, and plain records between."""
    with transaction(brokers) as kept, transaction(brokers) as dropped:
        for number in range(20):
            for kind, producer in (("c", kept), ("a", dropped)):
                producer.produce(topic, f"{kind}-{number:05d}".encode(), b"k", partition=0)
                producer.flush(30)
        produce(
            brokers, topic, *(Given(b"c-plain-%d" % number, b"k", (), 0) for number in range(5))
        )
        dropped.abort_transaction(30)
        kept.commit_transaction(30)


def tail(brokers: str, topic: str) -> None:
    """Ten committed, then 199 aborted at the end: 11 offsets, then 200."""
    produce_committed(brokers, topic, *records("c", 10))
    produce_aborted(brokers, topic, *records("a", 199))


def only(brokers: str, topic: str) -> None:
    """Nothing but ten aborted."""
    produce_aborted(brokers, topic, *records("a", 10))


def split(brokers: str, topic: str) -> None:
    """1,200 records of 20 kB in turns committed and aborted: fetches split in transactions."""
    for number in range(6):
        produce_committed(brokers, topic, *records("c", 100, 20_000))
        (produce_aborted if number % 2 else produce_committed)(
            brokers, topic, *records("a" if number % 2 else "c", 100, 20_000)
        )


def long(brokers: str, topic: str) -> None:
    """A committed record longer than a fetch, an aborted one, and short ones around them."""
    for kind, size in (("c", 0), ("c", LONG_BYTES), ("a", LONG_BYTES), ("c", 0)):
        _ended(brokers, topic, records(kind, 1, size), **{"message.max.bytes": 8 * LONG_BYTES})


def codecs(brokers: str, topic: str) -> None:
    """Ten committed of each codec."""
    for codec in CODECS:
        _ended(brokers, topic, records("c", 10, 500), **{"compression.type": codec})


def _ended(brokers: str, topic: str, given: list[Given], **settings: Any) -> None:
    """Write records in a transaction of a producer with such settings; abort it for ``a-…``."""
    names = {"bootstrap.servers": brokers, "transactional.id": f"world-{uuid.uuid4().hex}"}
    producer = Producer({**QUIET, **WRITER, **names, **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    for one in given:
        producer.produce(topic, one.value, one.key, partition=0)
    producer.flush(30)
    is_aborted = (given[0].value or b"").startswith(b"a")
    producer.abort_transaction(30) if is_aborted else producer.commit_transaction(30)


def fields(brokers: str, topic: str) -> None:
    """One record a combination of FIELDS."""
    produce_committed(brokers, topic, *(one._replace(partition=0) for one in FIELDS))


def compacted(brokers: str, topic: str) -> None:
    """Ten keys, written twice and aborted once; five of them end with a tombstone. Then cleaned."""
    keys = [b"key-%d" % number for number in range(10)]
    for kind in ("c-old", "a-", "c-new"):
        _ended(brokers, topic, [Given(kind.encode(), key) for key in keys])
    _ended(brokers, topic, [Given(None, key) for key in keys[:5]])

    def is_clean() -> bool:
        _ended(brokers, topic, [Given(FILLER, b"last")])  # the active segment is never cleaned
        values = [record.value for record in read_back(brokers, topic)]
        return b"c-old" not in values and values.count(b"c-new") == len(keys) // 2

    await_(is_clean)


SHAPES: dict[str, Make] = {
    make.__name__: make
    for make in (aborted, several, interleaved, tail, only, split, long, codecs, fields, compacted)
}
CONFIG = {
    "long": {"max.message.bytes": str(8 * LONG_BYTES)},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
OPEN_MS = 7_200_000
BROKER = {"log.cleaner.backoff.ms": "200", "transaction.max.timeout.ms": str(OPEN_MS)}
"""A broker looks for something to compact every 15 s by default, and ends what is open after 15 min
at the latest: a run takes longer."""


@contextmanager
def made(sandbox: Sandbox, folder: Path) -> Iterator[dict[str, str]]:
    """Give the name of each topic; ``open`` has a transaction that is open inside the block."""
    brokers = sandbox.bootstrap_servers
    names = {shape: f"world-{shape}" for shape in (*SHAPES, "open")}
    sandbox.create_topics(
        *(SandboxTopic(name, 1, CONFIG.get(shape)) for shape, name in names.items())
    )
    for shape, make in SHAPES.items():
        make(brokers, names[shape])
    produce_committed(brokers, names["open"], *records("c", 10))
    with ExitStack() as ends:
        ends.enter_context(
            produce_open(brokers, names["open"], *records("a", 5), timeout_ms=OPEN_MS)
        )
        yield names | {"hapax": outputs(sandbox, folder)}


def outputs(sandbox: Sandbox, folder: Path) -> str:
    """Return a topic that Hapax wrote while its worker was killed again and again.

    Its input ends with aborted records in every partition, for those who measure its group.
    """
    pipeline = PipelineUnderTest(sandbox, folder, partitions=4)
    pipeline.create()
    pipeline.write(*records("c", 20_000))
    for number in range(KILLS):
        worker = pipeline.worker()
        pipeline.await_outputs(1 + 3_000 * number)
        worker.kill()
        worker.close()
    produce_aborted(sandbox.bootstrap_servers, pipeline.source, *records("a", 199))
    pipeline.run_to_end()
    pipeline.close()
    assert len(read_back(sandbox.bootstrap_servers, pipeline.target)) == 20_000
    return pipeline.target
