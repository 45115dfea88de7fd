"""A DataFrame pipeline as a streaming query: load, check, start, watch, stop, and why it died."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as f

from hapax.cluster.lag import GroupProgress
from hapax.cluster.micro_batches import Numbers
from hapax.cluster.partition_offsets import HeldBack, LogOffsets
from hapax.core import errors
from hapax.core.errors import ConfigurationError, PositionLostError, PreflightError, StopError
from hapax.engines.idle_offsets import LOOK_INTERVAL_S, Bounds, OpenInput
from hapax.engines.spark.dataframe.checkpoint import java_properties, source_options
from hapax.engines.spark.dataframe.rows import check_columns
from hapax.engines.spark.dataframe.sink import SinkOptions
from hapax.engines.spark.dataframe.staging import Place, Spool, StagedReport
from hapax.engines.spark.jvm import cause, finish
from hapax.processing.transform import imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql.streaming.query import StreamingQuery

    from hapax.cluster.micro_batches import Marker
    from hapax.core.records import TopicPartition
    from hapax.engines.lifecycle import Process
    from hapax.engines.spark.dataframe.checkpoint import Checkpoint, InputLookup
    from hapax.settings import Settings

    Query = StreamingQuery
    Pipeline = Callable[[DataFrame], DataFrame]

INPUT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
SEVERAL_TOPICS = "several"
_INPUT, _UNTIMED = "hapax_input", "untimed"
"""What is observed of the input: records that have no timestamp, which Spark reads as 1969."""
_SETTING = "HAPAX_SPARK__DATAFRAME"
_OURS = re.compile(r"hapax\.[\w.]+\.(\w+Error): ([^\n]+)")
_LOST = {
    "records that the checkpoint points to are no longer in the log": (
        "KAFKA_DATA_LOSS",
        "OffsetOutOfRangeException",
        "failOnDataLoss",
    ),
    "a file of the checkpoint is cut": ("Incomplete log file", "Failed to read log file"),
}
"""What a query cannot continue after, by what Spark says of it."""
_ADVICE = re.compile(r" ?If you don't want [^.]*failOnDataLoss[^.]*\.")
"""Of an option that is not the user's."""
_CONTINUE = "docs/dataframes.md, section Stops, describes how to continue"
_PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets")
_REASON_CHARS_MAX = 600
_EARLY = (
    "Spark has not started when the module is imported: build columns inside the function, and give"
    " a UDF its type as an object, udf(StringType()), not as text"
)
_OWN = "leave that out; the DataFrame that the function gets has the session, records.sparkSession"
_OUTPUT_MODE = "STREAMING_OUTPUT_MODE"
FINAL_ROWS = (
    ". A topic takes rows that are final: give what is aggregated a watermark (withWatermark), and"
    " each key and window is written once; output mode update is none that Spark offers to a sink"
    " in Python"
)

STOP_TIMEOUT = "5s"
"""How long Spark may take to drop a micro-batch; the process leaves in any case."""

DEATHS = (PySparkException, Py4JError, ConnectionError)
"""What a query dies of, and what is seen when the JVM is gone."""


def load_pipeline(name: str) -> Pipeline:
    """Import ``package.module:function``; raise ConfigurationError saying what is wrong."""
    setting, (module_name, _, attribute) = f"{_SETTING}={name}", name.partition(":")
    alone = SparkSession.getActiveSession() is None
    try:
        module = imported(setting, module_name)
    except ConfigurationError as error:
        if isinstance(error.__cause__, PySparkException | AssertionError):
            raise ConfigurationError([*error.problems, _EARLY]) from error
        raise
    if alone and SparkSession.getActiveSession() is not None:
        problem = f"{setting} starts Spark while it is imported: {_OWN}"
        raise ConfigurationError([problem])
    function: Pipeline | None = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigurationError([f"{setting}: {module_name} has no function {attribute}"])
    return function


def prepare(session: SparkSession, settings: Settings) -> None:
    conf = session.conf
    # Options of the source hold secrets and would show in plans.
    conf.set("spark.sql.redaction.options.regex", "(?i)jaas|keystore|password|secret|token|url")
    conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
    for name, value in java_properties(settings.kafka.security).items():
        jvm: Any = session.sparkContext._jvm
        jvm.java.lang.System.setProperty(name, value)


