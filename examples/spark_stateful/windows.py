"""A windowed aggregation: orders and revenue of each shop, by minute of event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def pipeline(records: DataFrame) -> DataFrame:
    orders = records.select(
        f.from_json(f.col("value").cast("string"), "shop string, at timestamp, cents long").alias(
            "o"
        )
    )
    orders = orders.select("o.*").where("shop IS NOT NULL AND at IS NOT NULL")
    minutes = (
        orders.withWatermark("at", "5 minutes")
        .groupBy("shop", f.window("at", "1 minute").alias("minute"))
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    )
    return minutes.select(
        f.col("shop").alias("key"),
        f.to_json(f.struct("shop", f.col("minute.start").alias("minute"), "orders", "cents")).alias(
            "value"
        ),
    )
