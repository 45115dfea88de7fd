"""Streaming queries of tests: from a topic, through what a test says, into the sink."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hapax.engines.spark.session import SparkOptions, connector_jars, open_session
from hapax.sandbox.servers import java_options
from hapax.spark import register

QUERY_TIMEOUT_S = 120


def opened_session() -> Iterator[SparkSession]:
    """Give a session on two cores that knows Kafka and the sink; stop it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", java_options())
        session = open_session(SparkOptions("test", "local[2]", jars=connector_jars()))
    register(session)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


def records(session: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    reader = session.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            **options,
        }
    )
    return reader.load()


def started(
    frame: DataFrame,
    servers: str,
    topic: str,
    checkpoint: Path,
    *,
    sink: str = "hapax",
    mode: str = "append",
    **options: str,
) -> StreamingQuery:
    """Start a query into the sink that ends when it has read all there is."""
    return (
        frame.writeStream.format(sink)
        .outputMode(mode)
        .options(
            **{
                "kafka.bootstrap.servers": servers,
                "app": topic,
                "topic": topic,
                "checkpointLocation": str(checkpoint),
                **options,
            }
        )
        .trigger(availableNow=True)
        .start()
    )


def run(
    frame: DataFrame,
    servers: str,
    topic: str,
    checkpoint: Path,
    *,
    sink: str = "hapax",
    **options: str,
) -> None:
    query = started(frame, servers, topic, checkpoint, sink=sink, **options)
    if not query.awaitTermination(QUERY_TIMEOUT_S):
        query.stop()
        raise TimeoutError("the query did not end")
