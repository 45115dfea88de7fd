from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from hapax.core.errors import ConfigurationError
from hapax.engines.spark.dataframe import query as spark_pipeline
from hapax.sandbox import SandboxTopic
from hapax.settings import load_settings
from tests.kit import topics
from tests.kit.dying_sinks import STEPS, CuttingSink, DyingSink
from tests.kit.managed_process import required
from tests.kit.spark_queries import records, run, started

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from hapax.sandbox import Sandbox


def test_every_row_is_published_once_with_its_micro_batch(spark, sandbox, unique, tmp_path):
    servers, given, out = sandbox.bootstrap_servers, unique("in"), unique("out")
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out, 2))
    topics.produce(servers, given, *(f"{n}".encode() for n in range(1000)))

    run(records(spark, servers, given).select("key", "value"), servers, out, tmp_path / "c")

    found = topics.read_back(servers, out)
    assert sorted(int(one.value or b"") for one in found) == list(range(1000))
    marks = {dict(one.headers)["hapax-batch"] for one in found}
    assert len(marks) == 1000
    assert topics.committed(servers, f"{out}--sink", out)[0] == 1


@pytest.fixture
def stage(sandbox, unique, tmp_path):
    given, out = unique("in"), unique("out")
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out, 2))
    return Stage(sandbox, given, out, tmp_path / "checkpoint")


class Stage(NamedTuple):
    """An input topic, an output topic, and the checkpoint between them."""

    sandbox: Sandbox
    given: str
    out: str
    checkpoint: Path

    @property
    def servers(self) -> str:
        return self.sandbox.bootstrap_servers

    def write(self, *values: bytes) -> None:
        topics.produce(self.servers, self.given, *values)

    def run(self, spark: SparkSession, sink: str = "hapax", **options: str) -> None:
        frame = records(spark, self.servers, self.given).select("key", "value")
        run(frame, self.servers, self.out, self.checkpoint, sink=sink, **options)

    def values(self) -> list[bytes | None]:
        found = topics.read_back(self.servers, self.out)
        assert len({dict(one.headers)["hapax-batch"] for one in found}) == len(found)
        return sorted((one.value for one in found), key=lambda value: value or b"")


def forget_the_marker(stage: Stage) -> None:
    admin = AdminClient({"bootstrap.servers": stage.servers, "log_level": 0})
    for future in admin.delete_consumer_groups([f"{stage.out}--sink"]).values():
        future.result(30)


@pytest.mark.row("SP1", "SP5", "SP20")
@pytest.mark.long
def test_a_micro_batch_is_published_once_wherever_its_commit_is_killed(spark, stage):
    spark.dataSource.register(DyingSink)
    stage.checkpoint.mkdir()
    for number, step in enumerate(STEPS):
        stage.write(*(f"{number}-{row}".encode() for row in range(20)))
        (stage.checkpoint / "step").write_text(step)
        with pytest.raises(StreamingQueryException, match="crashed"):
            stage.run(spark, "dying")
        stage.run(spark)
        assert len(stage.values()) == 20 * (number + 1), step
    assert topics.committed(stage.servers, f"{stage.out}--sink", stage.out)[0] == len(STEPS)


@pytest.mark.row("SP6")
def test_a_micro_batch_that_spark_takes_again_is_not_published_again(spark, stage):
    stage.write(b"a", b"b")
    stage.run(spark)
    for name in ("0", ".0.crc"):
        (stage.checkpoint / "commits" / name).unlink()

    stage.run(spark, report="true")

    assert stage.values() == [b"a", b"b"]
    report = json.loads((stage.checkpoint / "hapax" / "last.json").read_text())
    assert report["repeated"] is True


@pytest.mark.row("SP7")
def test_a_lost_checkpoint_is_recognised(spark, stage):
    stage.write(b"a")
    stage.run(spark)
    shutil.rmtree(stage.checkpoint)
    with pytest.raises(StreamingQueryException, match="the checkpoint was lost or is another one"):
        stage.run(spark)
    assert stage.values() == [b"a"]


