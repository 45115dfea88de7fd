"""DataFrame pipelines as processes."""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException

from hapax.sandbox import SandboxTopic
from hapax.sandbox.processes import Ports
from hapax.spark import HapaxSink, register
from tests.kit import topics
from tests.kit.at_work import QUICK, at_work, await_told
from tests.kit.dying_sinks import PART_STEPS, DyingPartsSink, LosingSink
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import metric
from tests.kit.probes import ask, free_port
from tests.kit.proof import at_length
from tests.kit.routes import a_flow
from tests.kit.spark_process import SparkProcess
from tests.kit.spark_queries import records, run as run_query
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# -- A pipeline as the service runs it: a process of its own, killed and asked to stop -----


@pytest.mark.row("SP4", "SP27")
def test_a_pipeline_is_ready_tells_its_numbers_and_stops_when_asked(sandbox, unique, tmp_path):
    given, out, servers = unique("in"), unique("out"), sandbox.bootstrap_servers
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out))
    topics.produce(servers, given, *(b"%d" % number for number in range(100)))
    ports = Ports()
    port = ports.reserve()
    values = environment(sandbox, out, given, out, tmp_path / "c", HAPAX_TELEMETRY__PORT=str(port))
    driver = pipeline_process(tmp_path, values)
    driver.start()
    try:
        await_(lambda: bool(driver.lines("micro_batch_completed")), 120, driver.text)
        metrics = _got(port, "/metrics")
        ready = _got(port, "/readyz")
        code = driver.terminate()
        driver.await_gone()
    finally:
        driver.close()
        ports.close()
    assert code == 0
    assert json.loads(ready)["ok"] is True
    (line,) = driver.lines("micro_batch_completed")
    assert line["inputs"] == {given: 100}
    assert line["outputs"] == {out: 100}
    assert f'hapax_records_produced_total{{topic="{out}"}} 100.0' in metrics
    assert 'hapax_micro_batches_total{outcome="published"} 1.0' in metrics
    assert len(topics.read_back(servers, out)) == 100
    more = f"{given}-more"
    sandbox.create_topics(SandboxTopic(more, 2))
    elsewhere = values | {"HAPAX_SPARK__CHECKPOINT": str(tmp_path / "other")}
    records_form = {name: text for name, text in values.items() if "SPARK" not in name}
    for changed, exit_code, why in (
        (elsewhere, 6, "the checkpoint was lost or is another one"),
        (values | {"HAPAX_INPUT__TOPICS": more}, 2, f"lacks {given}, of which the checkpoint"),
        (records_form | {"HAPAX_ENGINE": "worker"}, 3, f"the DataFrame form of HAPAX_APP={out}"),
    ):
        other = pipeline_process(tmp_path, changed, f"exit-{exit_code}")
        other.start()
        other.ends_with(exit_code)
        assert why in other.text()


def test_a_pipeline_whose_records_form_has_worked_is_not_begun_again(sandbox, unique, tmp_path):
    given, out, servers = unique("in"), unique("out"), sandbox.bootstrap_servers
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out))
    group = Consumer({"bootstrap.servers": servers, "group.id": out})
    group.commit(offsets=[TopicPartition(given, 0, 0)], asynchronous=False)
    values = environment(sandbox, out, given, out, tmp_path / "c")
    driver = pipeline_process(tmp_path, values)
    driver.start()
    driver.ends_with(3)
    assert f"the records form of HAPAX_APP={out} has worked here" in driver.text()


def _got(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read(), "utf-8")


# -- A trickle on Spark: tasks stay, so few are needed, and each event has its effect once.
# Its tests share one flow and one driver, whose ranges may last far longer than any test waits.


EVENTS_PER_S = 200
RECORDS, PER_RANGE = 2000, 100
"""A range for each round of a driver whose tasks do not stay would hold some 15."""
KILLS = 3
RANGE_S = 60
LEAVES_WITHIN_S = 20.0

flow = a_flow(scope="module", SPARK__RANGE_INTERVAL=f"{RANGE_S}s", **QUICK)


@pytest.fixture
def driver(flow):
    """Return the driver, with events flowing and its tasks staying."""
    driver = next((one for one in flow.workers if isinstance(one, SparkProcess)), None)
    if driver is None:
        driver = flow.start(SparkProcess, "s-0")
        flow.feed(PARTITIONS)
        await_told(driver, "range_completed", 2)  # one for each lane: what comes now finds it warm
    flow.feed_beside(EVENTS_PER_S)
    moved(flow, 50)
    yield driver
    flow.stop_feeding()


def committed(flow: Flow) -> int:
    return sum(offset or 0 for offset in flow.committed().values())


def moved(flow: Flow, records: int) -> None:
    """Wait until so many records more are committed; reports are of no use while a task stays."""
    until = committed(flow) + records
    await_(lambda: committed(flow) >= until, 120, flow.workers[0].text)


