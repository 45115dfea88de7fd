"""Step 5, plan: claims and results to outputs, dead letters and progress. No I/O, no clock.

An output on another cluster names the clusters that its record came through, in ``hapax-path``. A
record that has been on the cluster of the outputs is not mirrored there again: two clusters that
mirror each other copy no record in circles. For a function the header says nothing: any sender may
set it, and what the function makes is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from hapax.core.headers import (
    ID,
    PATH,
    REPLAY_OF,
    SOURCE,
    UNCHECKED,
    VALUE_SCHEMA,
    Failed,
    part,
    without_hapax,
    without_retry,
)
from hapax.core.record_path import Outputs, Plan
from hapax.core.records import Message
from hapax.core.results import Cut, Failure, Later, Put, Undecided
from hapax.processing.retry_later import OFF
from hapax.processing.transform import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.core.headers import Wire
    from hapax.core.ports import Source
    from hapax.core.record_path import Batch, Results
    from hapax.core.records import Output, Progress, Record
    from hapax.core.results import Result
    from hapax.processing.retry_later import RetryTopic

APART = b","
SHORT_BYTES = 300
"""Longest id and longest coordinates that a dead letter of last resort keeps."""
ERROR_CHARS_MAX = 1000
"""Length of a dead letter's error text: enough for a cause, too short to fill a topic."""


class OtherCluster(msgspec.Struct, frozen=True):
    """Where outputs go when that is another cluster.

    source, target  Kafka's ids of both clusters
    mirrors         whether records pass unchanged, rather than through a function
    partitions      of the output topic, when a mirror keeps the partition of the same number; 0:
                    numbers differ, or it is no mirror
    """

    source: bytes
    target: bytes
    mirrors: bool = False
    partitions: int = 0

    def loops(self, record: Record) -> bool:
        return self.mirrors and self.target in _path(record)

    def stamped(self, record: Record, headers: Wire) -> Wire:
        return [*headers, (PATH, APART.join([*_path(record), self.source]))]

    def mirrored(self, record: Record, stamp: Wire) -> Wire | None:
        """Return all headers of the record, with the origin of this step; None: not mirrored."""
        if not self.partitions:
            return None
        kept = [pair for pair in record.headers if pair[0] not in {SOURCE, PATH}]
        known = {pair[0] for pair in kept}
        return kept + [pair for pair in stamp if pair[0] != ID or ID not in known]

    def place(self, record: Record) -> int:
        """Return the partition of an output that names none; -1: the partitioner chooses."""
        return record.partition if record.partition < self.partitions else -1


def _path(record: Record) -> list[bytes]:
    for name, value in reversed(record.headers):
        if name == PATH:
            return value.split(APART) if value else []
    return []


class Destinations(msgspec.Struct, frozen=True):
    """Where things go, and in whose name.

    elsewhere  on another cluster
    encoded    outputs have schemas of their own: not that which a header of the record names
    now        outputs that name no timestamp have that of writing, not that of their record
    """

    app: str
    output_topic: str
    dead_letter_topic: str | None
    retry: RetryTopic | None = None
    elsewhere: OtherCluster | None = None
    encoded: bool = False
    now: bool = False


