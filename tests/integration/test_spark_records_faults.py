"""Records form of Spark: kills and signals, and what is around it fails."""

import json
import os
import random
import signal
import time

import pytest

from hapax.sandbox import SandboxTopic
from tests.kit import topics
from tests.kit.at_work import QUICK, at_work, await_told
from tests.kit.claim_stores import redis_server
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, values
from tests.kit.routes import a_flow, a_route
from tests.kit.spark_process import SparkProcess, ours
from tests.kit.topics import Given, ends
from tests.kit.waiting import await_

# -- A Spark driver loses its parts one after another under load; each event has its effect once.
# Its tests share one flow and, where they leave it alive, one driver. Each strikes while events
# flow in, then lets the flow come to its end and has all that ever happened on it judged.


TRANSACTION_S = 4.0
EVENTS_PER_S = 1200


flow = a_flow(scope="module", **QUICK)


@pytest.fixture(scope="module")
def only_driver(flow):
    return flow.start(SparkProcess, "s-0")


@pytest.fixture
def driver(flow, only_driver):
    if not only_driver.running:
        only_driver.start()
    flow.feed_beside(EVENTS_PER_S)
    at_work(only_driver, 4)
    yield only_driver
    flow.stop_feeding()


def judge(flow: Flow) -> None:
    flow.stop_feeding()
    flow.await_lag_0()
    assert flow.judge().anomalies == {}


@pytest.mark.row("SP2")
def test_python_workers_killed_again_and_again_cost_only_their_ranges(flow, driver):
    rng = random.Random(1)
    deadline_s = time.monotonic() + 60
    # Most are killed between two ranges, which costs nothing: how many depends on the machine.
    while len(driver.lines("task_lost")) < 3 and time.monotonic() < deadline_s:
        at_work(driver, 2)
        driver.strike_one(signal.SIGKILL, rng)
    judge(flow)
    assert len(driver.lines("task_lost")) >= 3
    assert driver.running


@pytest.mark.row("SP9", "SP10")
@pytest.mark.long
def test_a_python_worker_frozen_past_its_transaction_comes_back_and_doubles_nothing(flow, driver):
    settled = len(driver.lines("range_completed"))
    assert driver.strike_one(signal.SIGSTOP, random.Random(2)) is not None
    time.sleep(TRANSACTION_S + 2)  # the fault itself
    driver.thaw()
    judge(flow)
    rounds = [float(str(line["round_ms"])) for line in driver.lines("range_completed")[settled:]]
    assert max(rounds) > TRANSACTION_S * 1000


