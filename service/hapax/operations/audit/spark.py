"""The audit on Spark, for large topics: tasks read ranges, and Spark SQL judges their rows.

Only counts and a few examples come to the driver.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f

from hapax.core.errors import HapaxError
from hapax.engines.spark.executors import code_of, named, ship
from hapax.engines.spark.jvm import cause
from hapax.engines.spark.session import SparkOptions, open_session
from hapax.operations.audit.judgement import EFFECTS, INPUTS
from hapax.operations.audit.result import IncompleteError
from hapax.operations.reading import repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from hapax.core.ports import Tell
    from hapax.operations.audit.judgement import Ranges, Row, View
    from hapax.settings import Settings

SHUFFLE_OFFSETS, SHUFFLE_MIN, SHUFFLE_MAX = 250_000, 2, 10_000
CAUSE_CHARS_MAX = 300
_COLUMNS = {"inputs": INPUTS, "effects": EFFECTS}
_ARROW: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "string": pa.string(),
}
_POLL_S = 0.2


@contextmanager
def opened(settings: Settings, report: Tell) -> Iterator[SparkAudit]:
    report("starting Spark")
    options = msgspec.structs.replace(SparkOptions.of(settings), app=f"{settings.app}-audit")
    wares = [] if options.local else [*code_of(settings.transform), *named(options.ship)]
    spark = open_session(options)
    try:
        with tempfile.TemporaryDirectory(prefix="hapax-ship-") as folder:
            ship(spark.sparkContext, wares, Path(folder))
            yield SparkAudit(spark, report)
    except HapaxError:
        raise
    except Exception as error:  # a task that failed comes in many disguises, none of them short
        why = cause(error)[:CAUSE_CHARS_MAX]
        raise IncompleteError(f"Spark did not finish: {why}") from error
    finally:
        spark.stop()


class SparkAudit:
    """Reads and judges on a session that is open; see hapax.operations.audit.judgement.Engine."""

    def __init__(self, spark: SparkSession, report: Tell) -> None:
        self._spark = spark
        self._report = report
        self._tables: dict[str, DataFrame] = {}
        self._offsets = 0
        self.cores = spark.sparkContext.defaultParallelism

    def read(self, table: str, task: Ranges, what: str) -> None:
        """Read ranges, one Spark task for each, and keep their rows for all later queries.

        Nothing is handed to the tasks but the number of their stretch: Spark ends the iterator of a
        task cleanly when something before it fails, and there is nothing before it here.
        """
        ranges, columns = len(task.stretches), _COLUMNS[table]
        numbers = self._spark.range(0, ranges, 1, max(1, ranges))
        frame = numbers.mapInArrow(partial(_rows_of, task, columns), columns).persist()
        with self._reporting(what):
            ended = frame.where("read is not null").count()  # this also reads them all
        if ended != ranges:
            raise IncompleteError(f"{ended} of {ranges} stretches were read to their end")
        known = self._tables.get(table)
        self._tables[table] = frame if known is None else known.unionByName(frame)
        self._tables[table].createOrReplaceTempView(table)
        # The number of shuffle partitions follows what was read: a small audit is quick.
        self._offsets += sum(one.end - one.start for one in task.stretches)
        wanted = max(SHUFFLE_MIN, self.cores, self._offsets // SHUFFLE_OFFSETS)
        self._spark.conf.set("spark.sql.shuffle.partitions", str(min(wanted, SHUFFLE_MAX)))

    def load(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        small = pa.Table.from_batches([_batch(rows, _schema(columns))])
        f.broadcast(self._spark.createDataFrame(small, columns)).createOrReplaceTempView(table)

    def define(self, view: View) -> None:
        frame = self._spark.sql(view.query)
        (frame.persist() if view.few else frame).createOrReplaceTempView(view.name)

    def rows(self, query: str) -> list[Row]:
        with self._reporting("judging"):
            return [tuple(row) for row in self._spark.sql(query).collect()]

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        context = self._spark.sparkContext
        group = f"audit: {what}"
        context.setJobGroup(group, group)
        tracker = context.statusTracker()

        def look() -> None:
            infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [
                known
                for info in infos
                for stage in (info.stageIds if info is not None else ())
                if (known := tracker.getStageInfo(stage)) is not None
            ]
            done = sum(stage.numCompletedTasks for stage in stages)
            self._report(f"{what} (tasks)", done, sum(stage.numTasks for stage in stages))

        self._report(what)
        with repeated(look, _POLL_S):
            yield


def _rows_of(
    read: Ranges, columns: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = _schema(columns)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from (_batch(rows, schema) for rows in read(number) if rows)


def _schema(columns: str) -> pa.Schema:
    pairs = [column.split() for column in columns.split(",")]
    return pa.schema([(name, _ARROW[kind]) for name, kind in pairs])


def _batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [() for _field in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
