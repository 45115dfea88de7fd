"""Logs under a Spark query: truncated, recreated, and what it is told of them."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from hapax.cluster.micro_batches import require_uncut
from hapax.core.errors import PositionLostError
from hapax.engines.spark.dataframe import query
from hapax.kafka.read.input_logs import LogLookup
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.sandbox.processes import Ports
from hapax.settings import load_settings
from hapax.spark import HapaxSink, register
from tests.kit import topics
from tests.kit.at_work import await_exit, delete_topic
from tests.kit.naive_sink import NaiveSink, committed_values
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.spark_queries import QUERY_TIMEOUT_S, records, run, started
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from hapax.engines.spark.dataframe.sink import SinkOptions

# -- A task whose rows are cut off half-way: the sink publishes none of them, a naive one does.
# An iterator in Python ends cleanly when something before it in the same task fails, so the task
# takes half of its rows for all of them.

# What cuts the rows of a task off half-way, each once: a flag in a folder remembers.

ROWS = 2000
HALF = 1000
WIDTH = 2000
"""Bytes of a row: what is cut off must be more than the buffers between the processes hold."""
SLOW_S = 0.5


def value(number: int) -> str:
    return f"{number:0{WIDTH}d}"


class Counting(DataSource):
    """A stream of one micro-batch: the numbers below ROWS, from a reader that may raise."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "value string"

    def streamReader(self, schema: StructType) -> CountingReader:  # noqa: N802
        return CountingReader(self.options["raises"] == "true")


class CountingReader(DataSourceStreamReader):
    def __init__(self, raises: bool) -> None:  # noqa: FBT001
        self.raises = raises

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"next": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"next": ROWS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        for number in range(*partition.value):
            if self.raises and number == HALF:
                raise ValueError("the reader broke")
            yield (value(number),)

    def commit(self, end: dict[str, Any]) -> None:
        return


def expression_raises(frame: DataFrame) -> DataFrame:
    # Behind a Python stage, so that rows flow into the sink while the expression fails.
    passed = frame.mapInArrow(lambda batches: batches, frame.schema)
    checked = f.expr(f"assert_true(cast(string(value) as int) <> {HALF}, 'half-way')")
    return passed.where(checked.isNull())


def slow(flag: Path) -> Callable[[DataFrame], DataFrame]:
    """Return what raises the flag after half of the rows, and gives the others slowly."""

    def slowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if seen >= HALF:
                Path(flag).touch()
                time.sleep(SLOW_S)  # a cancelled task ends meanwhile

    return lambda frame: frame.mapInArrow(slowed, frame.schema)


