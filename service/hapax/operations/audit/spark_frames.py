"""The two tables of an audit, and how tasks fill them.

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    Row = tuple[Any, ...]
    Report = Callable[[str, int, int], None]

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

    It travels to the executors, so its class stands in a module that they can import.
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
    """Return a table of given rows."""
    table = pa.Table.from_batches([_batch(rows, _schema(columns))])
    return spark.createDataFrame(table, columns)


@contextmanager
def reporting(spark: SparkSession, what: str, report: Report) -> Iterator[None]:
    """Report how many tasks are done while the block runs Spark jobs."""
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
