"""What a consumer hands out, to the records of a batch. The record path: nothing else per record.

Native records are taken from a queue that hapax_fast reads, to which partitions are routed.
Rebalances, errors and logs stay with the client, whose callbacks run in its own ``poll``. The order
of calls matters: routes are set before ``poll``, ``poll`` before ``take``. Then a record that came
before its partition was routed is handed out by the client, ahead of all that comes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from hapax.core.record_path import Batch
from hapax.core.records import Progress, Record
from hapax.kafka.errors import NAME_UNREADABLE, NO_TEXT, client_headers
from hapax.kafka.native import NativeBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.partition_state import PartitionState, PartitionStates
    from hapax.kafka.native import NativePath

SLICE_S = 0.02
"""Longest wait between two polls of the client: how late a rebalance is served."""
ROUTES_S = 1.0
"""How often routes are looked at."""


class NativeIntake:
    """Takes the records of routed partitions of one client. One thread only."""

    def __init__(self, path: NativePath, clock: Clock) -> None:
        """Catch the client that this thread has just built."""
        self._intake = path.module.Intake(path.captured(), path.sources)
        self._clock = clock
        self._routed: set[Where] = set()
        self._looked_s = clock.monotonic()
        self._lost: list[Where] = []
        self._path, self._left = path, path.left
        self._closed = False

    def route(self, partitions: Iterable[Where]) -> None:
        """Deliver their records here, from before their fetching starts.

        An assignment that was on its way is reported while the client is closed: it has no effect.
        """
        if self._closed:
            return
        for where in partitions:
            self._intake.route(*where)
            self._routed.add(where)

    def leave(self, partitions: Iterable[Where]) -> None:
        self._routed.difference_update(partitions)

    def _look(self) -> None:
        """Set routes again; the client resets that of a partition which is assigned once more."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < ROUTES_S:
            return
        self._looked_s = now_s
        for where in self._routed:
            if self._intake.lost(*where):
                self._lost.append(where)
            self._intake.route(*where)

    def news(self) -> tuple[list[Where], str]:
        """Return and forget which routes were lost, and why the native path was left."""
        lost, self._lost = self._lost, []
        left = "" if self._path.left == self._left else self._path.left
        self._left = self._path.left
        return lost, left

    def arrivals(
        self, serve: Callable[[], list[Any]], count: int, wait_s: float
    ) -> tuple[list[Any], Any]:
        """Return messages of the client, or native records (None: there are none).

        ``serve`` serves the client and returns what it hands out itself: events, and records that
        came before their partition was routed. Nothing is taken here before these are through.
        """
        deadline_s = self._clock.monotonic() + wait_s
        while True:
            self._look()
            messages = serve()
            left_s = deadline_s - self._clock.monotonic()
            if messages:
                return messages, None
            wait_ms = int(max(0.0, min(left_s, SLICE_S)) * 1000)
            records = self._intake.take(count, wait_ms)
            if records is not None or left_s <= SLICE_S:
                return [], records

    def close(self) -> None:
        """Release all that would make the client wait indefinitely when it is closed."""
        self._closed = True
        self._intake.close()


class TakenMessage:
    """One native message with the methods of the client's own, for the reference."""

    def __init__(self, records: Any, fields: tuple[Any, ...]) -> None:
        self._records = records
        self._fields = fields

    def error(self) -> KafkaError | None:
        code, text = self._fields[:2]
        return KafkaError(code, text) if code else None

    def topic(self) -> str | None:
        return self._fields[2]  # type: ignore[no-any-return]

    def partition(self) -> int:
        return int(self._fields[3])

    def offset(self) -> int:
        return int(self._fields[4])

    def leader_epoch(self) -> int | None:
        epoch: int = self._fields[5]
        return None if epoch < 0 else epoch

    def key(self) -> bytes | None:
        return self._fields[6]  # type: ignore[no-any-return]

    def value(self) -> bytes | None:
        return self._fields[7]  # type: ignore[no-any-return]

    def timestamp(self) -> tuple[int, int]:
        return 0, self._fields[8]

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers; raises UnicodeDecodeError as the client does."""
        return list(self._records.headers(self._fields[9]))


def messages_of(records: Any) -> list[TakenMessage]:
    return [TakenMessage(records, fields) for fields in records.messages()]


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


def read_native(records: Any, states: PartitionStates) -> Batch | None:
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
    batch = NativeBatch(records, {}, reached) if len(records) else Batch([], {}, reached)
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
