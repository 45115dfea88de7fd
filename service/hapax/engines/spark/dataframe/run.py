"""A query from its start to its last micro-batch: Spark drives, this loop says what it did.

Its last step is to drain: the micro-batch under way is finished, or dropped and taken again at the
next start.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.core.errors import PositionLostError, PreflightError
from hapax.core.lag import GroupProgress
from hapax.core.partition_offsets import HeldBack, LogOffsets
from hapax.engines.idle_offsets import LOOK_INTERVAL_S, Bounds, OpenInput
from hapax.engines.spark.dataframe.query import Progress, ended, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.micro_batches import Marker
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Process
    from hapax.engines.spark.dataframe.checkpoint import Checkpoint, InputLookup
    from hapax.engines.spark.dataframe.query import Query
    from hapax.settings import Settings

TURN_S = 0.2
DRAIN_TURN_S = 0.05
REFRESH_S = 12 * 3600.0
"""The marker is a committed offset: brokers forget those that do not move, after
``offsets.retention.minutes`` (7 days unless set; a day in old clusters).
"""


def compare(
    settings: Settings, checkpoint: Checkpoint, lookup: InputLookup, marker: Marker | None
) -> None:
    query, topics = checkpoint.query_id(), settings.input.topics
    check_checkpoint(settings, query, marker)
    if query is None:  # it has no offsets, whatever a start before this one has kept
        logs = lookup.look(topics)
    else:
        logs = checkpoint.followed(lookup, topics, -1 if marker is None else marker.next - 1)
    check_marker(settings, checkpoint, query, marker)
    checkpoint.keep(logs)


def check_checkpoint(settings: Settings, query: str | None, marker: Marker | None) -> None:
    """Raise PositionLostError when the checkpoint's query is not the one that published last."""
    if query is None and settings.input.start == "refuse":
        raise PositionLostError(
            f"HAPAX_SPARK__CHECKPOINT={settings.spark.checkpoint} holds no query and"
            " HAPAX_INPUT__START=refuse: restore the checkpoint, or choose earliest or latest"
        )
    if marker is not None and marker.query != query:
        found = "holds no query" if query is None else f"belongs to query {query}"
        raise PositionLostError(
            f"HAPAX_SPARK__CHECKPOINT={settings.spark.checkpoint} {found}, but micro-batches up to"
            f" {marker.next - 1} of HAPAX_APP={settings.app} were published by query"
            f" {marker.query}: the checkpoint was lost or is another one. docs/dataframes.md,"
            " section Stops, describes how to continue"
        )


def check_marker(
    settings: Settings, checkpoint: Checkpoint, query: str | None, marker: Marker | None
) -> None:
    """Raise PositionLostError when there is no marker of what the checkpoint has published."""
    if marker is not None or query is None or not checkpoint.committed():
        return
    known, topic = checkpoint.logs(), settings.output.topic
    why = (
        "it expired while the query was stopped (offsets.retention.minutes of the brokers), or"
        " HAPAX_APP or HAPAX_OUTPUT__TOPIC was changed"
    )
    if known is not None and known.app != settings.app:
        why = f"it belongs to HAPAX_APP={known.app}, and HAPAX_APP={settings.app} is another one"
    elif known is not None and known.output != topic:
        why = (
            f"it was at HAPAX_OUTPUT__TOPIC={known.output}, and HAPAX_OUTPUT__TOPIC is now {topic}"
        )
    raise PositionLostError(
        f"HAPAX_SPARK__CHECKPOINT={settings.spark.checkpoint} is of micro-batches that were"
        f" published, and HAPAX_APP={settings.app} has no marker of them at {topic}: {why}."
        " Set it back; docs/dataframes.md, section Stops, describes how to continue otherwise"
    )


class QueryRun:
    """One query, watched. A bounded run starts it again until the input is read to its ends."""

    def __init__(
        self,
        process: Process,
        start: Callable[[], Query],
        settings: Settings,
        refresh: Callable[[], Marker | None],
        logs: Callable[[], Mapping[TopicPartition, LogOffsets]],
    ) -> None:
        """``refresh`` commits the marker again, and returns it; ``logs`` are those of the input.

        Raises as they do: PreflightError when brokers do not answer.
        """
        self._process = process
        self._start = start
        self._settings = settings
        self._refresh = refresh
        self._logs = logs
        self._read = self._ends = logs() if settings.stop_after.at_end else {}
        self._open = OpenInput(process, Bounds.of(settings))
        self._progress = Progress(self._started(), settings)
        self._marked_s = process.clock.monotonic()

    def _started(self) -> Query:
        query, checkpoint = self._start(), self._settings.spark.checkpoint or ""
        self._process.events.query_started(str(query.id), str(query.runId), checkpoint)
        return query

    def group_progress(self) -> GroupProgress:
        """Return how far the query has read, for the lag monitor. Any thread may ask."""
        return GroupProgress(dict(self._progress.positions))

    def run(self) -> None:
        lifecycle, events = self._process.lifecycle, self._process.events
        while not lifecycle.stopping:
            events.loop_moved()
            through = ended(self._progress.query, TURN_S)
            self._tell()
            if through and self._complete():
                events.service_draining("the input is used up")
                return
            self._keep_marker()
        events.service_draining(lifecycle.reason)
        self._drain()

    def _complete(self) -> bool:
        """Whether it was the last; start it again where more is decided, as ``OpenInput``."""
        held = {
            where: HeldBack(self._read[where].last_stable, log.high_watermark)
            for where, log in self._ends.items()
            if self._read[where].last_stable < log.high_watermark
        }
        with suppress(PreflightError):
            found = self._logs() if held else {}
            if any(found[where].last_stable > one.last_stable for where, one in held.items()):
                self._open.ends_run({})
                self._read, self._progress.query = found, self._started()
                return False
        if not held or self._open.ends_run(held):
            return True
        self._process.lifecycle.rest(LOOK_INTERVAL_S)
        return False

    def _drain(self) -> None:
        """Stop after this micro-batch if there is time; one that Spark has begun is repeated."""
        lifecycle, events, last = self._process.lifecycle, self._process.events, self._progress.last
        while not lifecycle.overdue and self._progress.last == last:
            if not self._progress.query.status["isTriggerActive"]:
                break
            if ended(self._progress.query, DRAIN_TURN_S):
                break
            self._tell()
        if lifecycle.overdue:
            events.batch_abandoned("the shutdown timeout has passed: the micro-batch is repeated")
        if stop(self._progress.query):
            self._tell()

    def _tell(self) -> None:
        for numbers in self._progress.news():
            self._marked_s = self._process.clock.monotonic()
            self._process.events.micro_batch_completed(numbers)
            self._process.events.lag_observed(numbers.lags)
            if numbers.untimed:
                self._process.events.records_without_timestamp(numbers.untimed, numbers.late)

    def _keep_marker(self) -> None:
        clock = self._process.clock
        if clock.monotonic() - self._marked_s < REFRESH_S:
            return
        if self._progress.query.status["isTriggerActive"]:
            return  # a micro-batch brings the marker with it
        self._marked_s = clock.monotonic()
        marker = self._refresh()
        self._process.events.marker_refreshed(0 if marker is None else marker.next)