@pytest.mark.long
def test_a_driver_frozen_past_its_session_finds_its_partitions_taken_and_doubles_nothing(
    flow, driver
):
    lost = len(driver.lines("partitions_lost"))
    worker = at_work(flow.worker("w-0"), 4)
    assert driver.strike(signal.SIGSTOP, "driver") == 1  # its tasks go on: nobody tells them
    await_(lambda: ours(worker) == PARTITIONS, 30, worker.text)
    driver.thaw()
    await_(lambda: ours(driver) == PARTITIONS // 2, 30, driver.text)
    at_work(driver, 4)
    assert worker.terminate() == 0
    judge(flow)
    assert len(driver.lines("partitions_lost")) == lost + 1


@pytest.mark.row("SP27")
def test_a_driver_without_its_jvm_leaves_and_says_why(flow, driver):
    assert driver.strike(signal.SIGKILL, "jvm") == 1
    driver.ends_with(1)
    assert "JVM is gone" in str(driver.lines("service_stopped")[-1]["reason"])
    driver.await_gone()
    driver.start()
    at_work(driver, 4)
    judge(flow)


@pytest.mark.row("SP5")
def test_a_worker_takes_over_at_once_from_a_killed_driver_and_a_driver_from_a_killed_worker(
    flow, driver
):
    os.killpg(driver.process.pid, signal.SIGKILL)  # the Python workers have a group of their own
    driver.exit_code()
    worker = flow.worker(driver.instance)  # beside what is left of the driver
    at_work(worker, 4)
    driver.await_gone()
    worker.kill()
    driver.start()
    at_work(driver, 4)
    judge(flow)


@pytest.mark.row("SP4")
def test_sigterm_to_all_and_once_more_under_load_leaves_with_0_within_seconds(
    flow, driver, in_time
):
    began_s = time.monotonic()
    os.killpg(driver.process.pid, signal.SIGTERM)
    driver.process.terminate()
    driver.ends_with(0)
    in_time(time.monotonic() - began_s, 12)  # of the 10 s that a stop may take, and the JVM
    driver.await_gone()
    worker = at_work(flow.worker(driver.instance), 4)
    judge(flow)
    worker.terminate()


class NaiveProcess(SparkProcess):
    """The control: the Spark job that people write."""

    command = ("-m", "tests.kit.naive_spark")


@pytest.mark.long
def test_a_naive_spark_job_doubles_what_a_killed_python_worker_had_written(route_of):
    route = route_of()
    records = [b"%d" % number for number in range(300)]
    route.write(*records)
    job = route.start(NaiveProcess, "naive")
    await_(lambda: ends(route.bootstrap, route.target)[0] >= 20, 60, job.text)
    assert job.strike_one(signal.SIGKILL, random.Random(3)) is not None
    job.ends_with(0)
    assert route.committed() == {0: 300}
    outputs = [record.value for record in route.outputs()]
    assert set(outputs) == set(records)
    assert 20 <= len(outputs) - len(records) < len(records)


# -- What is around a Spark driver fails: brokers and the claim store ----------------------

CLUSTER_EVENTS_PER_S = 300


cluster_flow = a_flow(servers="cluster", scope="module", **QUICK)


@pytest.fixture(scope="module")
def only_cluster_driver(cluster_flow):
    return cluster_flow.start(SparkProcess, "s-0")


@pytest.fixture
def cluster_driver(cluster_flow, only_cluster_driver):
    cluster_flow.feed_beside(CLUSTER_EVENTS_PER_S)
    at_work(only_cluster_driver, 4)
    yield only_cluster_driver
    cluster_flow.stop_feeding()
    assert only_cluster_driver.running


@pytest.mark.row("SP21")
def test_a_claim_store_that_dies_and_comes_back_with_its_data_costs_nothing(
    cluster_flow, cluster_driver
):
    for outage in (1, 2):
        cluster_flow.sandbox.redis.kill()
        await_told(cluster_driver, "claims_unavailable", outage)
        cluster_flow.sandbox.redis.start()
        cluster_flow.sandbox.redis.await_ready()
        await_told(cluster_driver, "claims_recovered", outage)
        at_work(cluster_driver, 4)
    judge(cluster_flow)


@pytest.mark.row("SP11")
@pytest.mark.long
def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    cluster_flow: Flow, cluster_driver: SparkProcess
) -> None:
    # One after another of all three is for the fault suite: it takes a minute.
    broker = cluster_flow.sandbox.kafka.brokers[0]
    broker.kill()
    at_work(cluster_driver, 2 * PARTITIONS + 1)  # of its partitions, too: nothing may wait for it
    broker.start()
    broker.await_ready()
    at_work(cluster_driver, PARTITIONS + 1)
    judge(cluster_flow)


@pytest.mark.row("SP21")
@pytest.mark.long
def test_without_a_claim_store_a_driver_that_may_pass_goes_on_and_says_so(cluster, tmp_path):
    with redis_server(tmp_path / "redis") as server:
        route = PipelineUnderTest(
            cluster,
            tmp_path,
            partitions=2,
            kind=SparkProcess,
            DEDUP__REDIS_URL=server.url,
            DEDUP__ON_OUTAGE="pass",
        )
        route.create()
        try:
            driver = route.worker()
            route.write(*(identified(number) for number in range(100)))
            route.await_outputs(100)  # as at_work: Spark starts first
            server.kill()
            route.write(*(identified(number) for number in range(100, 200)))
            route.await_lag_0()
            assert sorted(int(each or 0) for each in values(route.outputs())) == list(range(200))
            await_(lambda: Done(route, driver).sum("unchecked") == 100, 10, driver.text)
        finally:
            route.close()


def identified(number: int) -> Given:
    return Given(b"%d" % number, partition=number % 2, headers=(("message-id", b"id-%d" % number),))


# -- Signals to everything that a terminal or a supervisor takes for ours: the process group.
# Whatever dies, both streams hold nothing but JSON lines of the service.


