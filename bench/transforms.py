"""The business rules of the benchmarks; that of Spark in the three forms that are compared."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hapax import Output, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CALL_S, STRAGGLER_S = 0.01, 10.0
STRAGGLER = (0, 3000)
"""Partition and offset of the record whose call takes so long."""


def unchanged(record: Record) -> Output:
    """The least that a transform in Python can do."""
    return Output(record.value)


def wait(record: Record) -> Output:
    """A call that waits for something outside, with a client that blocks."""
    time.sleep(CALL_S)
    return Output(record.value)


async def wait_async(record: Record) -> Output:
    await asyncio.sleep(CALL_S)
    return Output(record.value)


async def wait_long_once(record: Record) -> Output:
    """The same, and for one record it takes long."""
    straggles = (record.partition, record.offset) == STRAGGLER
    await asyncio.sleep(STRAGGLER_S if straggles else CALL_S)
    return Output(record.value)


def wait_for_all(records: list[Record]) -> list[Output]:
    """A call that takes as long for many records as for one."""
    time.sleep(CALL_S)
    return [Output(record.value) for record in records]


def reverse(record: Record) -> Output:
    return Output((record.value or b"")[::-1])


def reversed_value(value: bytes) -> bytes:
    return value[::-1]


def pipeline(records: DataFrame) -> DataFrame:
    """As a pipeline of DataFrames, with the UDF that travels as Arrow."""
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - only where Spark runs

    transform = udf(reversed_value, "binary", useArrow=True)
    return records.select("key", transform(col("value")).alias("value"))
