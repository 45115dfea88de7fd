"""The topics of one pipeline as an audit reads them, in an order that is right while it runs.

1. ends of the inputs     read so far; the transform names the topics of the outputs
2. ends of the outputs    what is visible now ...
3. committed offsets      ... must be below these
4. ends of the outputs    once no transaction begun before 3 is open: all effects of records below
                          the committed offsets are before these
5. ends of the inputs     ids that came meanwhile may own what was dropped as a duplicate

Tasks read one stretch of a topic each and turn its records into rows. They travel to the
executors, which import them from here; business code runs there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hapax.core.call_window import CallLimits
from hapax.core.topic_rules import TopicRules
from hapax.core.transform import load_form
from hapax.engines.overlapping_calls import open_transformer, retrying
from hapax.kafka.admin.topic_limits import topic_settings
from hapax.kafka.properties import producer_properties
from hapax.kafka.read.offsets_client import reader_properties
from hapax.kafka.read.range_reader import AuditRangeReader, OffsetRange
from hapax.operations.audit.result import Compare, InputBounds, OutputBounds, Scope
from hapax.operations.audit.rows import EffectRows, InputRows, aborted_row
from hapax.operations.reading import await_decided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hapax.core.records import Progress, TopicPartition
    from hapax.kafka.read.offsets_client import BlockingOffsets
    from hapax.operations.audit.result import Audit
    from hapax.settings import Settings

    Report = Callable[[str, int, int], None]
    """Takes what is under way, how much is done, and of how much; 0 of 0: not known."""
    Row = tuple[Any, ...]

STRETCH_MIN, STRETCH_MAX = 50_000, 1_000_000
TASKS_PER_CORE = 3
EMPTY_FETCH_MS = 10
PATIENCE_S = 600.0
"""For a schema: no poll waits for an audit."""


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to the settings.

    transform      False: business code is not called
    output_topics  further topics that the transform writes to
    since_ms       judge input records from this time on, Unix time; None: all that exists
    """

    compare: Compare = Compare.VALUES
    transform: bool = True
    output_topics: tuple[str, ...] = ()
    since_ms: int | None = None
    examples_max: int = 5


class AuditTopics:
    """What an audit reads of one pipeline. ``remarks`` grow while it answers."""

    def __init__(
        self, settings: Settings, options: AuditOptions, client: BlockingOffsets, report: Report
    ) -> None:
        self._settings = settings
        self._options = options
        self._client = client
        self._report = report
        self.app = settings.app
        self.claimed = settings.dedup.enabled
        self.known = options.transform or settings.transform is None
        self.compare = options.compare
        self.remarks: list[str] = []
        self._retry = settings.retry_topic
        self._passed: Progress = {}
        self.places = client.partitions(settings.input.topics)
        client.partitions(self._outputs(set()))  # refuses those that are missing

    def lows(self) -> Progress:
        lows = self._client.log_starts(self.places)
        since_ms = self._options.since_ms
        if since_ms is None:
            found = self._client.beside(self.places, stable=False)
            spans = {where: one.span for where, one in found.items() if one.span is not None}
            return {
                where: max(low, spans[where].start) if where in spans else low
                for where, low in lows.items()
            }
        late = self._client.at_time(self.places, since_ms)
        return {where: late.get(where, end) for where, end in self.ends().items()}

    def ends(self) -> Progress:
        return self._client.last_stable(self.places)

    def compacted(self) -> set[str]:
        told = topic_settings(producer_properties(self._settings), self._settings.input.topics)
        return {topic for topic, each in told.items() if TopicRules.of(each).compacted}

    def settled_outputs(
        self, named: set[str]
    ) -> tuple[list[OutputBounds], dict[TopicPartition, int | None]]:
        client = self._client
        lanes = client.partitions(self._outputs(self._existing(named)))
        settled = client.last_stable(lanes)
        committed = client.committed(self.places)
        waiting = [] if self._retry is None else client.partitions([self._retry])
        told = client.committed(waiting)
        self._passed = {where: told.get(where) or 0 for where in waiting}
        ends, highs, lows = (
            self._stable(lanes),
            client.high_watermarks(lanes),
            client.log_starts(lanes),
        )
        bounds = [
            OutputBounds(
                topic=topic,
                partition=number,
                low=lows[(topic, number)],
                settled=settled[(topic, number)],
                end=ends[(topic, number)],
                high=highs[(topic, number)],
            )
            for topic, number in lanes
        ]
        return bounds, committed

    def input_task(self, lows: Progress, ends: Progress, cores: int) -> ReadInputs:
        spans = [(*where, lows[where], ends[where]) for where in self.places]
        cuts = cut(spans, cores)
        return ReadInputs(self._settings, self.places, cuts, self.compare, self.known)

    def effect_task(self, lows: Progress, outputs: list[OutputBounds], cores: int) -> ReadEffects:
        cuts = cut([(one.topic, one.partition, one.low, one.end) for one in outputs], cores)
        starts = [lows[where] for where in self.places]
        return ReadEffects(self._settings, self.places, starts, cuts, self.compare, self._passed)

    def complete(self, lane: OutputBounds) -> bool:
        """Whether what is gone from a lane says nothing: what has waited need not be kept."""
        return lane.low == 0 or lane.topic == self._retry

    def _stable(self, lanes: list[TopicPartition]) -> Progress:
        ends, behind = await_decided(
            self._client,
            lanes,
            self._settings.transaction.timeout_ms,
            lambda: self._report("waiting for open transactions in the output", 0, 0),
        )
        self.remarks += [
            f"{topic}/{number}: a transaction is open at {end}, and readers do not see the records"
            f" after it up to {begun}"
            for (topic, number), (end, begun) in behind.items()
        ]
        return ends

    def _existing(self, named: set[str]) -> set[str]:
        """Return those that exist; with outputs on another cluster the rest became dead letters."""
        absent = self._client.absent(named)
        self.remarks += [
            f"topic {topic}, which the transform names, does not exist" for topic in sorted(absent)
        ]
        return named - absent

    def _outputs(self, named: set[str]) -> list[str]:
        settings = self._settings
        topics = [settings.output.topic, *self._options.output_topics, *sorted(named)]
        if settings.dead_letter.topic:
            topics.append(settings.dead_letter.topic)
        if self._retry is not None:
            topics.append(self._retry)
        return list(dict.fromkeys(topics))


