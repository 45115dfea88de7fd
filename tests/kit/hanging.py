"""A transaction that no coordinator knows, as a bug or a lost coordinator log leaves it (KIP-664).

A record of a transaction is written to a partition that was never registered with a coordinator,
by a raw request; brokers refuse that since 3.6 unless they are told not to verify.
"""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, ResourceType

from hapax.core.transaction_states import OFFSETS
from hapax.kafka.admin.wire import Packer, Wire
from tests.kit.configs import configure
from tests.kit.damage import crc32c
from tests.kit.topics import read_back

_VERIFIES = "transaction.partition.verification.enable"
_PRODUCE = 0
_KEY_OF_OFFSET = struct.pack(">h", 1)
_WITHIN_S = 30.0


def hang(bootstrap: str, topic: str, partition: int, producer_id: int) -> None:
    """Leave a transaction of one record open; the broker must not verify."""
    _append(Wire, bootstrap, topic, partition, _batch(producer_id, 0, None, b"hidden"))


def hang_offset(bootstrap: str, holder: tuple[int, int], *, offset: int) -> int:
    """Commit an offset as this producer and epoch did last, in a transaction without a marker.

    Returns the partition of ``__consumer_offsets``. The broker must not verify; its coordinator
    takes note of what it did not write itself when it loads the partition, after a restart.
    """
    written = [
        one
        for one in read_back(bootstrap, OFFSETS)
        if one.value and one.key and one.key[:2] == _KEY_OF_OFFSET and _offset(one.value) >= 0
    ]
    last = written[-1]
    assert last.value is not None
    value = last.value[:2] + struct.pack(">q", offset) + last.value[10:]
    records = _batch(*holder, last.key, value, sequence=1)  # coordinators write with 0
    _append(_Administrator, bootstrap, OFFSETS, last.partition, records)
    return last.partition


class _Administrator(Wire):
    """Brokers let this client write to topics of their own."""

    name = b"__admin_client"


def _offset(value: bytes) -> int:
    return int(struct.unpack_from(">q", value, 2)[0])


def _append(kind: type[Wire], bootstrap: str, topic: str, partition: int, records: bytes) -> None:
    body = Packer().plain("hanging").add("hi", -1, 10_000).add("i", 1).plain(topic)
    body.add("iii", 1, partition, len(records)).raw(records)
    host, _, port = bootstrap.rpartition(":")
    give_up_s = time.monotonic() + _WITHIN_S
    while True:  # until the broker has heard that it does not verify
        with kind({}, host, int(port)) as wire:
            answer = wire.ask(_PRODUCE, 3, body, flexible=False)
        answer.number("i")
        answer.plain()
        _, _, error = answer.take("iih")
        if not error:
            return
        assert time.monotonic() < give_up_s, f"the broker refuses with {error}"
        time.sleep(0.1)


@contextmanager
def unverified(bootstrap: str) -> Iterator[None]:
    """Let the brokers of the block take such records."""
    _verify(bootstrap, value="false")
    try:
        yield
    finally:
        _verify(bootstrap, value="true")


def _verify(bootstrap: str, *, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    brokers = map(str, admin.list_topics(timeout=30).brokers)
    configure(admin, ResourceType.BROKER, brokers, {_VERIFIES: value})


def _batch(
    producer_id: int, epoch: int, key: bytes | None, value: bytes, sequence: int = 0
) -> bytes:
    """Return a record set of format 2 with one record of a transaction."""
    named = b"\1" if key is None else _varint(len(key)) + key
    record = b"\0\0\0" + named + _varint(len(value)) + value + b"\0"
    records = _varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    tail = (
        struct.pack(">hiqqqhii", 0x10, 0, now_ms, now_ms, producer_id, epoch, sequence, 1) + records
    )
    head = struct.pack(">ib", 0, 2) + struct.pack(">I", crc32c(tail))
    return struct.pack(">qi", 0, len(head) + len(tail)) + head + tail


def _varint(number: int) -> bytes:
    number <<= 1  # zigzag, of what is not negative
    text = b""
    while number > 0x7F:
        text += bytes([number & 0x7F | 0x80])
        number >>= 7
    return text + bytes([number])
