"""The control of the Spark benchmark: Spark's own Kafka source and sink, at least once.

``--form udf`` transforms by a Python UDF, ``arrow`` by one that travels as Arrow. Runs until every
record that was there at the start is written.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.transforms import reversed_value
from hapax.engines.spark import executors
from hapax.engines.spark.session import SparkOptions, connector_jars, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    session: SparkSession, servers: str, topics: tuple[str, str], form: str, batch: int
) -> None:
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - only where Spark runs

    transform = udf(reversed_value, "binary", useArrow=form == "arrow")
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics[0])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            records.select(col("key"), transform(col("value")).alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("kafka.batch.size", 1 << 20)
            .option("kafka.linger.ms", 5)
            .option("topic", topics[1])
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--servers", "--source", "--target", "--form", "--master"):
        parser.add_argument(name, required=True)
    parser.add_argument("--batch", type=int, required=True)
    asked = parser.parse_args()
    jars = connector_jars(None)
    session = open_session(SparkOptions("baseline", asked.master, {}, jars))
    topics = (asked.source, asked.target)
    with tempfile.TemporaryDirectory() as folder:
        if not asked.master.startswith("local"):
            code = list(executors.package("bench"))
            executors.ship(session.sparkContext, code, Path(folder))
        run(session, asked.servers, topics, asked.form, asked.batch)
        session.stop()


if __name__ == "__main__":
    main()
