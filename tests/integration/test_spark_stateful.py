"""Pipelines with state, as in examples/spark_stateful: killed, started again, each result once."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from hapax.sandbox import Sandbox, SandboxTopic
from tests.kit import topics
from tests.kit.managed_process import clean_environment
from tests.kit.naive_pipeline import PIPELINES
from tests.kit.pipeline_process import environment
from tests.kit.proof import at_length, rounds
from tests.kit.spark_process import SPARK, SparkProcess, executors
from tests.kit.stateful import SHAPES, Feed, Shape
from tests.kit.topics import Given
from tests.kit.waiting import WORDS_MAX, await_

# Pipelines with state as processes, killed while a micro-batch is being written.
#
# The moment is the same for the service and for Spark's own Kafka sink: the output's partition has
# just grown, so records of a micro-batch are in the log and its end is not in the checkpoint yet.


WITHIN_S = 240.0
WORKER_KILLS = 3
"""Fewer than a task has attempts."""
EVENTS_OF_BATCH = 80


class Route:
    """One shape's topics, what was written to them, and where its checkpoint is."""

    def __init__(
        self, sandbox: Sandbox, shape: Shape, stem: str, folder: Path, events: int
    ) -> None:
        self.sandbox, self.shape, self.folder = sandbox, shape, folder
        self.servers = sandbox.bootstrap_servers
        self.app = f"{stem}-{shape.name}"
        self.out = f"{self.app}-out"
        self.checkpoint = folder / f"{shape.name}-checkpoint"
        self.inputs = [f"{self.app}-{ending}" for ending in shape.topics]
        self.feed: Feed = shape.feed(events)
        self.batch_max = sum(map(len, self.feed.given.values())) * EVENTS_OF_BATCH // events
        inputs = [SandboxTopic(topic, 2, topics.FOREVER) for topic in self.inputs]
        sandbox.create_topics(*inputs, SandboxTopic(self.out))
        self.write(self.feed.given)

    def write(self, given: dict[str, list[Given]]) -> None:
        for ending, records in given.items():
            topics.produce(self.servers, f"{self.app}-{ending}", *records)

    def environment(self, **more: str) -> dict[str, str]:
        settings = {
            "HAPAX_SPARK__DATAFRAME": self.shape.dataframe,
            "HAPAX_SPARK__BATCH_RECORDS_MAX": str(self.batch_max),
            "HAPAX_SPARK__PROPERTIES": json.dumps(self.shape.properties),
            # A Python process that is killed costs its task, and Spark tries the task again.
            "HAPAX_SPARK__MASTER": "local[2,4]",
        }
        topics = (self.app, ",".join(self.inputs), self.out)
        return environment(self.sandbox, *topics, self.checkpoint, **settings | more)

    def on_cluster(self) -> dict[str, str]:
        """Return the variables that run it on the sandbox's cluster, state on this disk."""
        cluster = self.sandbox.spark.environment()
        properties = json.loads(cluster["HAPAX_SPARK__PROPERTIES"])
        return cluster | {
            "HAPAX_SPARK__PROPERTIES": json.dumps(self.shape.properties | properties),
            "HAPAX_SPARK__CHECKPOINT": self.checkpoint.as_uri(),
            "HAPAX_SPARK__EXECUTOR_TIMEOUT": "3m",  # of a machine that does other work, too
        }

    def found(self) -> Counter[bytes]:
        return Counter(one.value or b"" for one in topics.read_back(self.servers, self.out))

    def under_way(self) -> bool:
        """Whether the checkpoint knows of a micro-batch that has not come to its end."""
        begun, ended = (_newest(self.checkpoint / name) for name in ("offsets", "commits"))
        return begun > ended


