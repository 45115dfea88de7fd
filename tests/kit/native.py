"""Real messages of librdkafka without a broker, read by the native path and by the client itself.

librdkafka has a mock cluster in it. It knows no transactions to speak of, so what is shown here
concerns records and messages only.
"""

import ctypes
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import strategies as st

from hapax.core.record_path import Batch, Plan
from hapax.core.records import Progress
from hapax.kafka.consume.decode import read
from hapax.kafka.consume.partition_state import PartitionStates
from hapax.kafka.native import NativeBatch, NativePath, Prepared, _sources, record_path
from hapax.processing.plan import Destinations, Planner
from tests.kit.doubles import Ticking
from tests.kit.parts import settings_of

PARTITIONS = 4
"""Of a topic that the mock cluster makes by itself."""
PATIENCE_S = 20.0
_COPY = 2
_TOPIC, _VALUE, _KEY, _PARTITION, _FLAGS, _TIMESTAMP, _HEADERS, _END = 1, 4, 5, 3, 7, 8, 10, 0
"""Tags of rd_kafka_producev."""


class Raw(NamedTuple):
    """A record as any program may write it: names of headers are bytes."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_000
    partition: int = 0


def path(*chain: str) -> NativePath:
    """Return the native path of this process for a chain of sources of ids."""
    ids = {"HAPAX_DEDUP__ID": ",".join(chain)} if chain else {}
    found = record_path(settings_of("broker:1", "in", "out", "app", HAPAX_FAST="on", **ids)).path
    assert found is not None
    return found


def library() -> ctypes.CDLL:
    """Return the librdkafka of this process, the one that confluent-kafka brings."""
    maps = Path("/proc/self/maps").read_text()
    (name,) = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "librdkafka" in line}
    return ctypes.CDLL(name)


class RawProducer:
    """A producer without the checks that Python's has for names of headers.

    Records of a call for one partition arrive as one, however slowly they are handed over: only
    the flush ends what waits.
    """

    def __init__(self, bootstrap: str) -> None:
        self._lib = lib = library()
        for name in ("conf_new", "new", "headers_new"):
            getattr(lib, f"rd_kafka_{name}").restype = ctypes.c_void_p
        conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
        for name, value in (("bootstrap.servers", bootstrap), ("linger.ms", "60000")):
            assert not lib.rd_kafka_conf_set(conf, name.encode(), value.encode(), None, 0)
        self._rk = ctypes.c_void_p(lib.rd_kafka_new(0, conf, None, 0))
        assert self._rk.value

    def send(self, topic: str, records: Sequence[Raw]) -> None:
        lib, size = self._lib, ctypes.c_size_t
        for record in records:
            headers = ctypes.c_void_p(lib.rd_kafka_headers_new(size(len(record.headers))))
            for name, value in record.headers:
                length = ctypes.c_ssize_t(len(value or b""))
                lib.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), value, length)
            # A key and a value of no bytes are not the same as none: a pointer says which.
            key, value = record.key, record.value
            error = lib.rd_kafka_producev(
                *(self._rk, _TOPIC, topic.encode(), _PARTITION, record.partition, _FLAGS, _COPY),
                *(_VALUE, value, size(len(value or b"")), _KEY, key, size(len(key or b""))),
                *(_TIMESTAMP, ctypes.c_int64(record.timestamp_ms), _HEADERS, headers, _END),
            )
            assert not error, error
        assert not lib.rd_kafka_flush(self._rk, 10_000)

    def close(self) -> None:
        self._lib.rd_kafka_destroy(self._rk)


class Stage:
    """A mock cluster, a topic in it, and two readers of all of it: the native one and the client.

    client   capsule of the native reader's client
    """

    topic = "orders"

    def __init__(self) -> None:
        self._exits = ExitStack()
        self.path = path()
        self._mock = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"})
        (broker,) = self._mock.list_topics(timeout=10).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"
        self._producer = RawProducer(self.bootstrap)
        self._exits.callback(self._producer.close)
        self._producer.send(self.topic, [Raw(None, b"", partition=n) for n in range(PARTITIONS)])
        self._native = Consumer(self.path.plug_in(self.properties()))
        self.client = self.path.captured()
        self._exits.callback(self._native.close)
        self._exits.callback(self.path.module.release, self.client)
        self._intake = self.intake([])
        self._plain = self.reader(self.topic)
        for number in range(PARTITIONS):
            self._intake.route(self.topic, number)
        self._native.assign([TopicPartition(self.topic, n, 1) for n in range(PARTITIONS)])
        self._plain_next = dict.fromkeys(range(PARTITIONS), 1)

    def properties(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
            "auto.offset.reset": "earliest",
        }

    def close(self) -> None:
        self._exits.close()

    def intake(self, chain: Sequence[str]) -> Any:
        """Return an intake that looks ids up in this chain; all intakes read one queue."""
        sources, foreign = _sources(chain)
        assert not foreign
        return self.path.module.Intake(self.client, sources)

    def reader(self, topic: str, offset: int = 1) -> Consumer:
        """Return a plain client that reads a topic from an offset on."""
        consumer = Consumer(self.properties())
        self._exits.callback(consumer.close)
        consumer.assign([TopicPartition(topic, n, offset) for n in range(PARTITIONS)])
        return consumer

    def read_new(self, topic: str, count: int) -> list[Any]:
        """Return so many messages of a topic, from its beginning on."""
        consumer = Consumer(self.properties())
        try:
            consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
            found = read_all(consumer, count)
            assert consumer.consume(1, 0.05) == []
            return found
        finally:
            consumer.close()

    def native_producer(self, **properties: Any) -> tuple[Producer, object]:
        given = {"bootstrap.servers": self.bootstrap, **properties}
        return Producer(self.path.plug_in(given)), self.path.captured()

    def play(self, records: Sequence[Raw], chain: Sequence[str]) -> list[tuple[Any, Batch]]:
        """Write records; return native takes of them, and of each the reference's batch."""
        self._producer.send(self.topic, records)
        intake = self.intake(chain)
        takes: list[Any] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(len(take.messages()) for take in takes) < len(records):
            take = intake.take(1000, 100)
            takes += [] if take is None else [take]
            assert time.monotonic() < deadline_s, "the native reader lacks records"
        plain = {(m.partition(), m.offset()): m for m in read_all(self._plain, len(records))}
        return [
            (take, reference([plain[fields[3], fields[4]] for fields in take.messages()]))
            for take in takes
        ]


