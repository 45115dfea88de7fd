"""Records form of Spark: what it promises, its groups, its stops."""

import platform
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from hapax.core.records import Record
from tests.kit.at_work import at_work, refused, untouched
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.managed_process import WorkerProcess
from tests.kit.orders import told
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header
from tests.kit.proof import at_length
from tests.kit.routes import a_route, routes_of
from tests.kit.shapes import SHAPES
from tests.kit.spark_process import SparkProcess, ours
from tests.kit.topics import Given, produce_aborted, produce_committed
from tests.kit.waiting import await_

# -- The records form does what the worker does: same environment, same input, same output -

THREE = 3


class Both(NamedTuple):
    """One input, and what each engine made of it."""

    worker: Done
    spark: Done


def shapes(partition: int) -> list[Given]:
    """Return all shapes and a pair of twins, which are of one partition: whose is first is sure."""
    twin = Given(b"a twin", b"key", (("message-id", b"x-%d" % partition),))
    to_2 = Given(b"to 2", b"key", (told({"partition": 2}),))
    every = (*SHAPES.values(), to_2, twin, twin)
    return [shape._replace(partition=partition) for shape in every]


def ordinary(start: int, count: int) -> list[Given]:
    return [
        Given(b"%d" % number, b"key-%d" % (number % 17), partition=number % THREE)
        for number in range(start, start + count)
    ]


