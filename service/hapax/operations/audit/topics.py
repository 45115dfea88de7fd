"""``hapax audit``: topics of one pipeline, read in an order that is right while it runs.

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

import time
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.cluster.topic_rules import TopicRules
from hapax.core.errors import ConfigurationError
from hapax.engines.overlapping_calls import open_transformer
from hapax.kafka.admin.topics import topic_settings
from hapax.kafka.properties import producer_properties
from hapax.kafka.read.offsets_client import BlockingOffsets, reader_properties
from hapax.kafka.read.range_reader import AuditRangeReader, OffsetRange
from hapax.operations.audit.judgement import LocalAudit, first_named, judge, named_topics
from hapax.operations.audit.result import Compare, InputBounds, OutputBounds, Scope
from hapax.operations.audit.rows import EffectRows, InputRows, aborted_row
from hapax.operations.audit.state import audit_limits, judge_state
from hapax.operations.reading import await_decided, require_group
from hapax.processing.transform import load_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from hapax.core.ports import Tell
    from hapax.core.records import Progress, TopicPartition
    from hapax.operations.audit.judgement import Engine, Row
    from hapax.operations.audit.result import Audit, EngineName
    from hapax.settings import Settings

STRETCH_MIN, STRETCH_MAX = 50_000, 1_000_000
TASKS_PER_CORE = 3
EMPTY_FETCH_MS = 10


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to the settings.

    transform      False: business code is not called
    state          judge what a transform keeps, by calling it again in order
    output_topics  further topics that the transform writes to
    since_ms       judge input records from this time on, Unix time; None: all that exists
    """

    compare: Compare = Compare.VALUES
    transform: bool = True
    state: bool = False
    output_topics: tuple[str, ...] = ()
    since_ms: int | None = None
    examples_max: int = 5


def audit(
    settings: Settings, options: AuditOptions, report: Tell, engine: EngineName = "local"
) -> Audit:
    """Raise ConfigurationError, PreflightError, or HapaxError when not all could be read."""
    began_s = time.monotonic()
    require_group(settings)
    if options.state != (options.transform and load_form(settings.transform).stateful):
        why = "keeps no state, or --no-transform is given: leave --state out"
        if not options.state:
            why = (
                "keeps state, which calls out of order would not find: --state judges it and all"
                " but the contents of outputs, --no-transform these alone"
            )
        named = settings.transform or " (none is set)"
        raise ConfigurationError(f"HAPAX_TRANSFORM={named} {why}")
    options = msgspec.structs.replace(options, transform=options.transform and not options.state)
    if engine == "spark" and find_spec("pyspark") is None:
        problem = "--engine spark needs PySpark. Run: pip install 'hapax-kafka[spark]'"
        raise ConfigurationError(problem)
    with closing(BlockingOffsets(settings)) as client:
        topics = AuditTopics(settings, options, client, report)
        opened: AbstractContextManager[Engine] = LocalAudit.opened(report)
        if engine == "spark":
            from hapax.operations.audit import spark

            opened = spark.opened(settings, report)
        with opened as reader:
            found = topics.judged(reader)
    if options.state:
        judge_state(settings, found, report, options.examples_max)
    found.duration_s = round(time.monotonic() - began_s, 1)
    return found


