"""A stream-stream join: each order with its payment, or as unpaid when none came in time.

Both topics are inputs of one pipeline: HAPAX_INPUT__TOPICS=orders,payments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WITHIN = "p.at BETWEEN o.at AND o.at + INTERVAL 10 MINUTES"


def pipeline(records: DataFrame) -> DataFrame:
    orders = parsed(records, "orders", "id string, at timestamp, cents long")
    payments = parsed(records, "payments", "order string, at timestamp, by string")
    joined = orders.alias("o").join(
        payments.alias("p"), f.expr(f"o.id = p.order AND {WITHIN}"), "left_outer"
    )
    return joined.select(
        f.col("o.id").alias("key"),
        f.to_json(
            f.struct("o.id", "o.cents", f.coalesce("p.by", f.lit("unpaid")).alias("by"))
        ).alias("value"),
    )


def parsed(records: DataFrame, topic: str, columns: str) -> DataFrame:
    """Return what is in one of the topics, with a watermark of its own."""
    return (
        records.where(f.col("topic").endswith(topic))
        .select(f.from_json(f.col("value").cast("string"), columns).alias("v"))
        .select("v.*")
        .where("at IS NOT NULL")  # without a time it would stay in the state
        .withWatermark("at", "5 minutes")
    )
