"""Records of the benchmark: made, written all at once or paced, read back and checked."""

import multiprocessing
import random
import struct
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.keeping import COUNT_BYTES
from bench.measure import VoidRunError

VALUE_BYTES = 100
PARTITIONS = 4
KEYS = 5000
WARM_SHARE = 0.2
SILENCE_S = 20.0
_STAMP = struct.Struct(">QQ")  # number of the record, intended send time in ns
_NOISE = random.Random(1).randbytes(1 << 16)  # incompressible, the same in every process


def apart(work: Callable[..., Any], *args: object) -> Any:
    """Do ``work`` in a process of its own: the peak memory of a process under measurement begins
    with what its parent holds, so the parent has to stay small."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(work, *args).result()


def value(number: int, intended_ns: int) -> bytes:
    start = number * 31 % (len(_NOISE) - VALUE_BYTES)
    return _STAMP.pack(number, intended_ns) + _NOISE[start : start + VALUE_BYTES - _STAMP.size]


def message_id(number: int) -> bytes:
    """Return 36 bytes, the length of a UUID's text."""
    return b"7d9f2c41-5b0e-4c8e-9f3a-%012x" % number


def produce(
    producer: Producer, topic: str, number: int, intended_ns: int, keys: int = KEYS
) -> None:
    while True:
        try:
            producer.produce(
                topic,
                value(number, intended_ns),
                b"key-%d" % (number % keys),
                headers=[("message-id", message_id(number))],
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def fill(servers: str, topic: str, records: int, keys: int = KEYS) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    for number in range(records):
        produce(producer, topic, number, 0, keys)
    if producer.flush(60):
        raise VoidRunError("the backlog could not be written")


def send(
    servers: str, topic: str, rate: int, records: int, start_ns: int, keys: int = KEYS
) -> None:
    """Write ``rate`` records a second, each stamped with the time at which it was due.

    A sender that falls behind catches up and the wait counts: no coordinated omission.
    """
    # Without a millisecond of linger 10,000 records/s are as many requests: the broker is full.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "acks": "all"})
    producer.list_topics(topic, timeout=10)
    sent = 0
    while sent < records:
        now_ns = time.monotonic_ns()
        due = min(records, (now_ns - start_ns) * rate // 1_000_000_000 + 1)
        while sent < due:
            produce(producer, topic, sent, start_ns + sent * 1_000_000_000 // rate, keys)
            sent += 1
        producer.poll(0)
        time.sleep(0.0005)  # the pace itself: nothing to wait for but the clock
    if producer.flush(30):
        raise VoidRunError("not all records could be written")


def read(
    servers: str, topic: str, records: int, partitions: int = PARTITIONS
) -> Iterator[list[Any]]:
    """Yield what a read_committed reader sees, as soon as it does; end after so many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen, heard_s = 0, time.monotonic()
    while seen < records:
        first = consumer.poll(0.1)
        if first is None:
            if time.monotonic() - heard_s > SILENCE_S:
                raise VoidRunError(f"{seen} of {records} outputs are there")
            continue
        messages = [first, *consumer.consume(10_000, 0)]
        heard_s = time.monotonic()
        seen += len(messages)
        yield messages
    if surplus := consumer.poll(0.5):
        raise VoidRunError(f"more outputs than records: {surplus.value()!r}")
    consumer.close()


def stamp_of(message: Any) -> tuple[int, int]:
    """Return number and intended send time of a record or of its output."""
    number, intended_ns = _STAMP.unpack_from(message.value())
    return number, intended_ns


class Checker:
    """Holds a run to its input: every record once, unchanged, with its headers.

    ``source``: the topic that the header ``hapax-source`` must name; None where no headers are
    added, and then there must be none. ``keys``: how many there are. ``counted``: 1: values end
    with how often their key has come.
    """

    def __init__(
        self, records: int, source: str | None, keys: int = KEYS, counted: int = 0
    ) -> None:
        self._counted = counted
        self._seen = bytearray(records)
        self._keys = keys
        self._sources = set[bytes]()
        self._start = None if source is None else f"{source}/".encode()

    def take(self, message: Any) -> tuple[int, int]:
        """Return number and intended send time of one output."""
        found = message.value()
        number, intended_ns = _STAMP.unpack_from(found)
        if self._counted:
            found, count = found[:-COUNT_BYTES], int.from_bytes(found[-COUNT_BYTES:], "big")
            if count != number // self._keys + 1:
                raise VoidRunError(f"the output of record {number} has the count {count}")
        if self._seen[number]:
            raise VoidRunError(f"record {number} has two outputs")
        key = b"key-%d" % (number % self._keys)
        if found != value(number, intended_ns) or message.key() != key:
            raise VoidRunError(f"the output of record {number} is not its input")
        self._judge(number, message.headers() or [])
        self._seen[number] = 1
        return number, intended_ns

    def _judge(self, number: int, pairs: list[tuple[str, bytes]]) -> None:
        headers, expected = dict(pairs), message_id(number)
        if self._start is None:
            if {"hapax-id", "hapax-source"} & headers.keys():
                raise VoidRunError(f"the output of record {number} has headers it should not have")
            return
        if headers.get("message-id") != expected or headers.get("hapax-id") != expected:
            raise VoidRunError(f"the output of record {number} has lost its id")
        source = headers.get("hapax-source", b"")
        if len(pairs) != 3 or not source.startswith(self._start) or source in self._sources:
            raise VoidRunError(f"the output of record {number} names its source as {source!r}")
        self._sources.add(source)

    def finish(self) -> None:
        missing = self._seen.count(0)
        if missing:
            raise VoidRunError(f"{missing} records have no output")


def check(
    servers: str,
    topic: str,
    records: int,
    partitions: int,
    source: str | None,
    keys: int = KEYS,
    counted: int = 0,
) -> float:
    """Check a whole topic; return records/s after the first fifth, by the broker's clock."""
    checker, times_ms = Checker(records, source, keys, counted), array("q")
    for messages in read(servers, topic, records, partitions):
        for message in messages:
            checker.take(message)
            times_ms.append(message.timestamp()[1])
    checker.finish()
    ordered = sorted(times_ms)
    warm = int(records * WARM_SHARE)
    return (records - warm) / max(0.001, (ordered[-1] - ordered[warm]) / 1000)


def moments_ms(servers: str, topic: str, records: int) -> list[list[int]]:
    """Return by input partition, in its order, when each output was written: the broker's clock."""
    found: dict[int, list[tuple[int, int]]] = {}
    for messages in read(servers, topic, records):
        for message in messages:
            source = dict(message.headers() or [])["hapax-source"].decode()
            _topic, partition, offset = source.rsplit("/", 2)
            found.setdefault(int(partition), []).append((int(offset), message.timestamp()[1]))
    return [[ms for _, ms in sorted(found[partition])] for partition in sorted(found)]


def receive(
    servers: str,
    topic: str,
    source: str | None,
    counts: tuple[int, int],
    answer: Connection,
    keys: int = KEYS,
    counted: int = 0,
) -> None:
    """Send the latencies in ms of all records but the first ones, or the error.

    ``counts``: of all records, and of those that do not count. ``source`` as for Checker.
    """
    records, skip = counts
    checker, latencies_ms = Checker(records, source, keys, counted), list[float]()
    answer.send("ready")
    try:
        for messages in read(servers, topic, records):
            now_ns = time.monotonic_ns()
            for message in messages:
                number, intended_ns = checker.take(message)
                if number >= skip:
                    latencies_ms.append((now_ns - intended_ns) / 1e6)
        checker.finish()
    except VoidRunError as error:
        answer.send(error)
        return
    answer.send(latencies_ms)
