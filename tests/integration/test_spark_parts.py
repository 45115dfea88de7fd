"""A micro-batch that is published in parts by tasks of Spark, through kills at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from hapax.sandbox import SandboxTopic
from hapax.spark import HapaxSink, register
from tests.kit import topics
from tests.kit.dying_sinks import PART_STEPS, DyingPartsSink, LosingSink
from tests.kit.proof import at_length
from tests.kit.spark_queries import records, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


PARTITIONS = 4


@pytest.fixture
def stage(sandbox, unique, tmp_path):
    given, out = unique("in"), unique("out")
    sandbox.create_topics(SandboxTopic(given, PARTITIONS), SandboxTopic(out, PARTITIONS))
    return Stage(sandbox.bootstrap_servers, given, out, tmp_path / "checkpoint")


class Stage:
    """An input topic, an output topic, and the checkpoint between them."""

    def __init__(self, servers: str, given: str, out: str, checkpoint: Path) -> None:
        self.servers, self.given, self.out, self.checkpoint = servers, given, out, checkpoint
        self.written = 0

    @property
    def spool(self) -> Path:
        return self.checkpoint / "hapax"

    def write(self, count: int) -> None:
        """Write so many more numbers, spread over the partitions."""
        numbers = range(self.written, self.written + count)
        self.written += count
        topics.produce(
            self.servers,
            self.given,
            *(topics.Given(b"%d" % n, partition=n % PARTITIONS) for n in numbers),
        )

    def run(self, spark: SparkSession, sink: str = "hapax", **options: str) -> None:
        frame = records(spark, self.servers, self.given).select("value", "partition")
        options = {"publish": "parallel", "inlineBytesMax": "1000"} | options
        run(frame, self.servers, self.out, self.checkpoint, sink=sink, **options)

    def check(self) -> None:
        """Require each number once, in its order within its partition, and one header each."""
        found = topics.read_back(self.servers, self.out)
        numbers = [int(one.value or b"") for one in found]
        assert sorted(numbers) == list(range(self.written))
        for partition in range(PARTITIONS):
            own = [int(one.value or b"") for one in found if one.partition == partition]
            assert own == sorted(own)
        assert len({dict(one.headers)["hapax-batch"] for one in found}) == self.written

    def lanes(self) -> dict[int, int | None]:
        """Return what the markers of the first lanes say."""
        groups = {lane: f"{self.out}--sink/{lane}" for lane in range(PARTITIONS)}
        return {
            lane: topics.committed(self.servers, group, self.out)[0]
            for lane, group in groups.items()
        }


def test_every_row_is_published_once_in_parts_and_in_the_order_of_its_task(spark, stage):
    for batch in range(3):
        stage.write(4000)
        stage.run(spark)
        stage.check()
        assert topics.committed(stage.servers, f"{stage.out}--sink", stage.out)[0] == batch + 1
    assert list(stage.lanes().values()) == [2, 2, None, None]
    assert list(stage.spool.iterdir()) == []


@pytest.mark.long
@pytest.mark.rounds
@pytest.mark.parametrize("mode", ["parallel", pytest.param("together", marks=at_length)])
def test_a_micro_batch_in_parts_is_published_once_wherever_it_is_killed(spark, stage, mode):
    register(spark, DyingPartsSink)
    stage.checkpoint.mkdir()
    for step in PART_STEPS:
        stage.write(2000)
        (stage.checkpoint / "step").write_text(step)
        killed = "the micro-batch in parts failed" if step == "task" else "crashed"
        with pytest.raises(StreamingQueryException, match=killed):
            stage.run(spark, "dying-parts")
        # Whichever way the next start publishes, the rows that were fixed come first.
        stage.run(spark, publish=mode)
        stage.check()
    assert topics.committed(stage.servers, f"{stage.out}--sink", stage.out)[0] == len(PART_STEPS)
    assert list(stage.spool.iterdir()) == []


def test_a_fixed_file_that_is_gone_stops_the_query_until_it_is_back(spark, stage):
    register(spark, LosingSink)
    stage.write(2000)
    lost = r"PositionLostError: micro-batch 0 .* in part \(.*is missing"
    with pytest.raises(StreamingQueryException, match=lost):
        stage.run(spark, "losing")
    with pytest.raises(StreamingQueryException, match=lost):
        stage.run(spark)
    (gone,) = stage.checkpoint.glob("*.arrow")
    gone.rename(stage.spool / gone.name)
    stage.run(spark)
    stage.check()


def test_a_few_rows_are_published_in_one_transaction(spark, stage):
    stage.write(100)
    stage.run(spark, inlineBytesMax="1000000")
    stage.check()
    assert set(stage.lanes().values()) == {None}


def test_parts_without_the_process_of_the_driver_are_refused(spark, stage):
    class Alone(HapaxSink):
        @classmethod
        def name(cls) -> str:
            return "alone"

    spark.dataSource.register(Alone)  # as Spark Connect would
    stage.write(100)
    with pytest.raises(StreamingQueryException, match="choose together"):
        stage.run(spark, "alone")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"partition": "99"}, "a row names partition 99 of topic .*, which has 4"),
        ({"value": "repeat('x', 2000000)"}, "has 2,000,000 bytes, and topic .* takes 1,048,588"),
        ({"topic": "'absent-topic'"}, "topic absent-topic does not exist"),
        ({"timestamp": "timestamp'9999-01-01'"}, "a row has a timestamp .*after.max.ms=3600000"),
        (
            {"headers": "array(struct(concat('a', char(0), 'b') as key, value))"},
            "holds a NUL character",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_refused_before_any_is_fixed(spark, stage, bad, words):
    stage.write(400)
    columns = {"value": "value", "partition": "partition"} | bad
    frame = records(spark, stage.servers, stage.given).selectExpr(
        *(f"{text} as {name}" for name, text in columns.items())
    )
    options = {"publish": "parallel", "inlineBytesMax": "1000"}
    with pytest.raises(StreamingQueryException, match=words):
        run(frame, stage.servers, stage.out, stage.checkpoint, **options)
    stage.run(spark)  # the pipeline is corrected
    stage.check()