GONE_S = 5.0
"""How long a process may live on after the driver has left."""
route = a_route(partitions=2, kind=SparkProcess)


def left_in_peace(driver: SparkProcess, traces: int = 0) -> None:
    """Check that it leaves with 0, that nothing it started stays, and that it prints no trace."""
    driver.ends_with(0)
    driver.await_gone(GONE_S)
    assert told_in_json(driver)[-1]["event"] == "service_stopped"
    assert driver.text().count("Traceback") == traces, driver.text()


def told_in_json(driver: SparkProcess) -> list[dict[str, object]]:
    """Return all lines of standard output and error; none is anything but an event."""
    lines = driver.text().splitlines()
    other = [line for line in lines if not line.startswith('{"timestamp":')]
    assert other == [], driver.text()
    return [json.loads(line) for line in lines]


def under_load(route: PipelineUnderTest) -> SparkProcess:
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
    route.write(*(b"%d" % number for number in range(20_000)))
    return at_work(driver, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_leaves_with_0_and_no_jvm_behind(route, number):
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.part("jvm")), 60, driver.text)
    os.killpg(driver.process.pid, number)
    left_in_peace(driver)
    assert not driver.lines("service_ready")
    assert not driver.lines("preflight_refused")


def test_a_driver_whose_group_is_told_to_stop_finishes_its_ranges_without_a_trace(route):
    driver = under_load(route)
    os.killpg(driver.process.pid, signal.SIGTERM)
    left_in_peace(driver)
    assert not driver.lines("batch_abandoned")
    assert not driver.lines("task_lost")


def test_what_business_code_prints_in_a_task_is_an_event_of_its_own(route_of) -> None:
    route = route_of(kind=SparkProcess, SPARK__LANES="1")
    route.write(*(b"%d" % number for number in range(1_500)))
    aloud = {"TRANSFORM": "tests.kit.spark_business:spell_aloud", "STOP_AFTER__AT_END": "true"}
    driver = route.start(SparkProcess, "s-0", **aloud)
    left_in_peace(driver, traces=2)
    said = [(line["level"], line["logger"], line["text"]) for line in driver.lines("spark_logged")]
    assert [each for each in said if each[1] == "output"] == [
        ("info", "output", f"read {number}") for number in range(1_500)
    ]
    traces = [each for each in said if each[1] == "python"]
    assert [each[0] for each in traces] == ["error"] * 2
    assert all(str(each[2]).endswith("base 10: 'printed'") for each in traces)


def test_a_python_worker_that_is_killed_under_load_prints_nothing_but_events(route):
    driver = under_load(route)
    assert driver.strike(signal.SIGKILL, "worker") > 0
    route.await_lag_0()
    os.killpg(driver.process.pid, signal.SIGTERM)
    left_in_peace(driver)


def test_a_jvm_that_is_killed_under_load_ends_the_driver_with_events_only(route):
    driver = under_load(route)
    assert driver.strike(signal.SIGKILL, "jvm") == 1
    driver.ends_with(1)
    assert told_in_json(driver)[-1]["event"] == "service_stopped"


@pytest.fixture
def pipeline_at_work(sandbox, unique, tmp_path):
    """A pipeline that has published its first micro-batch of many records."""
    given, out = unique("in"), unique("out")
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out))
    driver = pipeline_process(tmp_path, environment(sandbox, out, given, out, tmp_path / "c"))
    driver.start()
    try:
        await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
        topics.produce(sandbox.bootstrap_servers, given, *(b"%d" % n for n in range(20_000)))
        await_(lambda: bool(driver.lines("micro_batch_completed")), 90, driver.text)
        yield driver
    finally:
        driver.close()


@pytest.mark.row("SP4")
@pytest.mark.long
def test_a_pipeline_whose_group_is_told_to_stop_finishes_its_micro_batch_without_a_trace(
    pipeline_at_work,
):
    os.killpg(pipeline_at_work.process.pid, signal.SIGTERM)
    left_in_peace(pipeline_at_work)


@pytest.mark.long
def test_a_pipeline_whose_jvm_is_killed_prints_nothing_but_events(pipeline_at_work):
    driver = pipeline_at_work
    assert driver.strike(signal.SIGKILL, "jvm") == 1
    driver.ends_with(1)
    assert told_in_json(driver)[-1]["event"] == "service_stopped"
