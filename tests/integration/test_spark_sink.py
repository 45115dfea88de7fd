"""The sink of DataFrames."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ResourceType
from pyspark.errors import PySparkException, StreamingQueryException

from hapax.cluster.micro_batches import Marker, PublishedBatch
from hapax.core.errors import ConfigurationError, PositionLostError, StopError
from hapax.engines.spark.dataframe import query as spark_pipeline
from hapax.engines.spark.dataframe.parts import LanePlan, LaneReport, Publication, Publishing
from hapax.kafka.produce import micro_batch
from hapax.kafka.produce.micro_batch import MarkedTransaction
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.settings import load_settings
from hapax.spark import HapaxSink, open_publisher, publish_lanes, register
from tests.kit import topics
from tests.kit.dying_sinks import STEPS, DyingSink
from tests.kit.managed_process import required
from tests.kit.sink_parts import QUERY, batch, sink_settings, spool_of, staged
from tests.kit.spark_queries import records, run, started
from tests.kit.topics import configure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_every_row_is_published_once_with_its_micro_batch(spark, sandbox, unique, tmp_path):
    servers, given, out = sandbox.bootstrap_servers, unique("in"), unique("out")
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out, 2))
    topics.produce(servers, given, *(f"{n}".encode() for n in range(1000)))

    run(records(spark, servers, given).select("key", "value"), servers, out, tmp_path / "c")

    found = topics.read_back(servers, out)
    assert sorted(int(one.value or b"") for one in found) == list(range(1000))
    assert len({dict(one.headers)["hapax-batch"] for one in found}) == 1000
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
    assert json.loads((stage.checkpoint / "hapax" / "last.json").read_text())["repeated"] is True


@pytest.mark.row("SP7")
def test_a_lost_checkpoint_is_recognised(spark, stage):
    stage.write(b"a", b"b")
    stage.run(spark)
    shutil.rmtree(stage.checkpoint)
    with pytest.raises(StreamingQueryException, match="the checkpoint was lost or is another one"):
        stage.run(spark)
    shutil.rmtree(stage.checkpoint)
    topics.delete_group(stage.servers, f"{stage.out}--sink")
    with pytest.raises(StreamingQueryException, match="all of the input would be published again"):
        stage.run(spark)
    assert stage.values() == [b"a", b"b"]


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

    stage.run(spark, maxInlineBytes="1000")

    assert len(stage.values()) == 25_000
    assert list(spool.iterdir()) == []


def test_options_are_those_of_sparks_own_sink_where_the_sink_is_registered_as_spark_does_it(
    spark, stage
):
    spark.dataSource.register(HapaxSink)
    own = {"spoolLocation": str(stage.checkpoint / "s"), "MAXINLINEBYTES": "1", "report": "true"}
    kafka = {"security.protocol": "PLAINTEXT", "compression.type": "gzip", "linger.ms": "3"}
    kafka |= {"transaction.timeout.ms": "45000", "max.request.size": "2000000"}
    try:
        stage.write(b"a", b"b")
        stage.run(spark, **own, **{f"kafka.{name}": value for name, value in kafka.items()})
        assert stage.values() == [b"a", b"b"]
        assert len(list((stage.checkpoint / "s").glob("*/last.json"))) == 1
        stage.write(b"c")
        with pytest.raises(StreamingQueryException, match=r"in it hapax\.spark\.register"):
            stage.run(spark, publish="parallel")
    finally:
        register(spark)


def test_wrong_options_and_a_batch_write_are_refused_without_a_secret_being_shown(spark, stage):
    stage.write(b"a")
    for options, complaint in (
        ({"spool": "/s"}, r"option spool is unknown: did you mean spoolLocation\?"),
        ({"kafka.acks": "0"}, r"option kafka\.acks is refused: an output counts only when"),
        ({"kafka.sasl.jaas.config": 'password="hush-hush"'}, "use HAPAX_KAFKA__SECURITY__USERNAME"),
        ({"kafka.sasl.password": "hush-hush"}, "use HAPAX_KAFKA__SECURITY__PASSWORD, in the driv"),
        ({"transactionTimeout": "9"}, r'option transactionTimeout="9": the unit is missing'),
    ):
        with pytest.raises(StreamingQueryException, match=complaint) as refused:
            stage.run(spark, **options)
        assert "hush-hush" not in str(refused.value)
    assert stage.values() == []
    rows = spark.createDataFrame([(b"a",)], "value binary").write.format("hapax").mode("append")
    with pytest.raises(PySparkException, match=r"has no checkpoint.*use frame\.writeStream"):
        rows.save()


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
        frame.writeStream.format("noop").option("checkpointLocation", str(stage.checkpoint)).start()
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


# -- Lanes of the sink on a real broker, without Spark: killed at every commit, late, forgotten.


TASKS, ROWS = 4, 20
LANES = 2


class Killed(BaseException):
    """A process ends here, with all it has open."""


class App:
    """An app with its spool; each publication is that of a new process."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers, self.topic, self.folder = servers, topic, folder
        self.settings = sink_settings(servers, topic)
        self.plans: list[LanePlan] = []

    def publish(self, number: int, *, lanes: int = LANES, turned: bool = False) -> PublishedBatch:
        """Publish a micro-batch; ``turned``: its tasks have the rows in another order."""
        values = [b"%d-%d" % (number, row) for row in range(ROWS)]
        tasks = [values[task::TASKS] for task in range(TASKS)]
        spool = spool_of(self.folder)
        parcels = staged(spool, number, tasks[::-1] if turned else tasks)
        with open_publisher(self.settings) as publisher:
            publishing = Publishing(publisher, self.topic, self.topic, frozenset(), self.run, lanes)
            published = Publication(publishing, batch(number), spool, parcels).publish()
        spool.clear(number)
        return published

    def run(self, plans: Sequence[LanePlan]) -> list[LaneReport]:
        self.plans = list(plans)
        return [*publish_lanes(self.settings, plans)]

    def values(self) -> list[bytes]:
        return [one.value or b"" for one in topics.read_back(self.servers, self.topic)]

    def check(self, batches: int) -> None:
        found = topics.read_back(self.servers, self.topic)
        values = [one.value or b"" for one in found]
        wanted = [b"%d-%d" % (n, row) for n in range(batches) for row in range(ROWS)]
        assert sorted(values) == sorted(wanted)
        assert len({dict(one.headers)["hapax-batch"] for one in found}) == len(found)
        for number in range(batches):
            for task in range(TASKS):
                own = [b"%d-%d" % (number, row) for row in range(task, ROWS, TASKS)]
                assert [value for value in values if value in own] == own

    def marker(self) -> int | None:
        return topics.committed(self.servers, f"{self.topic}--sink", self.topic)[0]

    def lane_marker(self, lane: int) -> int | None:
        return topics.committed(self.servers, f"{self.topic}--sink/{lane}", self.topic)[0]