def read_input(session: SparkSession, settings: Settings) -> DataFrame:
    reader = session.readStream.format("kafka").options(**source_options(settings))
    untimed = f.count_if(f.unix_millis("timestamp") == f.lit(-1))
    return reader.load().select(*INPUT_COLUMNS).observe(_INPUT, untimed.alias(_UNTIMED))


def apply(pipeline: Pipeline, records: DataFrame, name: str) -> DataFrame:
    """Return what the pipeline makes of the input; raise ConfigurationError for what cannot be."""
    session = records.sparkSession
    setting = f"{_SETTING}={name}"
    try:
        result: object = pipeline(records)
    except BaseException as error:
        text = f"{setting} raised {type(error).__name__}: {_line(error)}"
        raise ConfigurationError([text]) from error
    if session.streams.active:
        for query in session.streams.active:
            query.stop()
        raise ConfigurationError(
            [f"{setting} started a query of its own: return the DataFrame, it is written here"]
        )
    if not isinstance(result, DataFrame):
        raise ConfigurationError(
            [f"{setting} returned {type(result).__name__}: return a streaming DataFrame"]
        )
    if not result.isStreaming:
        raise ConfigurationError(
            [f"{setting} returned a batch DataFrame: build it from the one that it is given"]
        )
    check_columns(result.schema)
    return result


def start(result: DataFrame, settings: Settings) -> Query:
    """Start the query into the sink; raise ConfigurationError for what Spark refuses."""
    spark = settings.spark
    writer = (
        result.writeStream.format("hapax")
        .queryName(settings.app)
        .options(**sink_options(settings))
        .outputMode("append")
    )
    if settings.stop_after.at_end:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{spark.trigger_interval_ms} milliseconds")
    try:
        return writer.start()
    except PySparkException as error:
        text = f"{_SETTING}={spark.dataframe}: Spark refuses the query: {_line(error)}"
        if _OUTPUT_MODE in text:
            text += FINAL_ROWS
        raise ConfigurationError([text]) from error


def ended(query: Query, wait_s: float) -> bool:
    return bool(query.awaitTermination(wait_s))  # type: ignore[arg-type] # it takes parts, too


def stop(query: Query) -> bool:
    """Drop the micro-batch under way; return false when Spark does not do so in time."""
    try:
        query.stop()
    except DEATHS:
        return False
    return True


def close(session: SparkSession) -> None:
    with suppress(*DEATHS):  # the JVM is gone, and everything with it
        for query in session.streams.active:
            query.stop()
        session.stop()
    finish(getattr(session.sparkContext._gateway, "proc", None))


def sink_options(settings: Settings) -> dict[str, str]:
    """Return the options of the sink that the environment does not say already."""
    return {
        "checkpointLocation": settings.spark.checkpoint or "",
        "app": settings.app,
        "topic": settings.output.topic,
        "kafka.bootstrap.servers": settings.kafka.bootstrap_servers,
        "report": "true",
    }


class Progress:
    """Reads what a query has done since it was last asked."""

    def __init__(self, query: Query, settings: Settings) -> None:
        self.query = query
        options = SinkOptions.parse(sink_options(settings))
        self._spool = Spool(Place(options.spool), options.inline_bytes_max)
        self.last = -1
        """The number of the last micro-batch that is through; -1 before the first."""
        self._seen = ""
        self.positions: dict[TopicPartition, int] = {}
        """The next offset to read of each partition, as Spark last reported; also while idle."""

    def news(self) -> Iterator[Numbers]:
        newest = self.query.lastProgress
        if newest is None or newest.timestamp == self._seen:
            return
        self._seen = newest.timestamp
        self.positions = _positions(json.loads(newest.json)) or self.positions
        for one in self.query.recentProgress:
            # Spark also reports triggers that found nothing; only a micro-batch has tasks.
            if one.batchId > self.last and "addBatch" in one.durationMs:
                self.last = one.batchId
                yield numbers(json.loads(one.json), self._spool.reported(one.batchId))