def test_a_trickle_is_the_work_of_few_tasks(flow, driver):
    ranges, before = len(driver.lines("range_completed")), committed(flow)
    moved(flow, RECORDS)
    records = committed(flow) - before
    flow.stop_feeding()
    flow.await_lag_0()
    await_(lambda: len(driver.lines("range_completed")) >= ranges + 2, 30, driver.text)
    assert records / (len(driver.lines("range_completed")) - ranges) > PER_RANGE
    assert flow.judge().anomalies == {}


@pytest.mark.row("SP2")
def test_a_python_process_killed_while_its_task_stays_doubles_and_loses_nothing(flow, driver):
    rng, before = random.Random(3), len(driver.lines("task_lost"))
    deadline_s = time.monotonic() + 120
    # Of a pool's processes some have no task: killing those costs nothing.
    while len(driver.lines("task_lost")) < before + KILLS and time.monotonic() < deadline_s:
        moved(flow, 100)
        driver.strike_one(signal.SIGKILL, rng)
    flow.stop_feeding()
    flow.await_lag_0()
    assert flow.judge().anomalies == {}
    assert len(driver.lines("task_lost")) >= before + KILLS


def test_a_driver_that_is_asked_to_stop_recalls_tasks_that_would_stay(flow, driver, in_time):
    lost = len(driver.lines("task_lost"))
    driver.process.terminate()
    began_s = time.monotonic()
    driver.ends_with(0)
    in_time(time.monotonic() - began_s, LEAVES_WITHIN_S)
    assert driver.lines("batch_aborted") == []
    assert len(driver.lines("task_lost")) == lost
    driver.start()
    flow.stop_feeding()
    flow.await_lag_0()
    assert flow.judge().anomalies == {}


# -- What the status page of a real driver says of Spark, and where it leads ---------------

PROPERTIES = {"spark.driver.memory": "512m", "spark.ui.enabled": "true", "spark.ui.port": "0"}
STATUS_RECORDS = 20_000


def test_a_driver_shows_executors_lanes_and_where_sparks_own_pages_are(route_of):
    port = free_port()
    route = route_of(
        3, kind=SparkProcess, TELEMETRY__PORT=str(port), SPARK__PROPERTIES=json.dumps(PROPERTIES)
    )
    route.write(*(b"%d" % number for number in range(STATUS_RECORDS)))
    driver = at_work(route.worker("s-0"), 1)
    route.await_lag_0()

    def spark() -> dict[str, Any]:
        return dict(json.loads(ask(port, "/status.json")[1])["spark"])

    def idle() -> bool:
        return all(lane["last_range"] and not lane["range"] for lane in spark()["lanes"])

    await_(idle, 30, driver.text)
    told = spark()
    (executor,) = told["executors"]
    assert (executor["name"], executor["cores"]) == ("driver", 2)
    assert not told["waits_for_executors"]
    assert len(told["lanes"]) == 2
    assert {lane["last_range"]["outcome"] for lane in told["lanes"]} == {"done"}
    places = [one for lane in told["lanes"] for one in lane["partitions"]]
    assert {one["partition"]: one["position"] for one in places} == route.committed()
    exposition = ask(port, "/metrics")[1]
    assert metric(exposition, "hapax_executors") == 1
    assert metric(exposition, "hapax_ranges_in_flight") == 0
    status, _ = ask(int(told["ui"].rpartition(":")[2]), "/jobs/")
    assert status == HTTPStatus.OK
    assert driver.terminate(60) == 0


# -- A micro-batch that is published in parts by tasks of Spark, through kills at every step


IN_PARTS = 4


@pytest.fixture
def stage(sandbox, unique, tmp_path):
    given, out = unique("in"), unique("out")
    sandbox.create_topics(SandboxTopic(given, IN_PARTS), SandboxTopic(out, IN_PARTS))
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
        numbers = range(self.written, self.written + count)
        self.written += count
        topics.produce(
            self.servers,
            self.given,
            *(topics.Given(b"%d" % n, partition=n % IN_PARTS) for n in numbers),
        )

    def run(self, spark: SparkSession, sink: str = "hapax", **options: str) -> None:
        frame = records(spark, self.servers, self.given).select("value", "partition")
        options = {"publish": "parallel", "maxInlineBytes": "1000"} | options
        run_query(frame, self.servers, self.out, self.checkpoint, sink=sink, **options)

    def check(self) -> None:
        """Require each number once, in its order within its partition, and one header each."""
        found = topics.read_back(self.servers, self.out)
        assert sorted([int(one.value or b"") for one in found]) == list(range(self.written))
        for partition in range(IN_PARTS):
            own = [int(one.value or b"") for one in found if one.partition == partition]
            assert own == sorted(own)
        assert len({dict(one.headers)["hapax-batch"] for one in found}) == self.written

    def lanes(self) -> dict[int, int | None]:
        """Return what the markers of the first lanes say."""
        groups = {lane: f"{self.out}--sink/{lane}" for lane in range(IN_PARTS)}
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
    stage.run(spark, maxInlineBytes="1000000")
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
    options = {"publish": "parallel", "maxInlineBytes": "1000"}
    with pytest.raises(StreamingQueryException, match=words):
        run_query(frame, stage.servers, stage.out, stage.checkpoint, **options)
    stage.run(spark)  # the pipeline is corrected
    stage.check()
