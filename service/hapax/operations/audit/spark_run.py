"""One audit on Spark: what is asked for, in the order that makes it right beside a live pipeline.

1. ends of the inputs     read so far; the transform tells where outputs go
2. ends of the outputs    what is visible now ...
3. committed offsets      ... must be below these
4. ends of the outputs    once nothing that was begun before 3 is open: all effects of records
                          below the committed offsets stand before these
5. ends of the inputs     ids that came meanwhile may own what was dropped as a duplicate
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from hapax.core.errors import HapaxError
from hapax.engines.spark.session import open_session
from hapax.operations.audit.result import InputBounds
from hapax.operations.audit.spark import Judgement, Tables
from hapax.operations.audit.spark_frames import EFFECTS, INPUTS, read_frame, telling
from hapax.operations.audit.spark_result import (
    IncompleteError,
    check_complete,
    named_topics,
    result,
    trimmed_starts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.spark.session import SparkOptions
    from hapax.operations.audit.result import Audit, Compare, OutputBounds
    from hapax.operations.audit.spark_frames import ReadStretch, Tell

SHUFFLE_OFFSETS, SHUFFLE_MIN = 250_000, 2
CAUSE_CHARS_MAX = 300
_ERROR = re.compile(r"(?:\w+\.)+\w*Error: ")
_SHUFFLES = "spark.sql.shuffle.partitions"


class Topics(Protocol):
    """What an audit asks of the pipeline's topics. ``remarks`` grow while it answers."""

    app: str
    claimed: bool
    known: bool
    compare: Compare
    places: list[TopicPartition]
    remarks: list[str]

    def lows(self) -> Progress:
        """Return the first input offsets to read."""

    def ends(self) -> Progress:
        """Return the last stable offsets of the inputs."""

    def settled_outputs(
        self, named: set[str]
    ) -> tuple[list[OutputBounds], dict[TopicPartition, int | None]]:
        """Return steps 2 to 4; ``named``: topics that the transform chose."""

    def compacted(self) -> set[str]:
        """Return the input topics that are compacted."""

    def input_task(self, lows: Progress, ends: Progress, cores: int) -> tuple[ReadStretch, int]:
        """Return what reads stretches of the inputs, and how many there are."""

    def effect_task(
        self, lows: Progress, outputs: list[OutputBounds], cores: int
    ) -> tuple[ReadStretch, int]:
        """Return what reads stretches of the outputs, and how many there are."""


def audit_on_spark(
    options: SparkOptions, topics: Topics, tell: Tell, *, examples_max: int
) -> Audit:
    """Start Spark, read, judge, stop Spark."""
    tell("starting Spark", 0, 0)
    spark = open_session(options)
    try:
        return run(spark, topics, tell, examples_max=examples_max)
    except HapaxError:
        raise
    except Exception as error:  # a task that failed comes in many disguises, none of them short
        raise IncompleteError(f"Spark did not finish: {_cause(error)}") from error
    finally:
        spark.stop()


def run(spark: SparkSession, topics: Topics, tell: Tell, *, examples_max: int) -> Audit:
    """Read and judge on a session that is open."""
    cores = spark.sparkContext.defaultParallelism
    lows, ends = topics.lows(), topics.ends()  # 1
    task, stretches = topics.input_task(lows, ends, cores)
    inputs = _read(spark, "reading input", (task, stretches, INPUTS), tell)
    frames = [inputs]
    outputs, committed = topics.settled_outputs(named_topics(inputs))  # 2 to 4
    later = topics.ends()  # 5
    if any(later[where] > ends[where] for where in topics.places):
        task, stretches = topics.input_task(ends, later, cores)
        came = _read(spark, "reading what came meanwhile", (task, stretches, INPUTS), tell)
        inputs = inputs.unionByName(came)
        frames.append(came)
    task, stretches = topics.effect_task(lows, outputs, cores)
    effects = _read(spark, "reading outputs", (task, stretches, EFFECTS), tell)
    frames.append(effects)
    tables = Tables(
        inputs=inputs,
        effects=effects,
        input_bounds=_bounds(topics, lows, ends, committed, trimmed_starts(effects, outputs)),
        output_bounds=outputs,
        claimed=topics.claimed,
        known=topics.known,
        compare=topics.compare,
    )
    _size_shuffles(spark, tables)
    with telling(spark, "judging", tell):
        found = result(Judgement(spark, tables), tables, app=topics.app, examples_max=examples_max)
    found.remarks = list(topics.remarks)
    for frame in frames:
        frame.unpersist()
    return found


def _cause(error: Exception) -> str:
    """Return the line that names the error of the task, or else the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if _ERROR.match(line)]
    return (named or lines or [type(error).__name__])[0][:CAUSE_CHARS_MAX]


def _read(
    spark: SparkSession, what: str, reading: tuple[ReadStretch, int, str], tell: Tell
) -> DataFrame:
    task, stretches, columns = reading
    frame = read_frame(spark, task, stretches, columns)
    with telling(spark, what, tell):
        check_complete(frame, stretches)
    return frame


def _bounds(
    topics: Topics,
    lows: Progress,
    ends: Progress,
    committed: dict[TopicPartition, int | None],
    trimmed: dict[int, int],
) -> list[InputBounds]:
    compacted = topics.compacted()
    found = []
    for place, where in enumerate(topics.places):
        known = committed[where]
        start = max(lows[where], trimmed.get(place, 0))
        if start > lows[where]:
            topics.remarks.append(
                f"{where[0]}/{where[1]}: judged from {start} on: older outputs are no longer there"
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


def _size_shuffles(spark: SparkSession, tables: Tables) -> None:
    """Choose the number of shuffle partitions by what was read: a small audit is quick."""
    offsets = sum(one.end - one.low for one in tables.input_bounds)
    offsets += sum(one.end - one.low for one in tables.output_bounds)
    cores = spark.sparkContext.defaultParallelism
    wanted = max(SHUFFLE_MIN, cores, offsets // SHUFFLE_OFFSETS)
    spark.conf.set(_SHUFFLES, str(min(wanted, 10_000)))
