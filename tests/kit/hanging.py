"""A transaction that no coordinator knows, as a bug or a lost coordinator log leaves it (KIP-664).

A record of a transaction is written to a partition that was never registered with a coordinator,
by a raw request; brokers refuse that since 3.6 unless they are told not to verify.
"""

import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from confluent_kafka.admin import AdminClient, ResourceType
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

from hapax.cluster.transaction_states import OFFSETS
from tests.fault.watching.wire import Line
from tests.kit.topics import configure, read_back
from tests.kit.waiting import await_

_VERIFIES = "transaction.partition.verification.enable"
_KEY_OF_OFFSET = struct.pack(">h", 1)
_WITHIN_S = 30.0
_ADMINISTRATOR = "__admin_client"
"""Brokers let a client of this name write to topics of their own."""


def hang(bootstrap: str, topic: str, producer_id: int) -> None:
    """Leave a transaction of one record open in partition 0; the broker must not verify."""
    _append(bootstrap, (topic, 0), _batch((producer_id, 0), None, b"hidden"))


def hang_offset(bootstrap: str, holder: tuple[int, int], *, offset: int) -> int:
    """Commit an offset as this producer and epoch did last, in a transaction without a marker.

    Returns the partition of ``__consumer_offsets``. The broker must not verify; its coordinator
    takes note of what it did not write itself when it loads the partition, after a restart.
    """
    keyed = (one for one in read_back(bootstrap, OFFSETS) if one.key and one.value)
    offsets = [one for one in keyed if (one.key or b"")[:2] == _KEY_OF_OFFSET]
    written = [one for one in offsets if struct.unpack_from(">q", one.value or b"", 2)[0] >= 0]
    last = written[-1]
    assert last.value is not None
    value = last.value[:2] + struct.pack(">q", offset) + last.value[10:]
    records = _batch(holder, last.key, value, sequence=1)  # coordinators write with 0
    _append(bootstrap, (OFFSETS, last.partition), records)
    return last.partition


def _append(bootstrap: str, where: tuple[str, int], records: bytes) -> None:
    topic, partition = where
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        transactional_id="hanging",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[data(name=topic, partition_data=[part])],
    )
    codes = [0]

    def taken() -> bool:
        """Ask until the broker has heard that it does not verify."""
        # Later versions tell the coordinator of the partition (KIP-890).
        answer = line.ask(request, ProduceResponse, 3)
        codes[:] = [answer.responses[0].partition_responses[0].error_code]
        return codes == [0]

    port = int(bootstrap.rpartition(":")[2])
    with closing(Line(port, _WITHIN_S, _ADMINISTRATOR)) as line:
        await_(taken, _WITHIN_S, lambda: f"the broker refuses with {codes}")


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


def _batch(holder: tuple[int, int], key: bytes | None, value: bytes, sequence: int = 0) -> bytes:
    """Return a record set of format 2 with one record of a transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=holder[0],
        producer_epoch=holder[1],
        base_sequence=sequence,
        batch_size=0,
    )
    builder.append(0, int(time.time() * 1000), key, value, [])
    return bytes(builder.build())
