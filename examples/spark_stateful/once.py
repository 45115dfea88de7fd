"""Deduplication with a bound: an order that is sent again within 10 minutes passes once.

Time is that of the Kafka record, so that this works for values without a time of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def pipeline(records: DataFrame) -> DataFrame:
    # What has no id keeps its coordinates as one, or all of it would be one order.
    named = records.withColumn(
        "id",
        f.coalesce(
            f.get_json_object(f.col("value").cast("string"), "$.id"),
            f.concat_ws("/", "topic", "partition", "offset"),
        ),
    )
    once = named.withWatermark("timestamp", "10 minutes").dropDuplicatesWithinWatermark(["id"])
    return once.select("key", "value")