def _raising(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seen = 0
    for batch in batches:
        if seen >= HALF:
            raise ValueError("the function broke")
        seen += batch.num_rows
        yield batch


NUMBERS = [value(number).encode() for number in range(ROWS)]


@pytest.fixture(autouse=True, scope="module")
def _small_batches_and_other_formats(spark):
    spark.dataSource.register(NaiveSink)
    spark.dataSource.register(Counting)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture(scope="module")
def given(sandbox):
    """A topic with all numbers in one partition, so that one task has them all."""
    sandbox.create_topic(name := f"truncated-{uuid4().hex}")  # modules may be played in two parts
    topics.produce(sandbox.bootstrap_servers, name, *NUMBERS)
    return name


class Sinks:
    """The sink and the naive one, with a checkpoint each."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers, self.topic, self.folder = servers, topic, folder
        (folder / "naive").mkdir()

    def start(self, frame: DataFrame, sink: str) -> StreamingQuery:
        checkpoint = self.folder / f"{sink}-checkpoint"
        if sink == "hapax":
            return started(frame, self.servers, self.topic, checkpoint)
        writer = frame.writeStream.format("naive").option("folder", str(self.folder / "naive"))
        return (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )

    def values(self, sink: str) -> list[bytes]:
        if sink == "naive":
            return sorted(committed_values(self.folder / "naive"))
        return sorted(one.value or b"" for one in topics.read_back(self.servers, self.topic))


@pytest.fixture
def sinks(sandbox, unique, tmp_path):
    topic = unique("out")
    sandbox.create_topic(topic)
    return Sinks(sandbox.bootstrap_servers, topic, tmp_path)


def broken(spark: SparkSession, servers: str, given: str, what: str) -> tuple[DataFrame, DataFrame]:
    """Return the frame that breaks half-way, and the same when it is mended."""
    if what == "reader":
        reader = spark.readStream.format("counting")
        frames = [reader.option("raises", raises).load() for raises in ("true", "false")]
        return frames[0].selectExpr("binary(value) value"), frames[1].selectExpr(
            "binary(value) value"
        )
    healthy = records(spark, servers, given).select("value")
    return {
        "function": lambda frame: frame.mapInArrow(_raising, frame.schema),
        "expression": expression_raises,
    }[what](healthy), healthy


def published_whole(sinks: Sinks, healthy: DataFrame) -> None:
    """Only the naive sink has published part of the rows; a whole run then adds the rest."""
    await_(lambda: bool(sinks.values("naive")), 20, lambda: "the naive task never ended")
    assert sinks.values("hapax") == []

    for sink in ("naive", "hapax"):
        assert sinks.start(healthy, sink).awaitTermination(QUERY_TIMEOUT_S)
    assert 0 < len(sinks.values("naive")) < ROWS
    assert sinks.values("hapax") == NUMBERS


@pytest.mark.row("SP3")
@pytest.mark.parametrize("what", ["reader", "function", "expression"])
def test_rows_before_a_failure_are_published_with_the_rest_or_not_at_all(spark, given, sinks, what):
    breaking, healthy = broken(spark, sinks.servers, given, what)

    for sink in ("naive", "hapax"):
        with pytest.raises(StreamingQueryException):
            sinks.start(breaking, sink).awaitTermination(QUERY_TIMEOUT_S)
    published_whole(sinks, healthy)


@pytest.mark.row("SP3", "SP4")
def test_rows_before_a_stop_are_published_with_the_rest_or_not_at_all(
    spark, given, sinks, tmp_path
):
    healthy = records(spark, sinks.servers, given).select("value")

    for sink in ("naive", "hapax"):
        flag = tmp_path / f"{sink}-half"
        query = sinks.start(slow(flag)(healthy), sink)
        await_(flag.exists, 60, lambda: "the rows never came")
        query.stop()
    published_whole(sinks, healthy)


# -- Input topics of a DataFrame pipeline that are not what its checkpoint has read --------

OLD = [b"old %03d" % number for number in range(100)]
NEW = [b"new %03d" % number for number in range(150)]


class Stage:
    """An input, an output, and a checkpoint; each start of the pipeline reads what there is."""

    def __init__(self, sandbox: Sandbox, app: str, folder: Path) -> None:
        self.sandbox, self.app, self.folder = sandbox, app, folder
        self.given, self.out = f"{app}-in", f"{app}-out"
        self.starts = 0
        sandbox.create_topics(SandboxTopic(self.given), SandboxTopic(self.out))
        topics.committed(sandbox.bootstrap_servers, app, self.out)  # coordinators are there

    def write(self, *values: bytes) -> None:
        topics.produce(self.sandbox.bootstrap_servers, self.given, *values)

    def recreate(self, *values: bytes) -> None:
        delete_topic(self.sandbox.bootstrap_servers, self.given)
        self.sandbox.create_topic(self.given)
        self.write(*values)

    def ended(self, code: int, app: str = "", **more: str) -> SparkProcess:
        """Return a bounded run that left with this code."""
        driver = self.started(app, **more)
        try:
            driver.ends_with(code)
        finally:
            driver.close()
        return driver

    def started(self, app: str = "", **more: str) -> SparkProcess:
        values = environment(
            self.sandbox,
            app or self.app,
            self.given,
            self.out,
            self.folder / "checkpoint",
            HAPAX_SPARK__DATAFRAME="tests.kit.pipeline_process:unchanged",
            **{"HAPAX_STOP_AFTER__AT_END": "true", **more},
        )
        self.starts += 1
        driver = pipeline_process(self.folder, values, f"driver-{self.starts}")
        driver.start()
        return driver

    def values(self) -> list[bytes | None]:
        found = topics.read_back(self.sandbox.bootstrap_servers, self.out)
        return sorted((one.value for one in found), key=lambda value: value or b"")


@pytest.fixture
def stage(sandbox, unique, tmp_path):
    return Stage(sandbox, unique("logs"), tmp_path)


@pytest.mark.row("M1")
def test_an_input_recreated_longer_than_the_checkpoints_offset_leaves_with_6(stage):
    stage.write(*OLD)
    stage.ended(0)
    stage.recreate(*NEW)
    told = stage.ended(6).text()
    assert f"{stage.given}: the checkpoint's offsets belong to a topic that was deleted" in told
    assert "docs/dataframes.md, section Stops" in told
    assert stage.values() == OLD


def test_a_checkpoint_under_another_app_leaves_with_6_before_a_record_comes(stage, unique):
    stage.write(*OLD)
    stage.ended(0)
    other = unique("other")
    told = stage.ended(6, other).text()
    assert f"it belongs to HAPAX_APP={stage.app}, and HAPAX_APP={other} is another one" in told
    assert stage.values() == OLD


class Watched(HapaxSink):
    """The sink of a job of one's own whose environment names the topic that it reads."""

    @classmethod
    def name(cls) -> str:
        return "watched"

    @classmethod
    def check(cls, options: SinkOptions) -> SinkOptions:
        known = super().check(options)
        return msgspec.structs.replace(known, inputs=frozenset({options.named["path"]}))


@pytest.mark.row("M1")
def test_an_input_that_is_recreated_while_a_query_runs_is_not_published_from(spark, stage):
    servers, checkpoint = stage.sandbox.bootstrap_servers, stage.folder / "checkpoint"
    register(spark, Watched)
    frame = records(spark, servers, stage.given).select("value")

    def go() -> None:
        run(frame, servers, stage.out, checkpoint, sink="watched", path=stage.given)

    stage.write(*OLD)
    go()
    stage.recreate(*NEW)
    with pytest.raises(StreamingQueryException, match="belong to a topic that was deleted"):
        go()
    assert stage.values() == OLD


def test_a_log_that_was_cut_off_and_written_again_is_told_from_one_with_another_leader(tmp_path):
    with Sandbox() as sandbox:
        sandbox.create_topic("in")
        values = environment(sandbox, "a", "in", "out", tmp_path, HAPAX_ENGINE="spark")
        lookup = LogLookup(load_settings(values))
        topics.produce(sandbox.bootstrap_servers, "in", *OLD[:50])
        before = lookup.look(["in", "absent"])
        (broker,) = sandbox.kafka.brokers
        broker.kill()
        broker.start()  # the leader is the same one, of another epoch, which begins at 50
        broker.await_ready()
        topics.produce(sandbox.bootstrap_servers, "in", *NEW[:100])
        now = lookup.look(["in"])
        healthy, cut = {("in", 0): 50}, {("in", 0): 100}

        anchors = before.anchors(now, healthy)
        assert anchors == {("in", 0): (50, before.epochs["in"][0])}
        require_uncut(lookup.cut(anchors), healthy)
        with pytest.raises(PositionLostError, match="in/0: the checkpoint's offset is 100, but"):
            require_uncut(lookup.cut(before.anchors(now, cut)), cut)
        assert before.anchors(before, cut) == {}
        assert (before.topics, before.cluster) == (now.topics, now.cluster)
        assert list(before.topics) == ["in"]


@pytest.mark.parametrize("form", ["watermark", "join"])
def test_records_without_a_timestamp_are_counted_where_a_watermark_drops_them(spark, stage, form):
    values = environment(
        stage.sandbox, stage.app, stage.given, stage.out, stage.folder, HAPAX_ENGINE="spark"
    )
    topics.produce(
        stage.sandbox.bootstrap_servers,
        stage.given,
        *(topics.Given(b"%d" % n, timestamp_ms=-1 if n < 3 else 0) for n in range(10)),
    )
    read = query.read_input(spark, load_settings(values)).withWatermark("timestamp", "1 minute")
    result = read.dropDuplicatesWithinWatermark(["value"])
    if form == "join":
        result = read.alias("a").join(read.alias("b"), f.expr("a.offset = b.offset")).select("a.*")
    started_ = started(
        result.select("value"), stage.sandbox.bootstrap_servers, stage.out, stage.folder / "c"
    )
    assert started_.awaitTermination(QUERY_TIMEOUT_S)
    found = [query.numbers(json.loads(each.json), None) for each in started_.recentProgress]
    assert sum(each.untimed for each in found) == 3


def test_an_open_transaction_in_the_input_shows_while_a_query_idles(stage):
    with closing(Ports()) as ports:
        port = ports.reserve()
        driver = stage.started(
            HAPAX_STOP_AFTER__AT_END="false",
            HAPAX_TELEMETRY__PORT=str(port),
            HAPAX_TELEMETRY__LAG_INTERVAL="1s",
        )
        servers = stage.sandbox.bootstrap_servers
        held = f'hapax_last_stable_offset_lag{{partition="0",topic="{stage.given}"}} 25.0'
        try:
            stage.write(*OLD[:10])
            await_(lambda: driver.lines("micro_batch_completed"), 240, driver.text)
            with topics.produce_open(servers, stage.given, *OLD[10:15]):
                stage.write(*OLD[15:35])
                await_(lambda: held in metrics(port), 50, driver.text)
                assert stage.values() == OLD[:10]
                shown = metrics(port)
        finally:
            driver.close()
    assert (
        f'hapax_consumer_lag{{group="{stage.app}",partition="0",topic="{stage.given}"}} 0.0'
        in shown
    )
    assert f'hapax_open_transaction_seconds{{partition="0",topic="{stage.given}"}}' in shown


def metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return ""  # it starts


# -- the records form ---------------------------------------------------------------------


pipeline = a_route(kind=SparkProcess)


@pytest.mark.row("M1")
@pytest.mark.parametrize("again", [NEW, NEW[:20]], ids=["longer", "shorter"])
def test_an_input_that_is_recreated_under_a_driver_of_records_leaves_with_6(pipeline, again):
    driver = pipeline.worker()
    pipeline.write(*OLD)
    pipeline.await_outputs(len(OLD), 120)
    pipeline.await_lag_0()
    delete_topic(pipeline.bootstrap, pipeline.source)
    pipeline.sandbox.create_topic(pipeline.source)
    pipeline.write(*again)
    await_exit(driver, 6, pipeline.source, "deleted")
    assert sorted(one.value or b"" for one in pipeline.outputs()) == OLD
