"""What moved offsets pass: the record, its dead letter, and its claim."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import HapaxError, PreflightError
from hapax.core.headers import TRUNCATED
from hapax.core.identity import Identity
from hapax.core.offset_moves import Skip, Unreadable
from hapax.core.plan import Destinations, Planner
from hapax.core.records import Coordinates, Record
from hapax.core.transform import Cut, Failure
from hapax.operations.reading import read_ranges
from hapax.wiring.claims import claim_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.core.offset_moves import Move
    from hapax.core.ports import Message
    from hapax.core.records import TopicPartition
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.operations.reading import Tell
    from hapax.settings import Settings


def letter(settings: Settings, skip: Skip, topic: str, cut: Cut) -> Message:
    """Return the dead letter, as a worker would write it."""
    record = skip.record
    if record is None:
        record = Record(*skip.at, None, None)
    event_id = Identity(settings.dedup.id).identify([record]).ids[0]
    failure = Failure(*skip.error, 1, cut)
    planner = Planner(Destinations(settings.app, settings.output.topic, topic))
    (message,) = planner.plan([record], [event_id], [failure], {}).messages
    if skip.record is not None:
        return message
    # What was left out has no size that anyone could read.
    told = (TRUNCATED, f"undecodable={skip.at.offset}-{skip.next - 1}".encode())
    headers = [pair for pair in message.headers if pair[0] != TRUNCATED]
    return msgspec.structs.replace(message, headers=[*headers, told])


def skip_of(at: Coordinates, found: tuple[Record, bool] | Unreadable | None) -> Skip:
    """Return what is passed at an offset, from what a reader meets first at the group's place.

    Raises HapaxError when that is not what stands there.
    """
    if found is None:
        raise HapaxError(f"{at}: committed readers see no record there, nor any after it")
    if isinstance(found, tuple):
        record, _ = found
        if record.offset < at.offset:
            raise HapaxError(
                f"{at}: offset {record.offset} comes first and is not processed yet; to pass"
                f" both, hapax offsets set {at.topic}/{at.partition}/{at.offset + 1}"
            )
        if record.offset > at.offset:
            raise HapaxError(
                f"{at}: committed readers see no record there (a marker of a transaction, an "
                f"aborted"
                f" or a compacted record); the next one is {record.offset}"
            )
        return Skip(at=at, next=at.offset + 1, record=record)
    if at.offset > found.last:
        raise HapaxError(
            f"{at}: offsets {found.first} to {found.last} come first and cannot be decoded: skip"
            f" {at.topic}/{at.partition}/{found.first}"
        )
    first = at._replace(offset=found.first)
    return Skip(at=first, next=found.last + 1, record=None, reason=found.reason)


def forget_passed(settings: Settings, moves: Iterable[Move], tell: Tell) -> int:
    """Forget the claims of records that these moves pass; return how many."""
    store = claim_store(settings)
    if store is None:
        return 0
    spans = {
        move.placed.where: (move.offset - move.skipped, move.offset)
        for move in moves
        if move.skipped
    }
    identity, forgotten = Identity(settings.dedup.id), 0
    with closing(store):
        for chunk in _passed(settings, spans, tell):
            records = [seen.record for seen in chunk]
            claims = identity.identify(records).claims
            forgotten += store.release(
                [
                    (claim, record.coordinates)
                    for claim, record in zip(claims, records, strict=True)
                    if claim
                ]
            )
    return forgotten


def _passed(
    settings: Settings, spans: dict[TopicPartition, tuple[int, int]], tell: Tell
) -> Iterator[list[ReadRecord]]:
    try:
        yield from read_ranges(settings, spans, tell, "reading records to forget their claims")
    except PreflightError as error:
        raise HapaxError(
            f"the records that are passed cannot be read to forget their claims ({error});"
            " nothing was moved. --keep-claims moves without it"
        ) from error
