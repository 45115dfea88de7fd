"""Messages of the client to the records of a batch. The record path: nothing else per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.ports import Batch
from hapax.core.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.partition_state import PartitionState, PartitionStates


def read(
    messages: list[Any],
    states: PartitionStates,
    repeated: dict[Where, int],
    on_event: Callable[[Any, Any], None],
) -> Batch:
    """Return the records of messages and the progress after them; the states follow.

    repeated   how many per partition were handed out before; added to here
    on_event   takes a message that is an event, and its error
    """
    records: list[Record] = []
    batch = Batch(records, {}, {})
    where: Where = ("", -1)
    next_offset, skip, opened = 0, False, False
    last: Any = None
    for message in messages:
        error = message.error()
        if error is not None:
            on_event(message, error)
            skip = skip or states.stuck.holds(where)
            continue
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if partition != where[1] or topic != where[0]:
            if opened:
                _close(states[where], batch, where, last)
            where = (topic, partition)
            skip = states.skips(where)
            next_offset = states[where].next or 0
            opened = where in batch.first
        if offset < next_offset or skip:
            if not skip:
                repeated[where] = repeated.get(where, 0) + 1
            continue
        if not opened:
            batch.first[where] = offset
            opened = True
            states[where].first_epoch = message.leader_epoch()
        next_offset, last = offset + 1, message
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
        _close(states[where], batch, where, last)
    return batch


def _close(state: PartitionState, batch: Batch, where: Where, last: Any) -> None:
    """Note where reading of a partition goes on behind its last record."""
    state.next = batch.next[where] = last.offset() + 1
    state.learn_epoch(last.leader_epoch(), state.next)


def without(batch: Batch, partitions: Collection[Where]) -> Batch:
    """Return a batch without what it has of these partitions."""
    kept = [
        index
        for index, record in enumerate(batch.records)
        if (record.topic, record.partition) not in partitions
    ]
    return Batch(
        [batch.records[index] for index in kept],
        {where: first for where, first in batch.first.items() if where not in partitions},
        {where: next_ for where, next_ in batch.next.items() if where not in partitions},
        {
            place: batch.unreadable[index]
            for place, index in enumerate(kept)
            if index in batch.unreadable
        },
    )
