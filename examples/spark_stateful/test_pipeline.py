"""Each pipeline on a stream of its own: records from a folder, no Kafka, rows in memory."""

from __future__ import annotations

import importlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
SETTINGS = dict(line.split("=", 1) for line in (FOLDER / "settings.env").read_text().splitlines())
COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
NO_JSON = "no JSON"
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = "2026-03-01T20:00:00Z"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    sys.path.insert(0, str(FOLDER))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(FOLDER)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    for name, value in json.loads(SETTINGS["HAPAX_SPARK__PROPERTIES"]).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


class Stream:
    """A pipeline that is given records batch by batch."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        self.spark, self.folder, self.name, self.offset = spark, folder, name, 0
        (folder / "given").mkdir()

    def give(self, *values: dict[str, Any], topic: str = "orders") -> None:
        """Write one micro-batch; a record has the time that is in its value. And one of no JSON."""
        rows = [(b"", NO_JSON.encode(), topic, 1, self.offset, BEGAN)] * (self.offset == 0)
        for value in values:
            now = datetime.fromisoformat(value["at"]).astimezone(UTC)
            rows.append((b"", json.dumps(value).encode(), topic, 0, self.offset, now))
            self.offset += 1
        frame = self.spark.createDataFrame(rows, COLUMNS).coalesce(1)
        frame.write.mode("append").parquet(str(self.folder / "given"))

    def out(self) -> list[Any]:
        """Run to the end of what was given; return all values so far, sorted as text."""
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        pipeline = importlib.import_module(self.name).pipeline
        query = (
            pipeline(reader.parquet(str(self.folder / "given")))
            .selectExpr("cast(value as string) value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "out"))
        )
        assert query.awaitTermination(60)
        found = self.spark.read.schema("value string").parquet(str(self.folder / "out")).collect()
        return [json.loads(text) for text in sorted(row.value for row in found) if text != NO_JSON]


def test_a_minute_is_written_once_when_it_is_over(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "windows")
    stream.give({"shop": "north", "at": "2026-03-01T12:00:10Z", "cents": 500})
    stream.give({"shop": "north", "at": "2026-03-01T12:00:50Z", "cents": 250})
    assert stream.out() == []
    stream.give({"shop": "south", "at": LATER, "cents": 1})
    minute = {"shop": "north", "minute": "2026-03-01T12:00:00.000Z", "orders": 2, "cents": 750}
    assert stream.out() == [minute]
    stream.give({"shop": "north", "at": "2026-03-01T12:00:55Z", "cents": 9})
    assert stream.out() == [minute]


def test_an_order_leaves_with_its_payment_or_unpaid(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "join")
    stream.give(
        {"id": "o-1", "at": "2026-03-01T12:00:00Z", "cents": 5},
        {"id": "o-2", "at": "2026-03-01T12:00:00Z", "cents": 7},
    )
    stream.give({"order": "o-1", "at": "2026-03-01T12:09:00Z", "by": "card"}, topic="payments")
    stream.give({"order": "o-2", "at": "2026-03-01T12:11:00Z", "by": "card"}, topic="payments")
    assert stream.out() == [{"id": "o-1", "cents": 5, "by": "card"}]
    stream.give({"id": "o-3", "at": LATER, "cents": 9})
    assert len(stream.out()) == 1  # the other topic is silent: its payments may still come
    stream.give({"order": "o-3", "at": LATER, "by": "cash"}, topic="payments")
    assert len(stream.out()) == 2  # a start forgets how far each topic was: both must speak again
    stream.give({"id": "o-4", "at": LATER, "cents": 1})
    stream.give({"order": "o-0", "at": LATER, "by": "card"}, topic="payments")
    assert {"id": "o-2", "cents": 7, "by": "unpaid"} in stream.out()


def test_an_order_that_is_sent_again_passes_once(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "once")
    order = {"id": "o-1", "at": "2026-03-01T12:00:00Z"}
    stream.give(order, order, {"at": "2026-03-01T12:00:00Z"}, {"at": "2026-03-01T12:00:00Z"})
    stream.give(order | {"at": "2026-03-01T12:05:00Z"})
    assert len(stream.out()) == 3
    stream.give({"id": "o-2", "at": LATER})
    assert len(stream.out()) == 4  # and what is older than 10 minutes is forgotten
    stream.give(order | {"at": LATER})
    assert len(stream.out()) == 5


def test_a_basket_is_bought_or_abandoned(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "baskets")
    stream.give(
        {"user": "ann", "at": "2026-03-01T12:00:00Z", "item": "pen"},
        {"user": "bob", "at": "2026-03-01T12:00:00Z", "item": "ink"},
    )
    stream.give({"user": "ann", "at": "2026-03-01T12:20:00Z", "item": "nib"})
    stream.give({"user": "ann", "at": "2026-03-01T12:40:00Z"})
    bought = {"user": "ann", "items": ["pen", "nib"], "end": "bought"}
    bob = {"user": "bob", "items": ["ink"], "end": "abandoned"}
    assert stream.out() == [bought, bob]