@pytest.mark.row("SP7")
def test_an_old_copy_of_a_checkpoint_is_recognised(spark, stage):
    stage.write(b"a")
    stage.run(spark)
    copy = stage.checkpoint.with_name("copy")
    shutil.copytree(stage.checkpoint, copy)
    stage.write(b"b")
    stage.run(spark)
    shutil.rmtree(stage.checkpoint)
    shutil.copytree(copy, stage.checkpoint)
    stage.write(b"c")
    # Micro-batch 1 is planned anew, with more input than the one that was published.
    with pytest.raises(StreamingQueryException, match="the checkpoint is an old copy"):
        stage.run(spark)
    assert stage.values() == [b"a", b"b"]


@pytest.mark.row("SP7")
@pytest.mark.long
@pytest.mark.parametrize(
    ("damaged", "left"), [("offsets/1", b"v1\n{"), ("commits/1", b""), ("metadata", b"{")]
)
def test_a_damaged_checkpoint_stops_the_query_and_publishes_nothing(spark, stage, damaged, left):
    for value in (b"a", b"b"):
        stage.write(value)
        stage.run(spark)
    file = stage.checkpoint / damaged
    file.write_bytes(left)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # or that alone would be noticed
    stage.write(b"c")
    with pytest.raises(Exception, match=r"\S"):
        stage.run(spark)
    assert stage.values() == [b"a", b"b"]


def test_a_marker_that_is_gone_stops_the_query(spark, stage):
    stage.write(b"a")
    stage.run(spark)
    forget_the_marker(stage)
    stage.write(b"b")
    with pytest.raises(StreamingQueryException, match="it expired while the query was stopped"):
        stage.run(spark)
    assert stage.values() == [b"a"]


@pytest.mark.row("SP7")
def test_without_checkpoint_and_marker_the_output_tells_that_there_was_a_query(spark, stage):
    stage.write(b"a", b"b")
    stage.run(spark)
    shutil.rmtree(stage.checkpoint)
    forget_the_marker(stage)
    with pytest.raises(StreamingQueryException, match="all of the input would be published again"):
        stage.run(spark)
    assert stage.values() == [b"a", b"b"]


def test_a_spooled_file_that_was_cut_stops_the_query_and_the_next_start_publishes_all(spark, stage):
    spark.dataSource.register(CuttingSink)
    values = sorted(b"%d" % number for number in range(25_000))
    stage.write(*values)
    with pytest.raises(StreamingQueryException, match=r"rows that its task wrote: .*start again"):
        stage.run(spark, "cutting", inlineBytesMax="1000")
    assert stage.values() == []
    stage.run(spark, inlineBytesMax="1000")
    assert stage.values() == values


@pytest.mark.row("SP22")
def test_all_columns_arrive_as_they_are(spark, stage):
    headers = (("a", b"\x00\xff"), ("b", None), ("a", b""))
    large = os.urandom(900_000)
    now_ms = int(time.time() * 1000)  # retention goes by these timestamps
    topics.produce(
        stage.servers,
        stage.given,
        topics.Given(b"v", b"k", headers, partition=1, timestamp_ms=now_ms),
        topics.Given(None, b"tombstone", partition=0, timestamp_ms=now_ms + 1),
        topics.Given(large, None, partition=0, timestamp_ms=now_ms + 2),
    )
    frame = records(spark, stage.servers, stage.given).selectExpr(
        "key", "value", "headers", "timestamp", "1 - partition AS partition", f"'{stage.out}' topic"
    )

    run(frame, stage.servers, stage.out, stage.checkpoint)

    found = {one.timestamp_ms: one for one in topics.read_back(stage.servers, stage.out)}
    plain = found[now_ms]
    assert (plain.key, plain.value, plain.partition) == (b"k", b"v", 0)
    assert plain.headers[:-1] == headers
    assert plain.headers[-1][0] == "hapax-batch"
    tombstone = found[now_ms + 1]
    assert (tombstone.key, tombstone.value, tombstone.partition) == (b"tombstone", None, 1)
    assert found[now_ms + 2].value == large


