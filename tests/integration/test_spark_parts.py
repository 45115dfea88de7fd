"""A micro-batch that is published in parts by tasks of Spark, through kills at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit import topics
from tests.kit.spark_queries import records, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from hapax.sandbox import Sandbox

PARTITIONS = 4


@pytest.fixture
def stage(sandbox: Sandbox, unique: Callable[[str], str], tmp_path: Path) -> Stage:
    given, out = unique("in"), unique("out")
    sandbox.create_topic(given, partitions=PARTITIONS)
    sandbox.create_topic(out, partitions=PARTITIONS)
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


def test_every_row_is_published_once_in_parts_and_in_the_order_of_its_task(
    spark: SparkSession, stage: Stage
) -> None:
    for batch in range(3):
        stage.write(4000)
        stage.run(spark)
        stage.check()
        assert topics.committed(stage.servers, f"{stage.out}--sink", stage.out)[0] == batch + 1
    assert list(stage.lanes().values()) == [2, 2, None, None]
    assert list(stage.spool.iterdir()) == []
