"""Spark's own Kafka source, as a batch from the earliest offset to the end."""

import base64
import json
import sys

from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def text(content):
    return None if content is None else base64.b64encode(content).decode()


def show(row):
    headers = [[header.key, text(header.value)] for header in row.headers or []]
    line = {"p": row.partition, "o": row.offset, "k": text(row.key), "v": text(row.value)}
    print(json.dumps(line | {"h": headers, "t": int(row.timestamp.timestamp() * 1000)}))


def read(asked):
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    options = {
        "kafka.bootstrap.servers": asked["bootstrap"],
        "subscribe": asked["topic"],
        "includeHeaders": "true",
    }
    if asked["level"] != "default":
        options["kafka.isolation.level"] = asked["level"]
    for row in session.read.format("kafka").options(**options).load().collect():
        show(row)
    session.stop()


{"read": read}[sys.argv[1]](json.loads(sys.argv[2]))
