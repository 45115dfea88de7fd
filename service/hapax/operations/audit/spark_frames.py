"""The two tables of an audit on Spark, how tasks fill them, and steps of their judgement.

inputs   one row for each input record, aborted ones included
effects  one row for each output and dead letter of this pipeline

Each is read in stretches, one Spark task for each. A stretch ends with one more row that has
``read`` set: it counts, and it proves that the stretch was read to its end.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as f

from hapax.operations.audit.result import Compare
from hapax.operations.audit.rows import DEAD_SLOT, POISON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from hapax.operations.audit.topics import Report

    Row = tuple[Any, ...]

INPUTS = (
    "place int, offset long, visible boolean, owner_place int, owner_offset long, id binary,"
    " outputs int, content long, topics array<string>, read long"
)
EFFECTS = (
    "lane int, at long, place int, offset long, slot int, parts int, content long,"
    " unchecked boolean, id binary, read long, foreign long, hidden long"
)
_ARROW: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
}
_POLL_S = 0.2


class ReadStretch(Protocol):
    """Reads the stretch with this number: lists of rows, the last row with ``read`` set.

    It travels to the executors, so its class is in a module that they can import.
    """

    def __call__(self, number: int) -> Iterator[list[Row]]:
        """Yield rows in the order of the columns."""


class _Mapper:
    """Runs within a task: numbers of stretches in, rows out."""

    def __init__(self, read: ReadStretch, columns: str) -> None:
        self._read = read
        self._columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = _schema(self._columns)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in self._read(number):
                    if rows:
                        yield _batch(rows, schema)


def read_frame(spark: SparkSession, read: ReadStretch, stretches: int, columns: str) -> DataFrame:
    """Return the table, kept for all later questions once it was read.

    Nothing is handed to the tasks but the number of their stretch: Spark ends the iterator of a
    task cleanly when something before it fails, and there is nothing before it here.
    """
    numbers = spark.range(0, stretches, 1, max(1, stretches))
    return numbers.mapInArrow(_Mapper(read, columns), columns).persist()


def rows_frame(spark: SparkSession, rows: list[Row], columns: str) -> DataFrame:
    table = pa.Table.from_batches([_batch(rows, _schema(columns))])
    return spark.createDataFrame(table, columns)


@contextmanager
def reporting(spark: SparkSession, what: str, report: Report) -> Iterator[None]:
    context = spark.sparkContext
    group = f"audit: {what}"
    context.setJobGroup(group, group)
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not ended.wait(_POLL_S):
            done = tasks = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    known = tracker.getStageInfo(stage)
                    if known is not None:
                        done += known.numCompletedTasks
                        tasks += known.numTasks
            report(f"{what} (tasks)", done, tasks)

    report(what, 0, 0)
    watcher = threading.Thread(target=watch, name="audit-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _schema(columns: str) -> pa.Schema:
    pairs = [column.strip().split(" ", 1) for column in columns.split(",")]
    return pa.schema([(name, _ARROW[kind]) for name, kind in pairs])


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    arrays = (
        [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        if rows
        else [pa.array([], field.type) for field in schema]
    )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- Steps of the judgement: effects to slots to records ---------------------------------------


def true(flag: Column | str) -> Column:
    """Whether it is true; null is not."""
    return f.coalesce(flag, f.expr("false"))


def counted(flag: Column) -> Column:
    """Return 1 where it is true, so that a sum counts."""
    return true(flag).cast("int")


def slots_of(judged: DataFrame) -> DataFrame:
    """Effects that mean the same: one row for each slot of each record."""
    return judged.groupBy("place", "offset", "slot", "parts").agg(
        f.count("*").alias("times"),
        f.min("content").alias("content"),
        f.max("content").alias("content_"),
        f.bool_and("unchecked").alias("unchecked"),
        f.max(f.struct("lane", "at")).alias("spot"),
    )


def gathered(slots: DataFrame) -> DataFrame:
    output = f.col("slot") > DEAD_SLOT
    return (
        slots.groupBy("place", "offset")
        .agg(
            f.sum("times").alias("effects"),
            f.sum(f.col("times") - 1).alias("extra"),
            f.count_if(output).alias("outs"),
            f.count_if(~output).alias("dead"),
            f.min(f.when(output, f.col("parts"))).alias("least_parts"),
            f.max(f.when(output, f.col("parts"))).alias("most_parts"),
            f.bit_xor(f.when(output, f.col("content"))).alias("found"),
            f.max(f.when(~output, f.col("content"))).alias("found_dead"),
            f.bool_or(f.col("content") != f.col("content_")).alias("mixed"),
            f.bool_and("unchecked").alias("unchecked"),
            f.max("spot").alias("spot"),
            f.max("parts").alias("parts"),
        )
        .select("*", "spot.lane", "spot.at")
        .drop("spot")
    )


def differs(compare: Compare) -> Column:
    if compare is Compare.NONE:
        return f.expr("false")
    count = f.expr(f"outs > 0 and (outputs = {POISON} or outputs <> outs)")
    if compare is Compare.COUNTS:
        return true(count)
    content = f.expr(
        f"(outs > 0 and content <> found) or mixed"
        f" or (outputs = {POISON} and dead > 0 and outs = 0 and content <> found_dead)"
    )
    return true(count) | true(content)


def with_ids(matched: DataFrame, effects: DataFrame) -> DataFrame:
    """Add what the other records of an id say.

    event  alone      no other record has the id, or the record is its owner
           elsewhere  another record had or will have the effect, or was filtered
           lost       the first of several, and none of them has an effect
    again  its effects come after those of another owner of the id
    """
    owner = f.struct("owner_place", "owner_offset")
    counts = f.col("has") & ~true("unchecked")
    shared = (
        matched.where("visible and id is not null")
        .groupBy("id")
        .agg(
            f.count("*").alias("copies"),
            f.min(f.when(counts, owner)).alias("first_owner"),
            f.bool_or(f.expr("has or not judged or coalesce(outputs = 0, false)")).alias("told"),
            f.min(f.when(f.col("judged"), f.struct("place", "offset"))).alias("first"),
        )
        .where("copies > 1")
    )
    gone = effects.where("id is not null").select(f.col("id").alias("old")).distinct()
    joined = matched.join(shared, "id", "left").join(
        gone, f.substring("id", 1, 16) == f.col("old"), "left"
    )
    here = f.struct("place", "offset")
    event = (
        f.when(true(owner == f.col("first_owner")), "alone")
        .when(f.col("old").isNotNull() | true("told"), "elsewhere")
        .when(f.col("copies").isNull(), "alone")
        .when(here == f.col("first"), "lost")
        .otherwise("elsewhere")
    )
    again = true(counts & (owner != f.col("first_owner")))
    return joined.select(*matched.columns, again.alias("again"), event.alias("event"))