@pytest.fixture
def app(sandbox, unique, tmp_path):
    topic = unique("out")
    sandbox.create_topic(topic)
    return App(sandbox.bootstrap_servers, topic, tmp_path)


@pytest.fixture
def _a_transaction_for_each_parcel(monkeypatch):
    monkeypatch.setattr(micro_batch, "PART_OF_TIMEOUT", 1e9)


COMMITS = 1 + TASKS + 1
"""The choice of rows, each parcel, and the marker of all."""


class Killing:
    """Kills at one commit, before or after it took effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.seen = 0
        commit = MarkedTransaction.commit

        def killing(marked: MarkedTransaction, *arguments: Any) -> None:
            self.seen += 1
            if self.seen == at and not after:
                raise Killed
            commit(marked, *arguments)
            if self.seen == at:
                raise Killed

        monkeypatch.setattr(MarkedTransaction, "commit", killing)


@pytest.mark.usefixtures("_a_transaction_for_each_parcel")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, COMMITS + 1))
def test_killed_at_any_commit_the_next_start_publishes_the_rest_of_the_same_rows(
    app, monkeypatch, at, *, after
):
    with monkeypatch.context() as patch:
        killing = Killing(patch, at, after=after)
        with pytest.raises(Killed):
            app.publish(0)
    assert killing.seen == at
    # The next start has the rows in other tasks, and another number of lanes: 0 is together.
    app.publish(0, lanes=at % 4, turned=True)
    assert app.marker() == 1
    app.publish(1)
    app.check(2)
    assert list(app.folder.iterdir()) == []


def killed(app: App, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Publish micro-batch 0, and die after this step."""
    with monkeypatch.context() as patch:
        Killing(patch, step, after=True)
        with pytest.raises(Killed):
            app.publish(0)


@pytest.mark.usefixtures("_a_transaction_for_each_parcel")
def test_without_markers_of_lanes_a_repetition_doubles(app, monkeypatch):
    killed(app, monkeypatch, 3)
    monkeypatch.setattr(micro_batch, "published_parcels", lambda *_: 0)
    app.publish(0)
    assert len(app.values()) > len(set(app.values())) == ROWS