class Planner:
    """Turns the answers of steps 2 to 4 into a Plan."""

    def __init__(self, destinations: Destinations) -> None:
        self._to = destinations

    def plan(
        self,
        records: Sequence[Record],
        ids: Sequence[bytes],
        results: list[Result | None],
        progress: Progress,
        *,
        unchecked: bool = False,
    ) -> Plan:
        """``results``: outputs, Failure, None: a duplicate. ``unchecked``: made without claims."""
        messages: list[Message] = []
        sources: list[int] = []
        plan = Plan(messages=Outputs(messages), progress=progress, sources=sources)
        if self._to.retry is not None:  # those that waited have another place now
            records, plan.apart = self._to.retry.all_restored(records), self._to.retry.name
        topic, partition, prefix = "", -1, ""
        elsewhere = self._to.elsewhere
        mark: Wire = [(UNCHECKED, b"1")] if unchecked else []
        for index, result in enumerate(results):
            record = records[index]
            if result is None or (elsewhere is not None and elsewhere.loops(record)):
                plan.duplicates += result is None
                plan.looped += result is not None
                continue
            if record.partition != partition or record.topic != topic:
                topic, partition = record.topic, record.partition
                prefix = f"{topic}/{partition}/"
            source = f"{prefix}{record.offset}".encode()
            stamp: Wire = [(ID, ids[index] or source), (SOURCE, source), *mark]
            if not isinstance(result, tuple):  # of a Struct, isinstance costs five times as much
                written = self._without_output(plan, index, record, result, stamp)
                messages += written
                sources += [index] * len(written)
                continue
            if len(result) == 1:  # the rule, so it has the short way
                messages.append(self._message(record, result[0], stamp))
                sources.append(index)
                continue
            plan.filtered += not result
            for number, output in enumerate(result, 1):
                here = [*stamp, part(number, len(result))]
                messages.append(self._message(record, output, here))
                sources.append(index)
        return plan

    def plan_batch(
        self,
        batch: Batch,
        ids: Sequence[bytes],
        results: Results,
        progress: Progress,
        *,
        unchecked: bool = False,
    ) -> Plan:
        """Return what ``plan`` does, made by the batch where it has a shorter way."""

        def reference(records: Sequence[Record], made: Results) -> Plan:
            return self.plan(records, ids, made, progress, unchecked=unchecked)

        return batch.plan(reference, self._to.output_topic, results, progress)

    def _message(self, record: Record, output: Output, stamp: Wire) -> Message:
        headers = without_hapax(record.headers) if record.headers else []
        if self._to.encoded and headers and output.value is not record.value:
            headers = [pair for pair in headers if pair[0] != VALUE_SCHEMA]
        if output.headers:
            headers += without_hapax(tuple(output.headers))
        headers += stamp
        elsewhere = self._to.elsewhere
        if elsewhere is not None:
            headers = elsewhere.stamped(record, elsewhere.mirrored(record, stamp) or headers)
        key = output.key
        timestamp_ms = output.timestamp_ms
        if timestamp_ms is None and not self._to.now:
            timestamp_ms = record.timestamp_ms
        partition = output.partition
        if partition is None:
            partition = -1 if elsewhere is None else elsewhere.place(record)
        return Message(
            output.topic or self._to.output_topic,
            output.value,
            record.key if key is UNSET else key,
            partition,
            timestamp_ms,
            headers,
        )

    def _without_output(
        self,
        plan: Plan,
        index: int,
        record: Record,
        result: Failure | Later | Put | Undecided,
        stamp: Wire,
    ) -> list[Message]:
        if isinstance(result, Put):
            plan.retried += result.called
            plan.moved += not result.called
            # It has all headers, for the function sees them again: also those of a Hapax upstream.
            # Its time in the retry topic is that of writing: retention.
            assert self._to.retry is not None
            headers = [*without_retry(record.headers), *result.retried.encode()]
            name = self._to.retry.name
            return [Message(name, record.value, record.key, result.level, None, headers)]
        if isinstance(result, Undecided):  # of a schema none comes so far (transform.decided)
            raise error_of(result)
        if isinstance(result, Later):  # that nothing has set up
            result = Failure(result.reason, f"{result.text}; {OFF}", result.attempts)
        plan.failures[index] = result
        return [self._dead_letter(record, result, stamp)]

    def _dead_letter(self, record: Record, failure: Failure, stamp: Wire) -> Message:
        failed = Failed(
            error=f"{failure.reason}: {failure.text}"[:ERROR_CHARS_MAX],
            attempts=failure.attempts,
            app=self._to.app,
        )
        if failure.cut is not Cut.NOTHING:
            record, stamp, left = _cut(record, failure.cut, stamp)
            failed = replace(failed, truncated=left)
        headers = [
            *without_hapax(record.headers),
            *stamp,
            # A replay that fails again still replays its original, whose claim it inherits.
            *(pair for pair in record.headers if pair[0] == REPLAY_OF),
            *failed.encode(),
        ]
        return Message(
            self._to.dead_letter_topic or "",
            record.value,
            record.key,
            -1,
            # That of the record may be what the topic refuses.
            None if failure.cut is Cut.ALL else record.timestamp_ms,
            headers,
        )


def _cut(record: Record, cut: Cut, stamp: Wire) -> tuple[Record, Wire, str]:
    """Return what a dead letter of last resort keeps of its record and stamp, and what is left out.

    That text names each part left out with its size in bytes, the timestamp with itself. The
    coordinates say where the original is.
    """
    left = [("value", len(record.value or b""))]
    record = replace(record, value=None)
    if cut is Cut.ALL:
        size = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
        left += [
            ("key", len(record.key or b"")),
            ("headers", size),
            ("timestamp", record.timestamp_ms),
        ]
        kept = [pair for pair in record.headers if _short(pair) and pair[0] == REPLAY_OF]
        left += [("id", len(value or b"")) for name, value in stamp if not _short((name, value))]
        stamp = [pair for pair in stamp if _short(pair)]
        # A key of its own: compacted topics refuse a record without one, and keep the last of each.
        record = replace(record, key=str(record.coordinates).encode(), headers=tuple(kept))
    return record, stamp, ",".join(f"{name}={size}" for name, size in left)


def _short(pair: tuple[str, bytes | None]) -> bool:
    return len(pair[1] or b"") <= SHORT_BYTES


class BatchState:
    """What each step of a batch does to state: nothing, where transforms keep none."""

    calls_again = False
    """Whether each record of an aborted batch is called again: what it saw may be undone."""

    def begin(self, batch: Batch, processed: Callable[[], Progress]) -> None:
        """Forget what a batch that failed has changed; raise StateUnreadError.

        ``processed``: returns by partition up to where records have had their effect.
        """

    def plan(self, plan: Plan, batch: Batch, results: Sequence[Result | None]) -> None:
        """Add the changes of these results to what the transaction will hold."""

    def require_whole(self, progress: Progress, source: Source) -> None:
        """Raise BatchAbortedError where another member may have what shares the state."""

    def put_back(self) -> None:
        """Take note that the transaction is not committed, for certain."""

    def settle(self, progress: Progress) -> None:
        """Take note that the planned transaction is committed."""

    def move(self, progress: Progress) -> None:
        """Take note that progress alone is committed."""
