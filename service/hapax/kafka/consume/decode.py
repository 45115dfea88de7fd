"""Messages of the client to the records of a batch. The record path: nothing else per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.ports import Batch
from hapax.core.records import Progress, Record
from hapax.kafka.errors import NAME_UNREADABLE, NO_TEXT, client_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hapax.core.record_path import RecordPath
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.partition_state import PartitionState, PartitionStates


def read(
    messages: Sequence[Any],
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
            next_offset = states[where].untaken
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
            headers = client_headers(message)
        except NO_TEXT:
            batch.unreadable[len(records)] = NAME_UNREADABLE
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


def read_native(records: RecordPath | None, states: PartitionStates) -> Batch | None:
    """Return the batch of native records, and let the states follow; None: the rule does not hold.

    The rule: nothing but records and ends of partitions, none handed out before, and nothing in
    doubt about any partition. Everything else is for ``read``, message by message.
    """
    if records is None or not records.regular or states.stale or states.stuck.known:
        return None
    runs = records.runs
    reached: Progress = {}
    for topic, partition, _start, _count, first, next_offset, *_ in runs:
        where = (topic, partition)
        if first < reached.get(where, states[where].untaken):
            return None
        reached[where] = next_offset
    batch = Batch(records if len(records) else [], {}, reached)  # else only ends were met
    for topic, partition, _start, _count, first, next_offset, first_epoch, last_epoch in runs:
        where = (topic, partition)
        state = states[where]
        if where not in batch.first:
            batch.first[where] = first
            state.first_epoch = None if first_epoch < 0 else first_epoch
        state.next = next_offset
        state.learn_epoch(last_epoch, next_offset)
    for topic, partition, offset in records.ends:
        states.meet_end((topic, partition), offset)
    return batch


def _close(state: PartitionState, batch: Batch, where: Where, last: Any) -> None:
    state.next = batch.next[where] = last.offset() + 1
    state.learn_epoch(last.leader_epoch(), state.next)


def without(batch: Batch, partitions: Collection[Where]) -> Batch:
    kept = before(batch, dict.fromkeys(partitions, 0))
    kept.next = {where: at for where, at in batch.next.items() if where not in partitions}
    return kept


def before(batch: Batch, stops: Mapping[Where, int]) -> Batch:
    """Return a batch without the records at or above these offsets; progress stays as it is."""
    kept = [
        index
        for index, record in enumerate(batch.records)
        if (stop := stops.get((record.topic, record.partition))) is None or record.offset < stop
    ]
    return Batch(
        [batch.records[index] for index in kept],
        {w: first for w, first in batch.first.items() if w not in stops or first < stops[w]},
        batch.next,
        {
            place: batch.unreadable[index]
            for place, index in enumerate(kept)
            if index in batch.unreadable
        },
    )