def test_an_attempt_that_comes_back_in_a_later_micro_batch_publishes_nothing(app):
    app.publish(0)
    late = app.plans
    app.publish(1)
    reports = [*publish_lanes(app.settings, late)]
    assert all("its marker belongs to" in report.problem for report in reports)
    app.check(2)


def test_an_attempt_that_comes_back_while_its_lane_publishes_costs_that_one_attempt(
    app, monkeypatch
):
    app.publish(0)
    late = list(app.plans)
    parcels = LanePlan.parcels

    def disturbed(plan: LanePlan) -> list[Any]:
        def giving(give: Callable[[], Any]) -> Iterator[Any]:
            yield from give()
            while late:
                with monkeypatch.context() as patch:
                    patch.setattr(LanePlan, "parcels", parcels)
                    [*publish_lanes(app.settings, [late.pop(0)])]

        return [partial(giving, give) for give in parcels(plan)]

    monkeypatch.setattr(LanePlan, "parcels", disturbed)
    assert app.publish(1).attempts == 2
    app.check(2)


def test_a_lane_whose_marker_is_gone_is_not_published(app, monkeypatch):
    killed(app, monkeypatch, 2)  # lane 0 has published
    topics.delete_group(app.servers, f"{app.topic}--sink/0")
    with pytest.raises(PositionLostError, match=r"in part \(0 of 2 .*its marker is gone"):
        app.publish(0)
    assert len(app.values()) == ROWS


def test_rows_that_were_fixed_and_are_gone_stop_it_and_say_what_is_published(app, monkeypatch):
    killed(app, monkeypatch, 1)
    gone = min(app.folder.glob("0-3-*.arrow"))
    content = gone.read_bytes()
    gone.unlink()
    with pytest.raises(PositionLostError, match=r"2 of 2 parcels of lane 0, 0 of 2 .*is missing"):
        app.publish(0)
    (app.folder / gone.name).write_bytes(content[:-9] + b"damaged!!")
    with pytest.raises(PositionLostError, match=r"2 of 2 .*0 of 2 .*does not hold the 5 rows"):
        app.publish(0)
    (app.folder / gone.name).write_bytes(content)
    app.publish(0)
    app.check(1)


def test_a_manifest_that_is_gone_or_damaged_stops_it(app, monkeypatch):
    killed(app, monkeypatch, 1)
    (manifest,) = app.folder.glob("*.manifest")
    content = manifest.read_bytes()
    manifest.write_bytes(content + b"x")
    with pytest.raises(PositionLostError, match="does not hold what was written"):
        app.publish(0, lanes=0)
    manifest.unlink()
    with pytest.raises(PositionLostError, match="cannot be read"):
        app.publish(0, lanes=0)
    manifest.write_bytes(content)
    app.publish(0, lanes=0)
    app.check(1)


def test_a_person_may_give_up_what_lanes_have_not_published(app, monkeypatch):
    killed(app, monkeypatch, 2)
    held = len(app.values())
    assert 0 < held < ROWS
    with open_publisher(app.settings) as publisher:
        publisher.overwrite(Marker(1, QUERY))
    late = [*publish_lanes(app.settings, app.plans)]
    assert all(report.problem for report in late)
    assert len(app.values()) == held
    app.publish(1)
    assert len(app.values()) == held + ROWS


def test_a_refresh_keeps_markers_and_what_is_fixed(app, monkeypatch):
    killed(app, monkeypatch, 2)
    before = app.lane_marker(0), app.lane_marker(1)
    with open_publisher(app.settings) as publisher:
        first, second = publisher.refresh(), publisher.refresh()
    assert first == second
    assert first is not None
    assert first.fixed is not None
    assert (app.lane_marker(0), app.lane_marker(1)) == before == (2, 0)
    app.publish(0)
    app.check(1)


def test_a_record_that_the_broker_refuses_is_named_with_what_is_published(
    sandbox, unique, tmp_path
):
    topic = unique("out")
    sandbox.create_topic(topic, config={"max.message.bytes": "100"})
    app = App(sandbox.bootstrap_servers, topic, tmp_path)
    with pytest.raises(
        StopError, match=r"0 of 2 parcels of lane 0.*a record was refused.*MSG_SIZE"
    ):
        app.publish(0)
    assert app.values() == []
    admin = AdminClient({"bootstrap.servers": app.servers, "log_level": 0})
    configure(admin, ResourceType.TOPIC, [topic], {"max.message.bytes": "100000"})
    app.publish(0)
    app.check(1)