@pytest.fixture(scope="module")
def both(sandbox, tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    settings: dict[str, Any] = {
        "DEDUP__REDIS_URL": sandbox.redis_url,
        "OUTPUT__PARTITIONER": "consistent_random",
        "TRANSACTION__RECORDS_MAX": "300",
    }
    worker = PipelineUnderTest(sandbox, folder, partitions=THREE, **settings)
    settings["INPUT__TOPICS"] = worker.source
    spark = PipelineUnderTest(sandbox, folder, partitions=THREE, kind=SparkProcess, **settings)
    worker.create()
    spark.create()
    spark.source = worker.source
    worker.write(*ordinary(0, 1000))
    produce_committed(
        worker.bootstrap,
        worker.source,
        *(shape for number in range(THREE) for shape in shapes(number)),
    )
    produce_aborted(worker.bootstrap, worker.source, *ordinary(5000, 30))
    worker.write(*ordinary(1000, 1000))
    produce_aborted(worker.bootstrap, worker.source, *ordinary(6000, 30))
    try:
        yield Both(Done(worker, worker.run_to_end()), Done(spark, spark.run_to_end()))
    finally:
        worker.close()
        spark.close()


def comparable(record: Record) -> tuple[object, ...]:
    """Return what must not depend on the engine: where a record without key goes is chance."""
    place = record.partition if record.key else None
    headers = tuple(pair for pair in record.headers if pair[0] != "hapax-app")
    return record.key, record.value, record.timestamp_ms, headers, place


def ways(records: list[Record]) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Return for each input and output partition the offsets in the order of the output."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for record in records:
        partition, offset = header(record, "hapax-source").rsplit("/", 2)[1:]
        part = (dict(record.headers).get("hapax-part") or b"").decode()
        found[(partition, record.partition)].append((int(offset), part))
    return found


@pytest.mark.row("SP22")
def test_outputs_are_those_of_the_worker_in_every_byte(both):
    expected = Counter(map(comparable, both.worker.route.outputs()))
    assert Counter(map(comparable, both.spark.route.outputs())) == expected
    # One shape is filtered, one is ill, one has three outputs; of two twins one is dropped.
    assert expected.total() == 2000 + THREE * (len(SHAPES) + 1 - 2 + 2 + 1)


@pytest.mark.row("SP16")
def test_dead_letters_are_those_of_the_worker_but_for_the_name_of_the_app(both):
    expected = Counter(map(comparable, both.worker.route.dead()))
    dead = both.spark.route.dead()
    assert Counter(map(comparable, dead)) == expected
    assert expected.total() == THREE
    assert {header(each, "hapax-app") for each in dead} == {both.spark.route.app}


@pytest.mark.row("SP23")
def test_every_input_partition_keeps_its_order_in_each_output_partition(both):
    found = ways(both.spark.route.outputs())
    assert all(way == sorted(way) for way in found.values())
    assert len(found) == THREE**2


@pytest.mark.row("SP14", "SP19")
def test_both_committed_the_same_offsets_behind_markers_and_aborted_records(both):
    assert both.spark.route.committed() == both.worker.route.committed()
    assert both.spark.route.lag() == 0


@pytest.mark.parametrize(
    "fact", ["records", "filtered", "dead_letters", "duplicates", "without_id"]
)
def test_both_counted_the_same(both, fact):
    assert both.spark.sum(fact) == both.worker.sum(fact) > 0


def test_every_executor_reports_its_record_path_to_the_driver(both):
    (seen,) = both.spark.worker.lines("executor_seen")
    (started,) = both.spark.worker.lines("service_started")
    assert seen["executor"] == platform.node()
    assert seen["record_path"] == started["record_path"], "driver and executor are of one machine"


def test_nothing_is_left_of_a_driver_that_has_come_to_its_end(both):
    driver = both.spark.worker
    assert isinstance(driver, SparkProcess)
    driver.await_gone()


# -- starts and bounds --------------------------------------------------------------------

route_of = routes_of(kind=SparkProcess)


def test_a_run_of_so_many_records_takes_exactly_those(route_of):
    route = route_of(2, STOP_AFTER__RECORDS="700")
    route.write(*(Given(b"%d" % number, partition=number % 2) for number in range(2000)))
    for run, kind in enumerate((SparkProcess, WorkerProcess), 1):
        route.start(kind, "w-0").ends_with(0)
        assert sum(offset or 0 for offset in route.committed().values()) == 700 * run
        assert len(route.outputs()) == 700 * run


def test_latest_reads_only_what_is_new_and_a_worker_takes_over_its_place(
    route_of: Callable[..., PipelineUnderTest],
) -> None:
    # Two lanes and one core: the second lane begins when the first has committed its beginning.
    route = route_of(2, INPUT__START="latest", SPARK__MASTER="local[1]", SPARK__LANES="2")
    route.write(*(Given(b"old", partition=number % 2) for number in range(10)))
    driver = route.worker()
    await_(lambda: None not in route.committed().values(), 40, driver.text)
    driver.kill()
    route.write(Given(b"while away", partition=0), Given(b"while away", partition=1))
    route.start(WorkerProcess, "w-0")
    route.await_lag_0()
    assert [record.value for record in route.outputs()] == [b"while away", b"while away"]


# -- Two drivers in one KIP-848 group: they share, and a twin is fenced, under load.
# Its tests share one flow and its drivers; each has all that ever happened judged anew.


QUICK = {
    "GROUP__SESSION_TIMEOUT": "6s",
    "TRANSACTION__TIMEOUT": "4s",
    "GROUP__MEMBERSHIP": "dynamic",
    "GROUP__PROTOCOL": "consumer",
}

EVENTS_PER_S = 500


class Pair(NamedTuple):
    """Two drivers of one group."""

    flow: Flow
    first: SparkProcess
    second: SparkProcess


@pytest.fixture(scope="module")
def drivers(sandbox, tmp_path_factory):
    flow = Flow(sandbox, tmp_path_factory.mktemp("spark-group"), **QUICK)
    try:
        yield Pair(flow, flow.start(SparkProcess, "s-0"), flow.start(SparkProcess, "s-1"))
    finally:
        flow.close()


@pytest.fixture
def pair(drivers):
    flow, *both = drivers
    for driver in both:
        if not driver.running:
            driver.start()
    flow.feed_beside(EVENTS_PER_S)
    for driver in both:
        at_work(driver, 4)
    yield drivers
    flow.stop_feeding()


@pytest.fixture
def judged(pair):
    def judge() -> None:
        pair.flow.stop_feeding()
        pair.flow.await_lag_0()
        assert pair.flow.judge().anomalies == {}

    return judge


def revocations(*drivers: SparkProcess) -> int:
    return sum(len(driver.lines("partitions_revoked")) for driver in drivers)


@pytest.mark.row("SP8")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_two_drivers_share_and_workers_that_come_and_go_take_their_part(pair, judged):
    flow, first, second = pair
    assert ours(first) + ours(second) == PARTITIONS
    before = revocations(first, second)
    worker = at_work(flow.worker("w-0"), 4)
    at_work(first, 2)
    at_work(second, 2)
    assert worker.terminate() == 0
    worker.start()  # sooner than the brokers' next heartbeat: it gets its share back
    at_work(worker, 4)
    assert worker.terminate() == 0
    await_(lambda: ours(first) + ours(second) == PARTITIONS, 30, first.text)
    at_work(first, 2)
    at_work(second, 2)
    judged()
    assert len(worker.lines("partitions_assigned")) >= 2
    assert revocations(first, second) > before
    assert first.running
    assert second.running


@pytest.mark.row("SP8", "SP10")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_one_of_two_twins_leaves_with_exit_4_and_the_other_goes_on(pair, judged):
    flow, first, second = pair
    twin = flow.start(SparkProcess, "s-0")
    await_(lambda: not (first.running and twin.running), 150, lambda: first.text() + twin.text())
    gone, alive = (first, twin) if twin.running else (twin, first)
    gone.ends_with(4)
    (stopped,) = gone.lines("service_stopped")
    assert "HAPAX_INSTANCE" in str(stopped["reason"])
    at_work(alive, 4)
    at_work(second, 4)
    twin.close()
    if not first.running:  # under the twin's name it gets its partitions at once
        first.start()
        at_work(first)
    judged()


TEN = [b"%d" % number for number in range(10)]

# -- before Spark starts ------------------------------------------------------------------

closed = a_route(*TEN, scope="module", kind=SparkProcess)
"""A route on which nothing ever starts."""


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"TRANSFORM": "tests.kit.nowhere:f"}, 2, ["HAPAX_TRANSFORM", "tests.kit.nowhere"]),
        ({"TRANSFORM": "tests.kit.orders:nothing"}, 2, ["HAPAX_TRANSFORM", "has no nothing"]),
        ({"GUARANTEE": "at_least_once"}, 2, ["HAPAX_GUARANTEE", "exactly_once"]),
        ({"OUTPUT__TOPIC": "no-such-topic"}, 3, ["HAPAX_OUTPUT__TOPIC", "no-such-topic"]),
    ],
)
def test_what_cannot_work_is_told_before_spark_starts(closed, settings, code, words):
    text = refused(closed, code, *words, **settings)
    assert "incubator" not in text  # what every JVM of Spark says first
    assert untouched(closed)


