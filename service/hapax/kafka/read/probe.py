"""What a reader meets first from an offset on: a record, an undecodable set, or the end."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError

from hapax.core.errors import PreflightError
from hapax.core.offset_moves import Unreadable
from hapax.core.ports import Stuck
from hapax.kafka.errors import describe
from hapax.kafka.properties import build
from hapax.kafka.read.offsets_client import reader_properties
from hapax.kafka.read.range_reader import RangeFetch, record_of
from hapax.kafka.read.too_large import TooLarge

if TYPE_CHECKING:
    from hapax.core.records import Coordinates, Record
    from hapax.settings import Settings

WITHIN_S = 15.0
_UNKNOWN = -1
"""The first offset of a set whose response is too large: the client never sees it."""


def first_from(
    settings: Settings, at: Coordinates, end: int
) -> tuple[Record, bool] | Unreadable | None:
    """Return the first record from there on, and whether its headers can be read.

    ``end``: the partition's last stable offset, as it was before. None at the end for
    read_committed readers; Unreadable for a set that the client cannot decode.
    Raises PreflightError when brokers do not answer, or do not allow to read.
    """
    found = _met(settings, at)
    if not isinstance(found, Stuck):
        return found
    first = max(at.offset, found.offset)
    return Unreadable(first, _last(settings, at._replace(offset=first), end, found), found.reason)


def _last(settings: Settings, at: Coordinates, end: int, stuck: Stuck) -> int:
    """Return the last offset of a set that cannot be decoded and holds the offset ``at``.

    A fetch from any offset of a set brings the whole set, so the error that it ends in names the
    same first offset. Steps that double find an offset beyond the set, and halving its end.
    """

    def holds(offset: int) -> bool:
        met = _met(settings, at._replace(offset=offset))
        if not isinstance(met, Stuck):
            return False
        if met.offset == _UNKNOWN:  # the reason has the size, which differs from set to set
            return met.reason == stuck.reason
        return met.offset <= at.offset

    inside, step = at.offset, 1
    while inside + step < end and holds(inside + step):
        inside, step = inside + step, 2 * step
    beyond = max(inside + 1, min(inside + step, end))
    while beyond - inside > 1:
        middle = (inside + beyond) // 2
        inside, beyond = (middle, beyond) if holds(middle) else (inside, middle)
    return inside


def _met(settings: Settings, at: Coordinates) -> tuple[Record, bool] | Stuck | None:
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
                return fetch.undecodable[where]
            if heard.reason:
                return Stuck(_UNKNOWN, heard.reason)
            if not fetch.ends:
                return None
    raise PreflightError([f"{at}: nothing came for {WITHIN_S:.0f} s; are its brokers up?"])