def numbers(progress: dict[str, Any], report: StagedReport | None) -> Numbers:
    """Join both reports: the sink's has the last micro-batch only, others have no outputs."""
    states = progress.get("stateOperators", [])
    inputs: dict[str, int] = {}
    lags: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        ends, latest = source.get("endOffset"), source.get("latestOffset")
        ends = ends if isinstance(ends, dict) else {}
        topic = next(iter(ends)) if len(ends) == 1 else SEVERAL_TOPICS
        # A topic that is read twice by one pipeline is counted twice, as it is read.
        inputs[topic] = inputs.get(topic, 0) + source["numInputRows"]
        if isinstance(latest, dict):
            lags |= _lags(ends, latest)
    return Numbers(
        number=progress["batchId"],
        inputs=inputs,
        outputs={} if report is None else report.outputs,
        repeated=report is not None and report.repeated,
        attempts=1 if report is None else report.attempts,
        phases_s=_phases_s(progress["durationMs"], report),
        lags=lags,
        untimed=progress.get("observedMetrics", {}).get(_INPUT, {}).get(_UNTIMED, 0),
        late=sum(state.get("numRowsDroppedByWatermark", 0) for state in states),
        state_rows=sum(state.get("numRowsTotal", 0) for state in states),
        state_bytes=sum(state.get("memoryUsedBytes", 0) for state in states),
        watermark=progress.get("eventTime", {}).get("watermark", ""),
    )


def _positions(progress: dict[str, Any]) -> dict[TopicPartition, int]:
    return {
        (topic, int(number)): end
        for source in progress["sources"]
        if isinstance(ends := source.get("endOffset"), dict)
        for topic, partitions in ends.items()
        if isinstance(partitions, dict)
        for number, end in partitions.items()
    }


def died(error: Exception) -> StopError:
    """Return why a query died, as the error that the process exits with."""
    if not isinstance(error, PySparkException):
        return StopError(f"Spark's JVM is gone: {type(error).__name__}: {_line(error)}")
    text = str(error)
    if (ours := _OURS.search(text)) is not None:
        kind = getattr(errors, ours[1], StopError)
        if kind is ConfigurationError or kind is errors.PreflightError:
            return ConfigurationError([ours[2]])
        if isinstance(kind, type) and issubclass(kind, StopError):
            return kind(ours[2])
        return StopError(f"the query died: {ours[2]}")
    for what, signs in _LOST.items():
        if any(sign in text for sign in signs):
            return PositionLostError(f"{what}: {_ADVICE.sub('', _line(error))}. {_CONTINUE}")
    told = cause(error) if "Traceback (most recent call last)" in text else _line(error)
    if "UnknownTopicOrPartitionException" in text:  # its text names none
        told = "a topic that the query reads, or a partition of it, does not exist (any more)"
    return StopError(f"the query died: {told[:_REASON_CHARS_MAX]}")


def _lags(ends: dict[str, Any], latest: dict[str, Any]) -> dict[TopicPartition, int]:
    return {
        (topic, int(number)): max(0, end - ends.get(topic, {}).get(number, 0))
        for topic, partitions in latest.items()
        for number, end in partitions.items()
    }


def _phases_s(durations_ms: dict[str, int], report: StagedReport | None) -> dict[str, float]:
    phases = {
        "plan": sum(durations_ms.get(name, 0) for name in _PLANNING) / 1000,
        "work": durations_ms.get("addBatch", 0) / 1000,
        "total": durations_ms.get("triggerExecution", 0) / 1000,
    }
    if report is not None:
        phases["publish"] = report.publish_s
        phases["work"] = max(0.0, phases["work"] - report.publish_s)
    return phases


def _line(error: BaseException) -> str:
    """Return the first lines of an error, which name the cause; plans and traces follow."""
    text = str(error).split("=== Streaming Query ===")[0]
    return " ".join(text.split())[:_REASON_CHARS_MAX]


# -- From the start to the last micro-batch -------------------------------------------------------


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
    known = None if query is None else checkpoint.logs()
    gone = sorted({*known.topics, *known.epochs} - {*topics}) if known else ()
    if gone:
        # Spark would keep a plan without them, and fail with it at each start that has them again.
        problem = (
            f"HAPAX_INPUT__TOPICS lacks {', '.join(gone)}, of which the checkpoint has offsets:"
            " name all of its topics; to read fewer of them, see docs/dataframes.md, section Stops"
        )
        raise ConfigurationError([problem])
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
        "it expired while the query was stopped (offsets.retention.minutes of the brokers), the"
        " topic was recreated, or HAPAX_APP or HAPAX_OUTPUT__TOPIC was changed"
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
            query = self._progress.query
            if not query.status["isTriggerActive"] or ended(query, DRAIN_TURN_S):
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
