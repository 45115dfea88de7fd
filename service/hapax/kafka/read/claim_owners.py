"""The owners of claims, looked up by a client of its own: the OwnerLookup port on Kafka.

The consumer that brings records cannot be used: it has positions to keep. This one joins no group,
looks up the group's offsets, and reads single records; it is built when it is first needed, which
on the ordinary path is never.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from hapax.core.errors import BatchAbortedError, StopError
from hapax.core.record_path import Batch
from hapax.kafka.errors import (
    FORBIDDEN,
    NAME_UNREADABLE,
    UNKNOWN_TOPIC,
    describe,
    offset_of,
    place_of,
)
from hapax.kafka.read.offsets_client import OffsetsClient, offset_or_none, reader_properties
from hapax.kafka.read.range_reader import RangeFetch, few_named, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from hapax.core.ports import Watch
    from hapax.core.records import Coordinates, Record, TopicPartition as Where
    from hapax.settings import Settings

    Progressed = Callable[[Iterable[Where]], dict[Where, int | None]]

ANSWER_TIMEOUT_S = 5.0
BEYOND_END_S, BEYOND_AGAIN_S = 5.0, 30.0
"""How long a log must seem to end before an owner until that is believed, and for how long then.

A leader that was frozen answers with the end that it knew until it hears of its successor: a record
that others have read seems not to be there yet, and a duplicate of it had an effect (found by the
fault campaign: 1 event of a million, 0.1 s after a broker was thawed)."""
LOOK_S, KEPT_BYTES = 2.0, 32 << 20
"""Of one look-up, on a thread that serves the group. Owners lie as any sender likes, who may name
them (hapax-replay-of): what is not reached is read by the next look-up."""
NEAR, AT_ONCE = 100, 1_000
"""Offsets without an owner that are read over, and messages that are taken at once."""
_POLL_S = 0.2
_GONE = UNKNOWN_TOPIC | {KafkaError._UNKNOWN_PARTITION}


class KafkaOwners:
    """Queries the group's offsets and reads single records. One thread only.

    Raises BatchAbortedError when no answer comes in ``ANSWER_TIMEOUT_S``, StopError when a right
    is missing. The next question is asked by a new client then: one that was built while all
    brokers came back waited for its coordinator indefinitely, and every batch with it (the fault
    campaign, "all brokers killed": 11 timeouts in a row, until the process was restarted).
    """

    in_turns = True

    def __init__(
        self, settings: Settings, *, watch: Watch, progress: Progressed | None = None
    ) -> None:
        """Connect to nothing yet. ``progress``: stable offsets, where not the group's own."""
        self._progress = progress
        self._properties = {
            **reader_properties(settings),
            "client.id": f"{settings.app}-owners",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 8192,
            "fetch.wait.max.ms": 20,
        }
        self._topics = frozenset(settings.input.topics)
        self._watch = watch
        self._queries = OffsetsClient(self._properties)
        self._ended_s: dict[Where, float] = {}

    def committed(
        self, partitions: Iterable[Where], within_s: float, *, stable: bool
    ) -> dict[Where, int | None]:
        if stable and self._progress is not None:
            with self._watch("committed"):
                return self._progress(partitions)
        try:
            with self._watch("committed"):
                answers = self._queries.group_offsets(partitions, within_s, stable=stable)
        except KafkaException as error:
            if stable:  # the other look is so short that a new connection may not suffice
                self._queries.close()
            raise _failed("committed offsets", error.args[0]) from error
        for (topic, number), answer in answers.items():
            if answer.error is not None and answer.error.code() not in UNKNOWN_TOPIC:
                raise _failed(f"{topic}/{number}", answer.error)
        return {where: offset_or_none(answer) for where, answer in answers.items()}

    def records(self, owners: Collection[Coordinates]) -> Batch:
        """Return those that can still be read, as far as ``LOOK_S`` and ``KEPT_BYTES`` allow.

        Owners that lie near each other are read in one fetch; of what lies between them nothing is
        kept. At least one is looked at. Topics that are no longer input topics hold none.
        """
        wanted: dict[Where, deque[int]] = {}
        for owner in sorted(owners):
            wanted.setdefault((owner.topic, owner.partition), deque()).append(owner.offset)
        found = Batch([], {}, {})
        try:
            with self._watch("owners"):
                self._read(self._there(wanted), found)
        except KafkaException as error:
            self._queries.close()
            raise _failed("owners", error.args[0]) from error
        except BatchAbortedError:
            self._queries.close()
            raise
        return found

    def close(self) -> None:
        self._queries.close()

    def _there(self, wanted: dict[Where, deque[int]]) -> dict[Where, deque[int]]:
        there = {}
        until_s = time.monotonic() + BEYOND_END_S
        for where, offsets in wanted.items():
            if where[0] not in self._topics:
                continue
            try:
                low, high = self._log(where, offsets[-1] + 1, until_s)
            except KafkaException as error:
                if error.args[0].code() in _GONE:
                    continue
                raise
            if left := deque(offset for offset in offsets if low <= offset < high):
                there[where] = left
        return there

    def _log(self, where: Where, end: int, until_s: float) -> tuple[int, int]:
        """Return start and end of a log; an end before ``end`` only when it is still there then."""
        while True:
            low, high = self._queries.watermarks(where, ANSWER_TIMEOUT_S)
            now_s = time.monotonic()
            if high >= end or now_s - self._ended_s.get(where, -BEYOND_AGAIN_S) < BEYOND_AGAIN_S:
                return low, high
            if now_s >= until_s:
                self._ended_s[where] = now_s
                return low, high
            # Another broker may lead by now.
            self._queries.read_committed.list_topics(where[0], timeout=ANSWER_TIMEOUT_S)
            time.sleep(_POLL_S)

    def _read(self, left: dict[Where, deque[int]], found: Batch) -> None:
        """Read each run of offsets up to a record at or beyond its end, which its log has.

        An end that is met before it, or an offset that is out of range, is the answer of a broker
        that leads no more, or records were deleted since: nothing is concluded from either.
        """
        client = self._queries.read_committed
        records: list[Record] = []
        found.records = records
        until_s, room, looked = time.monotonic() + LOOK_S, KEPT_BYTES, False
        try:
            while left:
                spans = {where: _run(offsets) for where, offsets in left.items()}
                # Nothing is paused at its end: the pause would stay for the next reading.
                fetch = RangeFetch(client, spans, refused=_failed, over=_GONE)
                while fetch.ends:
                    if fetch.silent(ANSWER_TIMEOUT_S):
                        raise BatchAbortedError(f"owners in {few_named(fetch.ends)}: no answer")
                    before = sum(map(len, left.values()))
                    for message in fetch.poll(_POLL_S, AT_ONCE):
                        where, at = place_of(message), offset_of(message)
                        if not _reached(left[where], at):
                            continue
                        record, readable = record_of(message)
                        if not readable:
                            found.unreadable[len(records)] = NAME_UNREADABLE
                        records.append(record)
                        room -= len(record.key or b"") + len(record.value or b"")
                    for where in spans.keys() - fetch.ends.keys():
                        _reached(left[where], spans[where][1] - 1)
                    looked = looked or sum(map(len, left.values())) < before
                    if looked and (room < 0 or time.monotonic() > until_s):
                        found.next.update({w: each[0] for w, each in left.items() if each})
                        return
                left = {where: offsets for where, offsets in left.items() if offsets}
        finally:
            client.unassign()


def _run(offsets: Iterable[int]) -> tuple[int, int]:
    """Return the first offset, and the end of what is read with it: no gap is above NEAR."""
    first = end = -1
    for offset in offsets:
        if first < 0:
            first = end = offset
        if offset - end > NEAR:
            break
        end = offset + 1
    return first, end


def _reached(left: deque[int], offset: int) -> bool:
    """Drop what is not above an offset that was read; return whether that one was wanted."""
    last = -1
    while left and left[0] <= offset:
        last = left.popleft()
    return last == offset


def _failed(what: str, error: KafkaError) -> BatchAbortedError | StopError:
    if error.code() in FORBIDDEN:
        return StopError(f"not allowed to look up the owners of claims ({what}): {describe(error)}")
    return BatchAbortedError(
        f"the owners of claims cannot be looked up ({what}): {describe(error)}"
    )
