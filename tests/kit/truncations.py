"""What cuts the rows of a task off half-way, each once: a flag in a folder remembers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

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
