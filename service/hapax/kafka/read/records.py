"""A message of the client as a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.records import Record

if TYPE_CHECKING:
    from confluent_kafka import Message


def record_of(message: Message) -> tuple[Record, bool]:
    """Return the record, and whether its headers can be read; those that cannot are left out.

    For readers beside the pipeline. The worker's own path builds records in its loop.
    """
    try:
        headers: Any = message.headers()
        readable = True
    except UnicodeDecodeError:  # a name that is not UTF-8
        headers, readable = None, False
    record = Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
        message.timestamp()[1],
    )
    return record, readable
