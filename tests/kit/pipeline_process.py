"""A DataFrame pipeline as a process of its own, and pipelines for it to run."""

from pathlib import Path

from pyspark.sql import DataFrame, functions as f

from hapax.sandbox import Sandbox
from tests.kit import pipeline_under_test
from tests.kit.spark_process import SparkProcess


def environment(
    sandbox: Sandbox, app: str, given: str, out: str, checkpoint: Path, **more: str
) -> dict[str, str]:
    values = pipeline_under_test.environment(
        app,
        given,
        out,
        "",
        HAPAX_KAFKA__BOOTSTRAP_SERVERS=sandbox.bootstrap_servers,
        HAPAX_SPARK__DATAFRAME="tests.kit.pipeline_process:doubled",
        HAPAX_SPARK__CHECKPOINT=str(checkpoint),
        HAPAX_SPARK__TRIGGER_INTERVAL="100ms",
    )
    del values["HAPAX_DEAD_LETTER__TOPIC"]
    return values | more


def pipeline_process(folder: Path, values: dict[str, str], name: str = "driver") -> SparkProcess:
    return SparkProcess(values, name, folder / f"{name}.log")


def unchanged(records: DataFrame) -> DataFrame:
    """Each record as it came."""
    return records.select("key", "value")


def doubled(records: DataFrame) -> DataFrame:
    """Each record with its value twice."""
    return records.select("key", f.concat("value", "value").alias("value"))
