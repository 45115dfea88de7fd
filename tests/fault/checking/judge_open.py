"""Which transactions are open, by what their coordinators have written down."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tests.fault.checking import reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

LOG = "__transaction_state"
_STATUS_AT = 16
"""Behind version (2 bytes), producer id (8), epoch (2) and timeout (4)."""
STATUSES = {1: "ongoing", 2: "committing", 3: "aborting"}
_PATIENCE_S = 30.0


def open_transactions(bootstrap: str, topics: Sequence[str], feeder: str) -> list[str]:
    """Return ids, with their states, of open transactions that touch any of ``topics``."""
    last: dict[str, str] = {}
    for message in _everything(bootstrap):
        name, value = _name(message.key() or b""), message.value()
        touches = value is not None and any(topic.encode() in value for topic in topics)
        status = STATUSES.get(value[_STATUS_AT]) if value is not None and touches else None
        if status is None:
            last.pop(name, None)
        else:
            last[name] = status
    return [f"{name}: {status}" for name, status in last.items() if name != feeder]


def _name(key: bytes) -> str:
    (length,) = struct.unpack_from(">h", key, 2)
    return key[4 : 4 + length].decode(errors="replace")


def _everything(bootstrap: str) -> Iterator[Message]:
    consumer = reading.consumer_of(bootstrap, "read_uncommitted")
    try:
        numbers = consumer.list_topics(LOG, timeout=_PATIENCE_S).topics[LOG].partitions
        consumer.assign([TopicPartition(LOG, number, OFFSET_BEGINNING) for number in numbers])
        unfinished = set(numbers)
        while unfinished:
            messages = consumer.consume(5000, 0.05)
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition() or 0)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
