"""Messages of the client to the records of a batch. The record path: nothing else per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.core.ports import Batch
from service.core.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.adapters.kafka_stands import Stands
    from service.core.records import TopicPartition as Where


def read(
    messages: list[Any],
    stands: Stands,
    repeated: dict[Where, int],
    on_event: Callable[[Any, Any], None],
) -> Batch:
    """Return the records of messages and the progress behind them, which the stands follow.

    repeated   how many per partition were handed out before; added to here
    on_event   takes a message that is an event, and its error
    """
    records: list[Record] = []
    batch = Batch(records, {}, {})
    where: Where = ("", -1)
    next_offset, skip, opened = 0, False, False
    for message in messages:
        error = message.error()
        if error is not None:
            on_event(message, error)
            skip = skip or stands.stuck.holds(where)
            continue
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if partition != where[1] or topic != where[0]:
            if opened:
                stands[where].next = batch.next[where] = next_offset
            where = (topic, partition)
            skip = stands.skips(where)
            next_offset = stands[where].next or 0
            opened = where in batch.first
        if offset < next_offset or skip:
            if not skip:
                repeated[where] = repeated.get(where, 0) + 1
            continue
        if not opened:
            batch.first[where] = offset
            opened = True
        next_offset = offset + 1
        try:
            headers = message.headers()
        except UnicodeDecodeError:
            batch.unreadable[len(records)] = "a header name is not UTF-8"
            headers = None
        records.append(
            Record(
                topic,
                partition,
                offset,
                message.key(),
                message.value(),
                tuple(headers) if headers else (),
                message.timestamp()[1],
            )
        )
    if opened:
        stands[where].next = batch.next[where] = next_offset
    return batch
