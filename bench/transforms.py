"""The business rules of the benchmarks; that of Spark in the three forms that are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax import Output, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def unchanged(record: Record) -> Output:
    """The least that a transform in Python can do."""
    return Output(record.value)


def reverse(record: Record) -> Output:
    """As the service runs it."""
    return Output((record.value or b"")[::-1])


def reversed_value(value: bytes) -> bytes:
    """As a Python UDF."""
    return value[::-1]


def pipeline(records: DataFrame) -> DataFrame:
    """As a pipeline of DataFrames, with the UDF that travels as Arrow."""
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - only where Spark runs

    transform = udf(reversed_value, "binary", useArrow=True)
    return records.select("key", transform(col("value")).alias("value"))
