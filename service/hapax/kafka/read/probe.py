"""What a reader meets first from an offset on: a record, an undecodable set, or the end."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError

from hapax.core.errors import PreflightError
from hapax.core.offset_moves import Unreadable
from hapax.kafka.admin.requests import set_at, wire_properties
from hapax.kafka.admin.wire import WireError
from hapax.kafka.errors import describe
from hapax.kafka.properties import build
from hapax.kafka.read.offsets_client import reader_properties
from hapax.kafka.read.range_reader import RangeFetch, record_of
from hapax.kafka.read.too_large import TooLarge

if TYPE_CHECKING:
    from hapax.core.records import Coordinates, Record
    from hapax.settings import Settings

WITHIN_S = 15.0


def first_from(
    settings: Settings, at: Coordinates, leader: tuple[str, int] | None
) -> tuple[Record, bool] | Unreadable | None:
    """Return the first record from there on, and whether its headers can be read.

    None at the end for read_committed readers; Unreadable for a set that the client cannot decode.
    Raises PreflightError when brokers do not answer, or do not let us.
    """

    def refused(_place: str, error: KafkaError) -> PreflightError:
        return PreflightError([f"{at}: cannot be read: {describe(error)}"])

    properties = reader_properties(settings) | {
        "enable.partition.eof": True,
        "log_level": 3,  # for TooLarge, which passes nothing on
        "auto.offset.reset": "error",
        "queued.min.messages": 1,
        "fetch.wait.max.ms": 20,
    }
    where = (at.topic, at.partition)
    spans = {where: (at.offset, sys.maxsize)}
    heard = TooLarge()
    with closing(build(Consumer, properties, heard)) as consumer:
        fetch = RangeFetch(consumer, spans, refused=refused, over={KafkaError._PARTITION_EOF})
        while not fetch.silent(WITHIN_S):
            for message in fetch.poll():
                return record_of(message)
            if where in fetch.undecodable:
                # Measured: the event carries the offset of the set's first record.
                stuck = fetch.undecodable[where]
                first = at._replace(offset=max(at.offset, stuck.offset))
                return _bounded(settings, first, stuck.reason, leader)
            if heard.reason:
                return _bounded(settings, at, heard.reason, leader)
            if not fetch.ends:
                return None
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