def test_rows_wait_in_files_when_they_are_many_and_the_files_go(spark, stage):
    stage.write(*(b"%d" % number for number in range(25_000)))
    spool = stage.checkpoint / "hapax"
    spool.mkdir(parents=True)
    (spool / "0-0-0-leftover.arrow").touch()

    stage.run(spark, inlineBytesMax="1000")

    assert len(stage.values()) == 25_000
    assert list(spool.iterdir()) == []


@pytest.mark.row("SP26")
@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("offset", "column offset is no part of a Kafka record: drop it"),
        ("1 AS key", "column key is int and must be binary or string: cast it"),
    ],
)
def test_other_columns_are_refused(spark, stage, expression, complaint):
    frame = records(spark, stage.servers, stage.given).selectExpr("value", expression)
    stage.write(b"a")
    with pytest.raises(StreamingQueryException, match=complaint):
        run(frame, stage.servers, stage.out, stage.checkpoint)


def test_an_unknown_option_is_refused(spark, stage):
    stage.write(b"a")
    with pytest.raises(StreamingQueryException, match="option topics is unknown"):
        stage.run(spark, topics="typo")


@pytest.mark.row("SP26")
def test_what_replaces_earlier_output_is_refused(spark, stage):
    stage.write(b"a")
    counted = records(spark, stage.servers, stage.given).groupBy("value").count().select("value")
    for mode, complaint in (
        ("complete", "a topic cannot: use append"),
        ("update", "hapax does not support Update mode"),
    ):
        query = started(
            counted, stage.servers, stage.out, stage.checkpoint.with_name(mode), mode=mode
        )
        with pytest.raises(StreamingQueryException, match=complaint):
            query.awaitTermination(60)


@pytest.mark.row("SP26")
@pytest.mark.parametrize(
    ("pipeline", "complaint"),
    [
        (lambda frame: frame.count(), "raised AnalysisException: "),
        (lambda _: None, "returned NoneType: return a streaming DataFrame"),
        (lambda frame: frame.sparkSession.range(1), "returned a batch DataFrame"),
        (lambda frame: frame, "column offset is no part of a Kafka record"),
    ],
)
def test_what_is_no_pipeline_is_refused(spark, stage, pipeline, complaint):
    frame = records(spark, stage.servers, stage.given)
    with pytest.raises(ConfigurationError, match=complaint):
        spark_pipeline.apply(pipeline, frame, "shop:pipeline")
    assert not spark.streams.active


def test_a_pipeline_that_starts_a_query_of_its_own_is_refused(spark, stage):
    def starting(frame: DataFrame) -> DataFrame:
        writer = frame.writeStream.format("noop")
        writer.option("checkpointLocation", str(stage.checkpoint)).start()
        return frame.select("value")

    frame = records(spark, stage.servers, stage.given)
    with pytest.raises(ConfigurationError, match="started a query of its own: return the Data"):
        spark_pipeline.apply(starting, frame, "shop:pipeline")
    assert not spark.streams.active


def test_what_spark_refuses_is_a_matter_of_configuration(spark, stage):
    settings = load_settings(
        required(
            app=stage.out,
            servers=stage.servers,
            source=stage.given,
            target=stage.out,
            ENGINE="spark",
            SPARK__DATAFRAME="shop:pipeline",
            SPARK__CHECKPOINT=str(stage.checkpoint),
        )
    )
    frame = spark_pipeline.read_input(spark, settings)
    assert frame.columns == list(spark_pipeline.INPUT_COLUMNS)
    counted = frame.groupBy("value").count().select("value")
    with pytest.raises(
        ConfigurationError, match=r"Spark refuses the query: .*give what is aggregated a w"
    ):
        spark_pipeline.start(counted, settings)
