"""A task whose rows are cut off half-way: the sink publishes none of them, a naive one does.

An iterator in Python ends cleanly when something before it in the same task fails, so the task
takes half of its rows for all of them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)

from tests.kit import topics
from tests.kit.naive_sink import NaiveSink, committed_values
from tests.kit.spark_queries import QUERY_TIMEOUT_S, records, started
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType


# What cuts the rows of a task off half-way, each once: a flag in a folder remembers.

ROWS = 2000
HALF = 1000
WIDTH = 2000
"""Bytes of a row: what is cut off must be more than the buffers between the processes hold."""
SLOW_S = 0.5


def value(number: int) -> str:
    return f"{number:0{WIDTH}d}"


class Counting(DataSource):
    """A stream of one micro-batch: the numbers below ROWS, from a reader that may raise."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "value string"

    def streamReader(self, schema: StructType) -> CountingReader:  # noqa: N802
        return CountingReader(self.options["raises"] == "true")


class CountingReader(DataSourceStreamReader):
    def __init__(self, raises: bool) -> None:  # noqa: FBT001
        self.raises = raises

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"next": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"next": ROWS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        for number in range(*partition.value):
            if self.raises and number == HALF:
                raise ValueError("the reader broke")
            yield (value(number),)

    def commit(self, end: dict[str, Any]) -> None:
        return


def function_raises(frame: DataFrame) -> DataFrame:
    return frame.mapInArrow(_raising, frame.schema)


def expression_raises(frame: DataFrame) -> DataFrame:
    # Behind a Python stage, so that rows flow into the sink while the expression fails.
    passed = frame.mapInArrow(_passing, frame.schema)
    checked = f.expr(f"assert_true(cast(string(value) as int) <> {HALF}, 'half-way')")
    return passed.where(checked.isNull())


def slow(flag: Path) -> Callable[[DataFrame], DataFrame]:
    """Return what raises the flag after half of the rows, and gives the others slowly."""

    def slowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if seen >= HALF:
                Path(flag).touch()
                time.sleep(SLOW_S)  # a cancelled task ends meanwhile

    return lambda frame: frame.mapInArrow(slowed, frame.schema)


def _raising(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seen = 0
    for batch in batches:
        if seen >= HALF:
            raise ValueError("the function broke")
        seen += batch.num_rows
        yield batch


def _passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


NUMBERS = [value(number).encode() for number in range(ROWS)]


@pytest.fixture(autouse=True, scope="module")
def _small_batches_and_other_formats(spark):
    spark.dataSource.register(NaiveSink)
    spark.dataSource.register(Counting)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture(scope="module")
def given(sandbox):
    """A topic with all numbers in one partition, so that one task has them all."""
    sandbox.create_topic("truncated-in")
    topics.produce(sandbox.bootstrap_servers, "truncated-in", *NUMBERS)
    return "truncated-in"


class Sinks:
    """The sink and the naive one, with a checkpoint each."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers, self.topic, self.folder = servers, topic, folder
        (folder / "naive").mkdir()

    def start(self, frame: DataFrame, sink: str) -> StreamingQuery:
        checkpoint = self.folder / f"{sink}-checkpoint"
        if sink == "hapax":
            return started(frame, self.servers, self.topic, checkpoint)
        writer = frame.writeStream.format("naive").option("folder", str(self.folder / "naive"))
        return (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )

    def values(self, sink: str) -> list[bytes]:
        if sink == "naive":
            return sorted(committed_values(self.folder / "naive"))
        return sorted(one.value or b"" for one in topics.read_back(self.servers, self.topic))


@pytest.fixture
def sinks(sandbox, unique, tmp_path):
    topic = unique("out")
    sandbox.create_topic(topic)
    return Sinks(sandbox.bootstrap_servers, topic, tmp_path)


def broken(spark: SparkSession, servers: str, given: str, what: str) -> tuple[DataFrame, DataFrame]:
    """Return the frame that breaks half-way, and the same when it is mended."""
    if what == "reader":
        reader = spark.readStream.format("counting")
        frames = [reader.option("raises", raises).load() for raises in ("true", "false")]
        return frames[0].selectExpr("binary(value) value"), frames[1].selectExpr(
            "binary(value) value"
        )
    healthy = records(spark, servers, given).select("value")
    breaking = {"function": function_raises, "expression": expression_raises}[what]
    return breaking(healthy), healthy


@pytest.mark.row("SP3")
@pytest.mark.parametrize("what", ["reader", "function", "expression"])
def test_rows_before_a_failure_are_published_with_the_rest_or_not_at_all(spark, given, sinks, what):
    breaking, healthy = broken(spark, sinks.servers, given, what)

    for sink in ("naive", "hapax"):
        with pytest.raises(StreamingQueryException):
            sinks.start(breaking, sink).awaitTermination(QUERY_TIMEOUT_S)
    await_(lambda: bool(sinks.values("naive")), 20, lambda: "the naive task never ended")
    assert sinks.values("hapax") == []

    for sink in ("naive", "hapax"):
        assert sinks.start(healthy, sink).awaitTermination(QUERY_TIMEOUT_S)
    assert 0 < len(sinks.values("naive")) < ROWS
    assert sinks.values("hapax") == NUMBERS


@pytest.mark.row("SP3", "SP4")
def test_rows_before_a_stop_are_published_with_the_rest_or_not_at_all(
    spark, given, sinks, tmp_path
):
    healthy = records(spark, sinks.servers, given).select("value")

    for sink in ("naive", "hapax"):
        flag = tmp_path / f"{sink}-half"
        query = sinks.start(slow(flag)(healthy), sink)
        await_(flag.exists, 60, lambda: "the rows never came")
        query.stop()
    await_(lambda: bool(sinks.values("naive")), 20, lambda: "the naive task never ended")
    assert sinks.values("hapax") == []

    for sink in ("naive", "hapax"):
        assert sinks.start(healthy, sink).awaitTermination(QUERY_TIMEOUT_S)
    assert 0 < len(sinks.values("naive")) < ROWS
    assert sinks.values("hapax") == NUMBERS
