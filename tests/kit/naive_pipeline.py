"""The same pipelines, written by Spark's own Kafka sink: the control that doubles.

Their progress and their state are in checkpoints, too; what one has written before it is killed is
written again. One process runs several, one after another, for a start of Spark takes long.
"""

import json
import os

from pyspark.sql import SparkSession

from hapax.engines.spark.dataframe.query import load_pipeline, read_input
from hapax.engines.spark.session import SparkOptions, connector_jars, open_session
from hapax.settings import Settings, load_settings

PIPELINES = "NAIVE_PIPELINES"
"""The service's variables of each pipeline, as a JSON list."""


def main() -> None:
    """Run each until all is read that is there at its start."""
    pipelines = [load_settings(one) for one in json.loads(os.environ[PIPELINES])]
    spark = pipelines[0].spark
    options = SparkOptions("naive", spark.master, spark.properties, connector_jars(spark.jars))
    session = open_session(options)
    for settings in pipelines:
        run(session, settings)
    session.stop()


def run(session: SparkSession, settings: Settings) -> None:
    spark = settings.spark
    own = {name: text for name, text in spark.properties.items() if name.startswith("spark.sql.")}
    for name, text in own.items():
        session.conf.set(name, text)
    frame = load_pipeline(spark.dataframe or "")(read_input(session, settings))
    query = (
        frame.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("topic", settings.output.topic)
        .option("checkpointLocation", spark.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for name in own:
        session.conf.unset(name)


if __name__ == "__main__":
    main()