class AuditTopics:
    """What an audit reads of one pipeline; call ``judged`` once."""

    def __init__(
        self, settings: Settings, options: AuditOptions, client: BlockingOffsets, report: Tell
    ) -> None:
        self._settings = settings
        self._options = options
        self._client = client
        self._report = report
        self._remarks: list[str] = []
        self._places = client.partitions(settings.input.topics)
        client.partitions(self._outputs(set()))  # refuses those that are missing

    def judged(self, engine: Engine) -> Audit:
        client, places = self._client, self._places
        lows, ends = self._lows(), client.last_stable(places)  # 1
        engine.read("inputs", self._input_task(lows, ends, engine.cores), "reading input")
        named = named_topics(engine)
        # With outputs on another cluster what goes to a missing topic became dead letters.
        absent = client.absent(named)
        self._remarks += [
            f"topic {topic}, which the transform names, does not exist" for topic in sorted(absent)
        ]
        lanes = client.partitions(self._outputs(named - absent))
        settled = client.last_stable(lanes)  # 2
        committed, passed = client.committed(places), self._passed()  # 3
        outputs = self._output_bounds(lanes, settled)  # 4
        later = client.last_stable(places)  # 5
        if any(later[where] > ends[where] for where in places):
            more = self._input_task(ends, later, engine.cores)
            engine.read("inputs", more, "reading records that arrived meanwhile")
        starts = [lows[where] for where in places]
        cuts = cut([(one.topic, one.partition, one.low, one.end) for one in outputs], engine.cores)
        compare = self._options.compare
        task = ReadEffects(self._settings, places, starts, cuts, compare, passed)
        engine.read("effects", task, "reading outputs")
        scope = Scope(
            app=self._settings.app,
            inputs=self._input_bounds(lows, ends, committed, self._first(engine, outputs)),
            outputs=outputs,
            claimed=self._settings.dedup.enabled,
            known=self._known,
            compare=compare,
            examples_max=self._options.examples_max,
        )
        found = judge(engine, scope)
        found.remarks = self._remarks
        return found

    @property
    def _known(self) -> bool:
        return self._options.transform or self._settings.transform is None

    def _lows(self) -> Progress:
        lows = self._client.log_starts(self._places)
        since_ms = self._options.since_ms
        if since_ms is None:
            found = self._client.beside(self._places, stable=False)
            spans = {where: one.span for where, one in found.items() if one.span is not None}
            return lows | {where: max(lows[where], one.start) for where, one in spans.items()}
        ends = self._client.last_stable(self._places)
        return ends | self._client.at_time(self._places, since_ms)

    def _input_task(self, lows: Progress, ends: Progress, cores: int) -> ReadInputs:
        cuts = cut([(*where, lows[where], ends[where]) for where in self._places], cores)
        return ReadInputs(self._settings, self._places, cuts, self._options.compare, self._known)

    def _passed(self) -> Progress:
        retry = self._settings.retry_topic
        waiting = [] if retry is None else self._client.partitions([retry])
        told = self._client.committed(waiting)
        return {where: told.get(where) or 0 for where in waiting}

    def _first(self, engine: Engine, lanes: list[OutputBounds]) -> dict[int, int]:
        """Return by place of input the last record of which outputs may be gone.

        Effects of one input partition keep their order in an output partition. So where the oldest
        outputs are gone, everything after the first record that is named there is still complete.
        What has waited for a later try need not be kept.
        """
        retry = self._settings.retry_topic
        trimmed = [lane for lane, one in enumerate(lanes) if one.low and one.topic != retry]
        return first_named(engine, trimmed) if trimmed else {}

    def _input_bounds(
        self,
        lows: Progress,
        ends: Progress,
        committed: Mapping[TopicPartition, int | None],
        first: Mapping[int, int],
    ) -> list[InputBounds]:
        topics = self._settings.input.topics
        told = topic_settings(producer_properties(self._settings), topics)
        begins = self._client.log_starts(self._places)
        gone = [f"{topic}/{number}" for (topic, number), begin in begins.items() if begin]
        if gone and self._options.since_ms is None:
            more = f" and {len(gone) - 1} others" if len(gone) > 1 else ""
            self._remarks.append(f"the first records of {gone[0]}{more} were deleted: not judged")
        found = []
        for place, where in enumerate(self._places):
            known, low = committed[where], lows[where]
            start = max(low, first.get(place, -1) + 1)
            if known is not None and known < begins[where]:
                self._remarks.append(
                    f"{where[0]}/{where[1]}: records {known} to {begins[where] - 1} were deleted"
                    " before the group read them"
                )
            if start > low:
                self._remarks.append(
                    f"{where[0]}/{where[1]}: judged from {start} on: older outputs were deleted"
                )
            found.append(
                InputBounds(
                    topic=where[0],
                    partition=where[1],
                    low=low,
                    start=start,
                    until=max(start, min(known or 0, ends[where])),
                    committed=known,
                    end=ends[where],
                    compacted=TopicRules.of(told.get(where[0], {})).compacted,
                )
            )
        return found

    def _output_bounds(self, lanes: list[TopicPartition], settled: Progress) -> list[OutputBounds]:
        waiting = partial(self._report, "waiting for open transactions in the output")
        timeout_ms = self._settings.transaction.timeout_ms
        ends, behind = await_decided(self._client, lanes, timeout_ms, waiting)
        self._remarks += [
            f"{topic}/{number}: a transaction is open at {end}, and readers do not see the records"
            f" after it up to {begun}"
            for (topic, number), (end, begun) in behind.items()
        ]
        highs, lows = self._client.high_watermarks(lanes), self._client.log_starts(lanes)
        return [
            OutputBounds(
                topic=where[0],
                partition=where[1],
                low=lows[where],
                settled=settled[where],
                end=ends[where],
                high=highs[where],
            )
            for where in lanes
        ]

    def _outputs(self, named: set[str]) -> list[str]:
        settings = self._settings
        more = (settings.dead_letter.topic, settings.retry_topic)
        topics = [settings.output.topic, *self._options.output_topics, *sorted(named), *more]
        return list(dict.fromkeys(topic for topic in topics if topic))


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
        for found in reader.committed():
            count += len(found)
            yield [(place, *row, None) for row in rows.rows(found)]
        for offsets in reader.hidden():
            yield [(place, *aborted_row(place, at), None) for at in offsets]
        yield [(place, *([None] * 7), count)]

    def _rows(self) -> InputRows:
        settings = self.settings
        transformer = None
        if self.known:
            transformer = open_transformer(load_form(settings.transform), audit_limits(settings))
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
        for records in reader.committed():
            found = [row for one in records if (row := rows.row(one.record)) is not None]
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