# -- Steps -------------------------------------------------------------------------------------


class Engine(Protocol):
    """Reads and judges rows, ``cores`` ranges at once. Raises IncompleteError: not all was read."""

    cores: int

    def read_inputs(self, task: ReadInputs, what: str) -> None:
        """Read all ranges of the task; may be called again for what came meanwhile."""

    def read_effects(self, task: ReadEffects, what: str) -> None:
        """Read all ranges of the task."""

    def named_topics(self) -> set[str]:
        """Return the topics that the transform chose itself."""

    def first_named(self, lanes: list[int]) -> dict[int, int]:
        """Return by place of input the highest of the first offsets that these lanes name."""

    def judge(self, scope: Scope) -> Audit:
        """Return the result, without remarks."""


def run(engine: Engine, topics: AuditTopics, *, examples_max: int) -> Audit:
    lows, ends = topics.lows(), topics.ends()  # 1
    engine.read_inputs(topics.input_task(lows, ends, engine.cores), "reading input")
    outputs, committed = topics.settled_outputs(engine.named_topics())  # 2 to 4
    later = topics.ends()  # 5
    if any(later[where] > ends[where] for where in topics.places):
        task = topics.input_task(ends, later, engine.cores)
        engine.read_inputs(task, "reading records that arrived meanwhile")
    engine.read_effects(topics.effect_task(lows, outputs, engine.cores), "reading outputs")
    # Effects of one input partition keep their order in an output partition. So where the oldest
    # outputs are gone, everything after the first record that is named there is still complete.
    trimmed = [lane for lane, one in enumerate(outputs) if not topics.complete(one)]
    first = engine.first_named(trimmed) if trimmed else {}
    found = engine.judge(
        Scope(
            app=topics.app,
            inputs=_bounds(topics, lows, ends, committed, first),
            outputs=outputs,
            claimed=topics.claimed,
            known=topics.known,
            compare=topics.compare,
            examples_max=examples_max,
        )
    )
    found.remarks = list(topics.remarks)
    return found