class NaiveProcess(SparkProcess):
    """Spark's own Kafka sink, with the same inputs, functions, checkpoints and master."""

    command = ("-m", "tests.kit.naive_pipeline")

    def __init__(self, routes: list[Route], log: Path) -> None:
        values = [SPARK | route.environment() for route in routes]
        pipelines = [
            {name: text for name, text in one.items() if name.startswith("HAPAX_")}
            for one in values
        ]
        super().__init__({**clean_environment(), PIPELINES: json.dumps(pipelines)}, "naive", log)

    def keep_up(self) -> None:
        """Start it, and again when it was killed."""
        if not self.running:
            ended = self._process is not None and self.process.returncode != -signal.SIGKILL
            assert not ended, self.text()[-WORDS_MAX:]
            self.start()


class Driver:
    """The process of a route, started as often as it is killed.

    kills      of the driver and all that belongs to it, of the driver alone, or of an executor
    under_way  how many of these found a micro-batch begun and not ended
    workers    Python processes that were killed
    starts     of the driver, the first included
    """

    def __init__(self, route: Route, settings: dict[str, str]) -> None:
        self.route = route
        values, log = route.environment(**settings), route.folder / "driver.log"
        self.process = SparkProcess(values, "driver", log)
        self.kills = self.under_way = self.workers = self.starts = 0

    def __str__(self) -> str:
        repeated = sum(bool(line["repeated"]) for line in self.batches())
        return (
            f"{self.route.shape.name}: {self.kills} kills, {self.under_way} with a micro-batch"
            f" under way, and {self.workers} Python processes; {self.starts} starts, {repeated}"
            " micro-batches repeated"
        )

    def start(self) -> None:
        if not self.process.running:
            self.process.start()
            self.starts += 1

    def kill_in_a_micro_batch(self, *, alone: bool = False) -> None:
        """Kill it all, or the driver alone, when the output grows."""
        await_growth(self.route, self.start)
        if alone:
            self.process.process.kill()
            self.process.await_gone()
        else:
            self.process.kill()
        self.kills += 1
        self.under_way += self.route.under_way()

    def kill_workers(self, rng: random.Random) -> None:
        """Kill all Python processes, again and again, wherever they are, once there is state."""
        await_growth(self.route, self.start)
        for _ in range(WORKER_KILLS):
            self._await_next(len(self.batches()))
            time.sleep(rng.uniform(0.0, 0.3))  # any moment of a micro-batch
            self.workers += self.process.strike(signal.SIGKILL, "worker")

    def _await_next(self, before: int) -> None:
        """Wait for one more micro-batch than before, or start the driver if it has died."""
        self.start()
        await_(
            lambda: len(self.batches()) > before or not self.process.running,
            WITHIN_S,
            self.process.text,
        )
        self.start()

    def kill_executors(self, count: int) -> None:
        """Kill so many executors of the cluster when the output grows, whatever they work on."""
        self.start()
        pids = [worker.pid for worker in self.route.sandbox.spark.workers]
        await_(lambda: len(executors(pids)) >= count, WITHIN_S, self.process.text)
        await_growth(self.route, self.start)
        for executor in executors(pids)[:count]:
            executor.kill()
            self.kills += 1
            self.under_way += self.route.under_way()

    def kill_around(self) -> None:
        """Kill a worker daemon of the cluster, then its master, each when the output grows."""
        spark = self.route.sandbox.spark
        for daemon in (spark.workers[0], spark.master):
            await_growth(self.route, self.start)
            daemon.kill()
            self.kills += 1
            daemon.start()
        spark.await_ready()

    def finish(self) -> None:
        """Start it if it is gone; wait for as many rows as must come, while micro-batches do."""
        route = self.route
        wanted = route.feed.expected.total()

        while True:
            before = len(self.batches())
            written = sum(topics.ends(route.servers, route.out).values())
            if written >= wanted and route.found().total() >= wanted:
                return
            self._await_next(before)

    def batches(self) -> list[dict[str, object]]:
        return self.process.lines("micro_batch_completed")

    def remembers(self) -> bool:
        """Whether most micro-batches before the last ended with something in the state."""
        rows = [line["state_rows"] for line in self.batches() if line["lag"]]
        return sum(map(bool, rows)) > len(rows) / 2

    def late(self) -> int:
        """Return how many rows came too late, by its log."""
        return sum(int(str(line["late"])) for line in self.batches())


