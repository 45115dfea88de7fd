"""Composition of ``hapax offsets`` and ``hapax lag``: where a group is, what it has not read.

For lag in records:

1. committed  the group's offsets, in the topics that were named or in all that it has one in
2. logs       where these begin and end, asked after the offsets: none is beyond its log
3. records    the committed ones between both; where some offsets hold none, all of them as well

For a mirror's offsets:

1. committed  what the group has read of the input, transactions that hold an offset waited for
2. progress   how far the mirror is: what it has not written yet cannot be translated
3. decided    the transactions that wrote it have become visible to readers
4. places     the first record of each partition that comes from the committed offset or a later one
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from hapax.cluster.lag import Counted, ReaderLag, shares, stretch
from hapax.cluster.offset_moves import Halving, Translated
from hapax.cluster.partition_offsets import PartitionOffsets
from hapax.core.errors import BatchAbortedError, ConfigurationError, HapaxError, PreflightError
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.ports import Stuck  # noqa: TC001 - msgspec reads the types
from hapax.core.span import Span, SpanWords, other_span
from hapax.kafka.produce.standalone import GroupOffsets
from hapax.kafka.produce.target import target_progress
from hapax.kafka.read.group_start import positions, spans
from hapax.kafka.read.offsets_client import BlockingOffsets, offset_or_none, reader_properties
from hapax.kafka.read.range_reader import COUNTING, RangeReader, count_records
from hapax.operations.reading import MARGIN_S, Operation, await_decided, require_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.cluster.partition_offsets import LogOffsets
    from hapax.core.ports import Tell
    from hapax.core.records import Progress, TopicPartition
    from hapax.kafka.read.offsets_client import OffsetsClient
    from hapax.settings import Settings

OLDEST_WITHIN_S = 5.0
READ_MAX = 500_000
"""Offsets that one look reads, unless it is to be exact: a few seconds."""
WITHIN_S = 30.0
"""Longest wait for one query of the mirror."""


class Look(PartitionOffsets, frozen=True, kw_only=True):
    """One input partition with the age of what is unread.

    oldest_ms  timestamp of the oldest unread record, Unix time; None: none, or not known
    stuck      the set at the next offset, which cannot be decoded; None: none is known
    empty      whether the unread offsets hold no record, only markers and aborted ones
    """

    oldest_ms: int | None = None
    empty: bool = False
    stuck: Stuck | None = None

    def lag_s(self, now_ms: int) -> float | None:
        """Age of the oldest unread record; 0.0 when nothing is unread, None: not known."""
        if not self.lag or self.empty:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1000)


class Looks(Operation):
    """Queries all input partitions, as often as it is asked to."""

    def __init__(self, settings: Settings) -> None:
        require_group(settings)
        super().__init__(settings)
        self._reader = RangeReader(settings)

    def look(self) -> list[Look]:
        client = self._client
        places = client.partitions(self._settings.input.topics)
        answers = client.answers(places, stable=False)
        # After what they are compared with, so that no committed offset is beyond its log.
        logs = client.log_offsets(places)
        nexts = positions(self._settings, answers, logs)
        found = [
            Look(
                topic=where[0],
                partition=where[1],
                log=logs[where],
                committed=offset_or_none(answers[where]),
                position=nexts[where],
            )
            for where in places
        ]
        unread = {
            one.where: (max(one.position or 0, one.log.log_start), one.log.last_stable)
            for one in found
            if one.lag
        }
        self._reader.undecodable.clear()
        oldest = self._reader.firsts(unread, OLDEST_WITHIN_S)
        return [
            msgspec.structs.replace(
                one,
                oldest_ms=first.record.timestamp_ms if first is not None else None,
                empty=one.where in oldest and first is None,
                stuck=self._reader.undecodable.get(one.where),
            )
            for one in found
            for first in (oldest.get(one.where),)
        ]


def reader_lags(
    settings: Settings, group: str, topics: Sequence[str], tell: Tell, *, exact: bool = False
) -> list[ReaderLag]:
    """Raise PreflightError where brokers refuse or are silent. ``topics``: none for all."""
    settings = settings.model_copy(update={"app": group})
    with closing(BlockingOffsets(settings, COUNTING)) as client:
        places = client.partitions(topics or None)
        committed = client.committed(places, stable=False)
        if not topics:
            read = {where[0] for where, offset in committed.items() if offset is not None}
            committed = {where: at for where, at in committed.items() if where[0] in read}
        if not committed:
            raise PreflightError(
                f"group {group} has no committed offset in any topic that may be seen here: check"
                " its name, or name a topic by --topic"
            )
        logs = client.log_offsets(committed)
        return _lags(client, committed, logs, tell, exact=exact)


def _lags(
    queries: OffsetsClient,
    committed: Mapping[TopicPartition, int | None],
    logs: Mapping[TopicPartition, LogOffsets],
    tell: Tell,
    *,
    exact: bool,
) -> list[ReaderLag]:
    done = 0

    def progress(records: int) -> None:
        nonlocal done
        done += records
        tell("records read", done)

    stretches = {where: stretch(at, logs[where]) for where, at in committed.items()}
    lengths = {where: end - start for where, (start, end) in stretches.items()}
    read = lengths if exact else shares(lengths, READ_MAX)
    ends = {where: stretches[where][0] + length for where, length in read.items()}
    counted = {where: Counted(stretches[where][0]) for where in ends}
    problems = count_records(queries, "read_committed", counted, ends, progress)
    # Aborted records can only lie where no committed ones were found.
    gaps = {where: one.gap for where, one in counted.items()}
    every = {where: Counted(start) for where, (start, end) in gaps.items() if start < end}
    until = {where: gaps[where][1] for where in every}
    count_records(queries, "read_uncommitted", every, until, progress)
    found = []
    for where, one in sorted(counted.items()):
        holes = one.end - one.start - one.total
        start, end = gaps[where]
        aborted = max(0, every[where].total - (end - start - holes)) if where in every else 0
        found.append(
            ReaderLag(
                *where,
                log=logs[where],
                committed=committed[where],
                records=one.total,
                uncounted=stretches[where][1] - one.end,
                aborted=aborted,
                markers=holes - aborted,
                problem=problems.get(where, ""),
            )
        )
    return found


def translated(settings: Settings, group: str, tell: Tell) -> list[Translated]:
    """Return the places of a group's committed offsets, by partition.

    Partitions without an offset are left out. Raises ConfigurationError for a pipeline that is no
    mirror, HapaxError or PreflightError where a place is not known for certain.
    """
    topic = _mirrored(settings)
    with (
        closing(BlockingOffsets(settings.model_copy(update={"app": group}))) as source,
        closing(BlockingOffsets(settings.target)) as target,
    ):
        places = source.partitions([topic])
        there = target.partitions([settings.output.topic])
        if len(places) != len(there):
            raise ConfigurationError(
                f"{topic} has {len(places)} partitions and {settings.output.topic} has"
                f" {len(there)}: records have not kept theirs, and offsets cannot be translated"
            )
        found = source.committed(places)
        committed = {where: offset for where, offset in found.items() if offset is not None}
        if not committed:
            raise PreflightError(f"group {group} has no committed offset in {topic}")
        _require_mirrored(settings, committed)
        timeout_ms = settings.transaction.timeout_ms
        _ends, open_ = await_decided(
            target, there, timeout_ms, lambda: tell("waiting for transactions on the mirror")
        )
        if open_:
            raise PreflightError(
                [
                    f"{name}/{number}: a transaction is open since {MARGIN_S:g} s and more: hapax"
                    " transactions names it"
                    for name, number in open_
                ]
            )
        ends, starts = target.last_stable(there), target.log_starts(there)
        return _places(settings, committed, starts, ends)


def commit_translated(
    settings: Settings, group: str, found: Sequence[Translated], tell: Tell
) -> None:
    offsets = GroupOffsets(settings.target.model_copy(update={"app": group}))
    offsets.await_empty(tell)
    offsets.commit(
        {(one.target, one.partition): (one.offset, CommittedMetadata()) for one in found}
    )


def _mirrored(settings: Settings) -> str:
    problem = ""
    if not settings.elsewhere:
        problem = "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is unset: outputs are where the input is"
    elif settings.transform is not None:
        problem = (
            f"HAPAX_TRANSFORM={settings.transform}: outputs of a function need not keep partition"
            " and order of their records"
        )
    elif len(settings.input.topics) > 1:
        problem = (
            f"HAPAX_INPUT__TOPICS={','.join(settings.input.topics)}: in a mirror of several topics"
            " an offset stands for none of them"
        )
    if problem:
        raise ConfigurationError(f"{problem}; only a mirror of one topic can be translated")
    return settings.input.topics[0]


def _require_mirrored(settings: Settings, committed: Progress) -> None:
    """Raise HapaxError where the mirror has not come as far as the group."""
    behind = []
    for where, offset in committed.items():
        progress, _group = target_progress(settings.target, where, None)
        done = 0 if progress is None else progress.offset
        if done < offset:
            behind.append(f"{where[0]}/{where[1]}: {done:,} of {offset:,}")
    if behind:
        raise HapaxError(
            f"the mirror has not come as far as the group ({'; '.join(behind)}): let it catch up,"
            " then repeat"
        )


def _places(
    settings: Settings, committed: Progress, starts: Progress, ends: Progress
) -> list[Translated]:
    topic = settings.output.topic
    searches = {
        (topic, where[1]): Halving(where, offset, starts[topic, where[1]], ends[topic, where[1]])
        for where, offset in committed.items()
    }
    reader = RangeReader(settings.target)
    while due := {
        where: (at, one.end) for where, one in searches.items() if (at := one.at) is not None
    }:
        firsts = reader.firsts(due, WITHIN_S)
        if silent := due.keys() - firsts.keys():
            raise PreflightError([f"{name}/{number} cannot be read" for name, number in silent])
        for where, first in firsts.items():
            searches[where].see(None if first is None else first.record)
    return [
        Translated(
            topic=where[0],
            partition=where[1],
            committed=offset,
            target=topic,
            offset=ends[topic, where[1]] if found is None else found,
            record=found is not None,
            first=starts[topic, where[1]],
        )
        for where, offset in sorted(committed.items())
        for found in (searches[topic, where[1]].found,)
    ]


# -- What a bounded span comes to, and how far the group is in it ----------------------------------


_PATIENCE_S = 20.0
_RATE_OVER_S = 30.0
"""The rate is that of so many seconds before: it follows the present, without every pause."""


class Part(msgspec.Struct, frozen=True):
    """One partition of a backfill. ``committed`` None: the group has not begun there."""

    topic: str
    partition: int
    span: Span
    committed: int | None

    @property
    def done(self) -> int:
        return 0 if self.committed is None else self.span.done(self.committed)

    @property
    def total(self) -> int:
        """Offsets of the span: records, and what lies between them, so no fewer than records."""
        return self.span.stop - self.span.start


class Advance(msgspec.Struct, frozen=True):
    """How far all partitions are; ``left_s`` None: it is not known yet."""

    done: int
    total: int
    rate: float
    left_s: float | None

    @property
    def complete(self) -> bool:
        return self.done >= self.total


class Backfill(Operation):
    """Queries one backfill, as often as it is asked to. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        words = settings.start
        assert isinstance(words, SpanWords)  # the command sets an end
        if problems := words.problems(int(time.time() * 1000)):
            raise PreflightError(problems)
        super().__init__(settings)
        self._words = words
        self._seen: list[tuple[float, int]] = []
        self._found: dict[TopicPartition, Span] = {}

    def look(self) -> list[Part]:
        """Look up beginnings; raise PreflightError when offsets are not of this span."""
        places = self._client.partitions(self._settings.input.topics)
        committed = self._client.committed(places, stable=False)
        beside = self._client.beside(places, stable=False)
        begun = [where for where in places if committed[where] is not None]
        known = {where: beside[where].span for where in begun}
        if problem := other_span(self._settings.app, known, self._words.name):
            raise PreflightError(problem)
        fresh = [where for where in places if where not in known]
        found = self._found = self._look_up(fresh)
        return [
            Part(*where, span, committed[where])
            for where in places
            if (span := known.get(where) or found.get(where)) is not None
        ]

    def held_back(self, parts: Sequence[Part]) -> bool:
        left = {(one.topic, one.partition): one for one in parts if one.done < one.total}
        stable = self._client.last_stable(left)
        return all(one.span.start + one.done >= stable[where] for where, one in left.items())

    def _look_up(self, fresh: list[TopicPartition]) -> dict[TopicPartition, Span]:
        """Return what the words come to where the group has not begun: once, to be shown."""
        missing = [where for where in fresh if where not in self._found]
        give_up_s = time.monotonic() + _PATIENCE_S
        while missing:
            try:
                properties = reader_properties(self._settings)
                return self._found | spans(properties, missing, self._words)
            except BatchAbortedError as error:
                if time.monotonic() > give_up_s:
                    raise PreflightError(str(error)) from error
        return self._found

    def progress(self, parts: Sequence[Part]) -> Advance:
        now_s = time.monotonic()
        done, total = sum(one.done for one in parts), sum(one.total for one in parts)
        self._seen = [(at_s, n) for at_s, n in self._seen if now_s - at_s < _RATE_OVER_S]
        self._seen.append((now_s, done))
        first_s, before = self._seen[0]
        rate = (done - before) / (now_s - first_s) if now_s > first_s else 0.0
        return Advance(done, total, rate, (total - done) / rate if rate > 0 else None)