def _bounds(
    topics: AuditTopics,
    lows: Progress,
    ends: Progress,
    committed: dict[TopicPartition, int | None],
    first: dict[int, int],
) -> list[InputBounds]:
    compacted = topics.compacted()
    found = []
    for place, where in enumerate(topics.places):
        known = committed[where]
        start = max(lows[where], first.get(place, -1) + 1)
        if start > lows[where]:
            topics.remarks.append(
                f"{where[0]}/{where[1]}: judged from {start} on: older outputs were deleted"
            )
        found.append(
            InputBounds(
                topic=where[0],
                partition=where[1],
                low=lows[where],
                start=start,
                until=max(start, min(known or 0, ends[where])),
                committed=known,
                end=ends[where],
                compacted=where[0] in compacted,
            )
        )
    return found


# -- Tasks -------------------------------------------------------------------------------------


class ReadInputs(msgspec.Struct, frozen=True):
    """Reads one stretch of input. ``known``: the transform, or the identity, says what is due."""

    settings: Settings
    places: list[TopicPartition]
    stretches: list[OffsetRange]
    compare: Compare
    known: bool

    def __call__(self, number: int) -> Iterator[list[Row]]:
        """Yield a row for each record, aborted ones included, and one that counts them."""
        stretch = self.stretches[number]
        rows, place, count = self._rows(), stretch.place, 0
        reader = AuditRangeReader(_reader(self.settings), stretch)
        for records, unreadable in reader.committed():
            count += len(records)
            yield [(place, *row, None) for row in rows.rows(records, unreadable)]
        for offsets in reader.hidden():
            yield [(place, *aborted_row(place, at), None) for at in offsets]
        yield [(place, *([None] * 8), count)]

    def _rows(self) -> InputRows:
        settings = self.settings
        transformer = None
        if self.known:
            policy = msgspec.structs.replace(retrying(settings), backoff_ms=0)
            patient = msgspec.structs.replace(settings.formats.registry, wait_s=PATIENCE_S)
            limits = CallLimits(
                attempts_max=settings.retry.attempts,
                retrying=policy,
                formats=msgspec.structs.replace(settings.formats, registry=patient),
            )
            transformer = open_transformer(load_form(settings.transform), limits)
        return InputRows(
            {where: place for place, where in enumerate(self.places)},
            ids=settings.dedup.id,
            claimed=settings.dedup.enabled,
            transformer=transformer,
            output_topic=settings.output.topic,
            compare=self.compare,
        )


class ReadEffects(msgspec.Struct, frozen=True):
    """Reads one stretch of outputs or dead letters; its ``place`` is the lane.

    starts  by place of input the first offset that is read
    passed  by partition of the retry topic the offset below which nothing waits any more
    """

    settings: Settings
    places: list[TopicPartition]
    starts: list[int]
    stretches: list[OffsetRange]
    compare: Compare
    passed: Progress

    def __call__(self, number: int) -> Iterator[list[Row]]:
        """Yield a row for each effect of this pipeline, and one that counts everything."""
        stretch = self.stretches[number]
        rows = EffectRows(
            {where: place for place, where in enumerate(self.places)},
            self.starts,
            app=self.settings.app,
            compare=self.compare,
            passed=self.passed,
        )
        lane, count, foreign = stretch.place, 0, 0
        reader = AuditRangeReader(_reader(self.settings), stretch)
        for records, _unreadable in reader.committed():
            found = [row for record in records if (row := rows.row(record)) is not None]
            count += len(records)
            foreign += len(records) - len(found)
            yield [(lane, *row, None, None, None) for row in found]
        hidden = sum(len(offsets) for offsets in reader.hidden())
        yield [(lane, *([None] * 8), count, foreign, hidden)]


def _reader(settings: Settings) -> dict[str, Any]:
    # The end of a stretch is often an empty fetch: after markers, and where a topic ends.
    return reader_properties(settings) | {"fetch.wait.max.ms": EMPTY_FETCH_MS}


def cut(spans: Sequence[tuple[str, int, int, int]], cores: int) -> list[OffsetRange]:
    """Cut (topic, partition, start, end) into stretches: some for each core, none too small."""
    offsets = sum(max(0, end - start) for _topic, _partition, start, end in spans)
    size = max(STRETCH_MIN, min(STRETCH_MAX, -(-offsets // (TASKS_PER_CORE * max(1, cores)))))
    return [
        OffsetRange(place, topic, partition, at, min(at + size, end))
        for place, (topic, partition, start, end) in enumerate(spans)
        for at in range(start, end, size)
    ]
