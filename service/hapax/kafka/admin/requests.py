"""Requests that librdkafka does not have, to the broker that can answer them (kafka/admin/wire.py).

Fetch              the header alone of the record set at an offset: where it ends, although its
                   records cannot be decoded
DescribeConfigs    what a broker's file says where something else overrides it: the client keeps one
                   of the values that a setting has under one name
DescribeProducers  who has a transaction open in a partition (KIP-664); to its leader
WriteTxnMarkers    ends a transaction by hand, as Kafka's ``kafka-transactions.sh abort`` does
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError

from hapax.core.transaction_states import Holder
from hapax.kafka.admin.wire import Packer, Wire, WireError
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offsets_client import reader_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

_FETCH, _WRITE_MARKERS, _CONFIGS, _PRODUCERS = 1, 27, 32, 61
_OF_BROKER, _IN_FILE = 4, 4
"""A resource that is a broker; a value that stands in its ``server.properties``."""
_HEAD_V2 = struct.Struct(">qiibIhiqqqhii")
"""The header of a record set of format 2: base offset, length, leader epoch, format, checksum,
attributes, last offset delta, first and last timestamp, producer id, its epoch, first sequence
number, number of records."""
_HEAD_OLD = struct.Struct(">qi")
_FORMAT_AT, _FORMAT_V2 = 16, 2
_SET_BYTES = 1024
"""What is asked for; a broker sends the first set whole all the same (KIP-74)."""
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class RecordSet(NamedTuple):
    """What the header of a record set says: offsets of its first and last record, its codec."""

    first: int
    last: int
    codec: str
    bytes: int


def wire_properties(settings: Settings) -> dict[str, Any]:
    """Return those of the client's properties that say how it connects and logs in."""
    properties = reader_properties(settings)
    verified = "enable.ssl.certificate.verification"
    more = {verified: properties[verified]} if verified in properties else {}
    return admin_properties(properties) | more


def set_at(
    properties: Mapping[str, Any], leader: tuple[str, int], where: Where, offset: int
) -> RecordSet | None:
    """Return the record set that holds an offset, or the next one after it; None at the end."""
    topic, partition = where
    body = Packer().add("iiiib", -1, 0, 0, _SET_BYTES, 0).add("i", 1).plain(topic)
    body.add("iiqi", 1, partition, offset, _SET_BYTES)
    with Wire(properties, *leader) as wire:
        answer = wire.ask(_FETCH, 4, body, flexible=False)
    answer.take("ii")  # throttle time, and the number of topics, which is one
    answer.plain()
    _, _, error, _, _ = answer.take("iihqq")
    _check(error, f"{topic}/{partition}: the record set at {offset} cannot be fetched")
    for _ in range(answer.number("i")):
        answer.take("qq")  # aborted transactions
    records = answer.raw(max(0, answer.number("i")))
    return _set_of(records)


def value_in_file(
    properties: Mapping[str, Any], broker: tuple[str, int], number: int, name: str
) -> str | None:
    """Return what a broker's own file says of a setting; None: nothing."""
    body = Packer().add("ib", 1, _OF_BROKER).plain(str(number)).add("i", 1).plain(name).add("b", 1)
    with Wire(properties, *broker) as wire:
        answer = wire.ask(_CONFIGS, 1, body, flexible=False)
    answer.take("ii")  # throttle time, and the number of resources, which is one
    error, _, _, _ = answer.number("h"), answer.plain(), answer.take("b"), answer.plain()
    _check(error, f"broker {number}: {name} cannot be read")
    for _ in range(answer.number("i")):
        answer.plain(), answer.plain(), answer.take("bbb")
        for _ in range(answer.number("i")):
            _, value, source = answer.plain(), answer.plain(), answer.number("b")
            if source == _IN_FILE:
                return value
    return None


def _set_of(records: bytes) -> RecordSet | None:
    """Read a header; sets of formats 0 and 1 are one message, or one compressed message."""
    if len(records) <= _FORMAT_AT:
        return None
    if records[_FORMAT_AT] != _FORMAT_V2:
        # The offset of an old compressed set is that of its last record.
        last, size = _HEAD_OLD.unpack_from(records)
        return RecordSet(last, last, "?", size)
    if len(records) < _HEAD_V2.size:
        return None
    first, size, _, _, _, attributes, delta, *_ = _HEAD_V2.unpack_from(records)
    codec = attributes & 7
    named = _CODECS[codec] if codec < len(_CODECS) else f"unknown ({codec})"
    return RecordSet(first, first + max(0, delta), named, size)


def producers(
    properties: Mapping[str, Any], leader: tuple[str, int], partitions: list[Where]
) -> list[tuple[Holder, int]]:
    """Return who has a transaction open in these partitions, which this broker leads.

    Beside each the epoch of the coordinator that ended its last transaction there; -1: none did.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    body = Packer().size(len(topics))
    for topic, numbers in topics.items():
        body.text(topic).size(len(numbers)).add(f"{len(numbers)}i", *numbers).end()
    with Wire(properties, *leader) as wire:
        answer = wire.ask(_PRODUCERS, 0, body.end())
    answer.number("i")
    found: list[tuple[Holder, int]] = []
    for _ in range(answer.size()):
        topic = answer.text()
        for _ in range(answer.size()):
            partition, error = answer.take("ih")
            answer.text()
            _check(error, f"{topic}/{partition}: its producers cannot be listed")
            for _ in range(answer.size()):
                number, epoch, _, last_ms, coordinator, start = answer.take("qiiqiq")
                answer.end()
                one = Holder(
                    topic=topic,
                    partition=partition,
                    producer_id=number,
                    epoch=epoch,
                    start=start,
                    last_ms=last_ms,
                )
                if start >= 0:
                    found.append((one, coordinator))
            answer.end()
        answer.end()
    return found


def write_marker(
    properties: Mapping[str, Any],
    leader: tuple[str, int],
    holder: Holder,
    coordinator_epoch: int,
    *,
    commit: bool,
) -> None:
    """Write the marker that ends this producer's transaction in one partition.

    Raises WireError when the leader refuses, for lack of the right to ALTER the cluster, too.
    """
    body = Packer().size(1).add("qhb", holder.producer_id, holder.epoch, commit)
    body.size(1).text(holder.topic).size(1).add("i", holder.partition).end()
    body.add("i", max(0, coordinator_epoch)).end()
    with Wire(properties, *leader) as wire:
        answer = wire.ask(_WRITE_MARKERS, 1, body.end())
    for _ in range(answer.size()):
        answer.number("q")
        for _ in range(answer.size()):
            topic = answer.text()
            for _ in range(answer.size()):
                number, error = answer.take("ih")
                answer.end()
                _check(error, f"{topic}/{number}: the transaction cannot be ended")
            answer.end()
        answer.end()


def _check(error: int, what: str) -> None:
    if error:
        raise WireError(f"{what}: {KafkaError(error).str()}")