def planned(native: Any, results: list[Any], topic: str = "out", *, to: Progress) -> Plan:
    planner = Planner(Destinations("app", topic, "dead"))
    return planner.plan_batch(NativeBatch(native), native.ids, results, to)


def prepared(native: Any, results: list[Any], topic: str = "out") -> Prepared:
    messages = planned(native, results, topic, to={}).messages
    assert isinstance(messages, Prepared)
    return messages


def reference(messages: Sequence[Any]) -> Batch:
    def on_event(_message: object, error: object) -> None:
        raise AssertionError(error)

    return read(messages, PartitionStates(Ticking()), {}, on_event)


def read_all(consumer: Consumer, count: int) -> list[Any]:
    """Return so many messages; headers are read once only, which the client's do not allow."""
    found: list[Any] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        found += consumer.consume(count - len(found), 0.05)
        assert time.monotonic() < deadline_s, f"{len(found)} of {count} messages"
    assert not any(message.error() for message in found)
    return found


def few(examples: int) -> int:
    """Return how many examples are enough: with sanitizers each takes several times as long."""
    whole = "100" if os.environ.get("DEEP") == "1" else "30"
    return max(5, examples * int(os.environ.get("NATIVE_EXAMPLES_PERCENT", whole)) // 100)


PLAIN = [
    *(b"ce_id", b"ce_source", b"content-type", b"id", b"trace", b"", b"x" * 31, b"x" * 32),
    *(b"ce-id", b"ce-source"),
    *(b"hapax-id", b"hapax-source", b"hapax-part", b"hapax-", b"hapax"),  # of a Hapax upstream
]
"""Names that no program writes in two ways."""
ODD = [
    *PLAIN,
    *(b"CE_ID", b"Ce_Id", b"CE_Source", b"cE_source", b"Content-Type", b"CONTENT-TYPE"),
    *(b"CE-ID", b"Ce-Id", b"Ce-Source"),
    *(b"ID", b"Id", b"iD", b"TRACE", b"y" * 300),
    *(b"hapax-id", b"hapax-source", b"hapax-part", b"hapax-", b"Hapax-Id", b"hapax"),
    *(b"hapax-error", b"hapax-replay-of", b"HAPAX-REPLAY-OF", b"Hapax-Replay-of"),
    *("é".encode(), "\u212a".encode(), "\u0130D".encode(), b"\xff", b"id\xff", b"a b,\n"),
]
TYPES = [
    *(b"application/cloudevents+json; charset=utf-8", b" Application/CloudEvents+JSON"),
    *(b"application/cloudevents-batch+json", b"application/json"),
]
EVENT = b'{"specversion": "1.0", "id": "1", "source": "s"}'
EVENTS = [EVENT, b" \n" + EVENT, b"\xef\xbb\xbf" + EVENT, b"\0\0\0\0\7" + EVENT, b"[%b]" % EVENT]
VALUES = [None, b"", b"1", b"2", b"0", b"a\0b", b"\xff", b"orders/0/1", b"z" * 300]
CHAINS = ["cloudevents", "header:id", "header:ID", "header:Trace", "header:ce_id", "key"]


def _headers(names: list[bytes]) -> st.SearchStrategy[tuple[tuple[bytes, bytes | None], ...]]:
    pairs = st.tuples(
        st.sampled_from(names), st.sampled_from([*VALUES, *TYPES]) | st.binary(max_size=9)
    )
    return st.lists(pairs, max_size=6).map(tuple)


def _raw(names: list[bytes]) -> st.SearchStrategy[Raw]:
    return st.builds(
        Raw,
        key=st.sampled_from([None, b"", b"k"]) | st.binary(max_size=40),
        value=st.sampled_from([None, b"", b'{"id": 1, "source": "s"}', b"[]", b"v" * 200_000])
        | st.sampled_from(EVENTS)
        | st.binary(max_size=200),
        headers=_headers(names),
        timestamp_ms=st.sampled_from([1, 1_700_000_000_000, 2**53, -1, 0]) | st.integers(0, 2**45),
        partition=st.integers(0, PARTITIONS - 1) | st.just(0),
    )


plain = st.lists(_raw(PLAIN), min_size=1, max_size=8)
anything = plain | st.lists(_raw(ODD), min_size=1, max_size=8)
chains = st.lists(st.sampled_from(CHAINS), max_size=4, unique=True)
