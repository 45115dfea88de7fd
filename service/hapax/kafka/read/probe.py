"""What a reader meets first from an offset on: a record, an undecodable set, or the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.errors import PreflightError
from hapax.core.offset_moves import Unreadable
from hapax.kafka.admin.requests import set_at, wire_properties
from hapax.kafka.admin.wire import WireError
from hapax.kafka.errors import FORBIDDEN, UNKNOWN_TOPIC, describe
from hapax.kafka.properties import build
from hapax.kafka.read.offset_client import reader_properties
from hapax.kafka.read.records import record_of
from hapax.kafka.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from hapax.core.records import Coordinates, Record
    from hapax.settings import Settings

WAIT_S, WITHIN_S = 0.5, 15.0


def first_from(
    settings: Settings, at: Coordinates, leader: tuple[str, int] | None
) -> tuple[Record, bool] | Unreadable | None:
    """Return the first record from there on, and whether its headers can be read.

    None at the end for read_committed readers; Unreadable for a set that the client cannot decode.
    Raises PreflightError when brokers do not answer, or do not let us.
    """
    properties = reader_properties(settings) | {
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "queued.min.messages": 1,
        "fetch.wait.max.ms": 20,
    }
    consumer = build(Consumer, properties, None)
    give_up_s = time.monotonic() + WITHIN_S
    try:
        consumer.assign([TopicPartition(*at)])
        while time.monotonic() < give_up_s:
            message = consumer.poll(WAIT_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return record_of(message)
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            if error.code() in FORBIDDEN | UNKNOWN_TOPIC or error.fatal():
                raise PreflightError([f"{at}: cannot be read: {describe(error)}"])
            if error.code() in UNDECODABLE:
                # Measured: the event carries the offset of the set's first record.
                first = max(at.offset, message.offset() or 0)
                return _bounded(settings, at._replace(offset=first), describe(error), leader)
    finally:
        consumer.close()
    raise PreflightError([f"{at}: nothing came for {WITHIN_S:.0f} s; are its brokers up?"])


def _bounded(
    settings: Settings, at: Coordinates, reason: str, leader: tuple[str, int] | None
) -> Unreadable:
    """Return where the set at an offset ends; the offset alone where that cannot be told."""
    last = at.offset
    try:
        if leader is None:
            raise WireError("the partition has no leader")  # noqa: TRY301 - one way out
        where = (at.topic, at.partition)
        found = set_at(wire_properties(settings), leader, where, at.offset)
    except WireError as error:
        reason = f"{reason} (where its set ends is not known: {error})"
    else:
        if found is not None and found.first <= at.offset:
            last = max(last, found.last)
    return Unreadable(at.offset, last, reason)
