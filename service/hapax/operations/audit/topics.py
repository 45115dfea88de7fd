"""The topics of one pipeline as an audit reads them: bounds, committed offsets, ranges to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.topic_rules import TopicRules
from hapax.kafka.admin.topic_limits import topic_settings
from hapax.kafka.properties import producer_properties
from hapax.operations.audit.result import Compare, OutputBounds
from hapax.operations.audit.tasks import ReadEffects, ReadInputs, cut
from hapax.operations.reading import await_decided

if TYPE_CHECKING:
    from hapax.core.records import Progress, TopicPartition
    from hapax.kafka.read.offsets_client import BlockingOffsets
    from hapax.operations.audit.steps import Report
    from hapax.settings import Settings


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to the settings.

    transform      False: business code is not called
    output_topics  further topics that the transform writes to
    since_ms       judge input records from this time on, Unix time; None: all that is there
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
        client.partitions(self._outputs(set()))  # refuses those that are not there

    def lows(self) -> Progress:
        """Return the first input offsets to read: of what the group was asked to read."""
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
        """Return the last stable offsets of the inputs."""
        return self._client.last_stable(self.places)

    def compacted(self) -> set[str]:
        """Return the input topics that are compacted."""
        told = topic_settings(producer_properties(self._settings), self._settings.input.topics)
        return {topic for topic, each in told.items() if TopicRules.of(each).compacted}

    def settled_outputs(
        self, named: set[str]
    ) -> tuple[list[OutputBounds], dict[TopicPartition, int | None]]:
        """Return where outputs are read to, and the committed offsets asked for in between."""
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
        """Return what reads these ranges of the inputs."""
        spans = [(*where, lows[where], ends[where]) for where in self.places]
        cuts = cut(spans, cores)
        return ReadInputs(self._settings, self.places, cuts, self.compare, self.known)

    def effect_task(self, lows: Progress, outputs: list[OutputBounds], cores: int) -> ReadEffects:
        """Return what reads the outputs."""
        cuts = cut([(one.topic, one.partition, one.low, one.end) for one in outputs], cores)
        starts = [lows[where] for where in self.places]
        return ReadEffects(self._settings, self.places, starts, cuts, self.compare, self._passed)

    def complete(self, lane: OutputBounds) -> bool:
        """Whether what is gone from a lane says nothing: what has waited need not be kept."""
        return lane.low == 0 or lane.topic == self._retry

    def _stable(self, lanes: list[TopicPartition]) -> Progress:
        """Wait until all that was begun by now is decided; return the last stable offsets."""
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
        """Return those that are there; whose outputs go elsewhere has become a dead letter."""
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
