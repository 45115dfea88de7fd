"""The tasks of an audit: each reads one stretch of a topic and turns its records into rows.

They travel to the executors, which import them from here; business code runs there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.calls import CallLimits
from hapax.core.forms import load_form
from hapax.engines.gathered_calls import open_transformer, retrying
from hapax.kafka.read.offsets_client import reader_properties
from hapax.kafka.read.range_reader import AuditRangeReader, OffsetRange
from hapax.operations.audit.rows import EffectRows, InputRows, aborted_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.records import Progress, TopicPartition
    from hapax.operations.audit.result import Compare
    from hapax.settings import Settings

    Row = tuple[Any, ...]

STRETCH_MIN, STRETCH_MAX = 50_000, 1_000_000
TASKS_PER_CORE = 3
EMPTY_FETCH_MS = 10
PATIENCE_S = 600.0
"""For a schema: no poll waits behind an audit."""


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
    # The end of a stretch is often an empty fetch: behind markers, and where a topic ends.
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