# -- A record that kills or hangs the process of its task: the driver lives, and plans again


DEATHS_MAX = 3
CULPRITS = [b"hang", b"segfault", b"exit", b"killed"]
INNOCENT = [b"%d" % number for number in range(400)]
route = a_route(partitions=2, kind=SparkProcess, TRANSFORM="tests.kit.killers:obey")


def write(route: PipelineUnderTest, culprits: list[bytes]) -> None:
    records = []
    for number, value in enumerate(INNOCENT):
        if number % 100 == 50 and number // 100 < len(culprits):
            records.append(Given(culprits[number // 100], partition=0))
        records.append(Given(value, partition=number % 2))
    route.write(*records)


def judge(route: PipelineUnderTest, culprits: list[bytes]) -> None:
    """Every innocent has passed once, and the culprits are the only dead letters."""
    assert sorted(record.value or b"" for record in route.outputs()) == sorted(INNOCENT)
    letters = route.dead()
    assert sorted(letter.value or b"" for letter in letters) == sorted(culprits)
    assert all("killed its process" in header(letter, "hapax-error") for letter in letters)
    assert route.lag() == 0


def test_records_that_kill_or_hang_their_task_are_dead_letters_and_the_driver_goes_on(route):
    write(route, CULPRITS)
    driver = route.start(SparkProcess, "s-0", CALL__TIMEOUT="1s", STOP_AFTER__AT_END="true")
    driver.ends_with(0)
    judge(route, CULPRITS)
    condemned = driver.lines("crashing_record_found")
    # What a range found is told by its report: that of a task which dies later is lost with it.
    assert condemned
    lost = Counter(str(line["lane"]) for line in driver.lines("task_lost"))
    assert len(lost) == 1  # the other partition's lane went on
    # The last death of each culprit is that of a process of its own, and makes no task lost. On a
    # busy machine innocents are late as well, and what was found is lost with the next task.
    assert 1 <= lost.total() <= 2 * len(CULPRITS) * DEATHS_MAX
    assert "the transform has not returned from record" in driver.text()