@contextmanager
def driver_of(route: Route, settings: dict[str, str] | None = None) -> Iterator[Driver]:
    """Give the driver of a route; nothing of it is left after the block."""
    driver = Driver(route, settings or {})
    try:
        yield driver
    finally:
        driver.process.close()


def await_growth(route: Route, keep_up: Callable[[], object]) -> None:
    """Wait until the output has more than now, transactions that are open included.

    The moment lasts some ten milliseconds; ``keep_up`` is called all the time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": route.servers,
            "group.id": "growth",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )

    def end() -> int:
        keep_up()
        return int(consumer.get_watermark_offsets(TopicPartition(route.out, 0), 10)[1])

    before, deadline_s = end(), time.monotonic() + WITHIN_S
    try:
        while end() <= before:
            assert time.monotonic() < deadline_s, f"nothing was written to {route.out}"
            time.sleep(0.003)
    finally:
        consumer.close()


def _newest(folder: Path) -> int:
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


EVENTS = 800
TRIES = 5


@pytest.mark.row("SP2", "SP5")
@pytest.mark.long
@pytest.mark.rounds
@at_length
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_state_is_recovered_and_each_result_comes_out_once_through_kills(
    sandbox, unique, tmp_path, shape, proof
):
    route = Route(sandbox, shape, unique("state"), tmp_path, rounds(EVENTS, 4 * EVENTS))
    with driver_of(route) as driver:
        driver.kill_workers(random.Random(shape.name))
        for number in range(rounds(1, 6)):
            # The driver alone, or with all that it has started: either first.
            driver.kill_in_a_micro_batch(alone=(number + SHAPES.index(shape)) % 2 == 0)
        driver.finish()
        # What comes after all windows are closed is dropped, and counted.
        route.write(route.feed.late)
        await_(lambda: driver.late() > 0, 60, driver.process.text)
        assert driver.process.terminate() == 0
    proof.note(struck=driver.kills + driver.workers, note=str(driver))
    assert route.found() == route.feed.expected
    assert driver.late() == 1
    assert driver.remembers()


@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_sparks_own_sink_doubles_results_of_each_shape_when_it_is_killed_while_it_writes(
    sandbox, unique, tmp_path
):
    stem = unique("naive")
    shapes = SHAPES[: rounds(1, len(SHAPES))]
    routes = [Route(sandbox, shape, stem, tmp_path, EVENTS) for shape in shapes]
    process = NaiveProcess(routes, tmp_path / "naive.log")
    try:
        for route in routes:
            # A kill that comes after the end of the micro-batch is none; mostly the first is one.
            for _ in range(TRIES):
                await_growth(route, process.keep_up)
                process.kill()
                if route.under_way():
                    break
            else:
                pytest.fail(f"{route.shape.name}: {TRIES} kills came too late")
        process.start()
        process.finish(WITHIN_S)
    finally:
        process.close()
    for route in routes:
        found, expected = route.found(), route.feed.expected
        assert found - expected, f"{route.shape.name}: nothing is doubled"
        assert not expected - found, route.shape.name


@pytest.mark.row("SP2", "SP28", "SP29", "SP30")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_state_is_recovered_when_executors_a_daemon_and_the_master_of_a_cluster_are_killed(
    unique, tmp_path, proof
):
    shape = SHAPES[-1]
    with Sandbox(redis=False, spark_workers=2) as sandbox:
        route = Route(sandbox, shape, unique("cluster"), tmp_path, EVENTS)
        with driver_of(route, settings=route.on_cluster()) as driver:
            driver.kill_executors(1)
            driver.kill_executors(2)
            driver.kill_around()
            driver.finish()
            assert driver.process.terminate() == 0
        assert route.found() == route.feed.expected
    assert driver.remembers()
    assert driver.starts == 1, "the driver died with its executors"
    proof.note(struck=driver.kills, note=f"{driver}, on a cluster")
