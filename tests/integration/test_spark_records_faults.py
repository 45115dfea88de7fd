"""Records form of Spark: kills and signals, and what is around it fails."""

import json
import os
import signal
import time
from collections import Counter

import pytest

from hapax.sandbox import SandboxTopic
from tests.kit import topics
from tests.kit.at_work import QUICK, at_work
from tests.kit.claim_stores import redis_server
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, values
from tests.kit.routes import a_flow, a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

# -- A Spark driver is killed, and a broker around it, under load; each event has its effect once.


flow = a_flow(servers="cluster", scope="module", **QUICK)


@pytest.fixture(scope="module")
def only_driver(flow):
    return flow.start(SparkProcess, "s-0")


@pytest.fixture
def driver(flow, only_driver):
    flow.feed_beside(300)
    at_work(only_driver, 4)
    yield only_driver
    flow.stop_feeding()
    assert only_driver.running


def judge(flow: Flow) -> None:
    flow.stop_feeding()
    flow.await_lag_0()
    assert flow.judge().anomalies == {}


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


@pytest.mark.row("SP11")
@pytest.mark.long
def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    flow: Flow, driver: SparkProcess
) -> None:
    # One after another of all three is for the fault suite: it takes a minute.
    broker = flow.sandbox.kafka.brokers[0]
    broker.kill()
    at_work(driver, 2 * PARTITIONS + 1)  # of its partitions, too: nothing may wait for it
    broker.start()
    broker.await_ready()
    at_work(driver, PARTITIONS + 1)
    judge(flow)


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
    assert sum("Traceback" in line for line in driver.text().splitlines()) == traces, driver.text()


def told_in_json(driver: SparkProcess) -> list[dict[str, object]]:
    """Return all lines of standard output and error; none is anything but an event."""
    lines = driver.text().splitlines()
    assert [line for line in lines if not line.startswith('{"timestamp":')] == [], driver.text()
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


@pytest.mark.row("SP4")
def test_a_driver_whose_group_is_told_to_stop_finishes_its_ranges_without_a_trace(route, in_time):
    """And is told once more: a supervisor asks the process as well."""
    driver = under_load(route)
    began_s = time.monotonic()
    os.killpg(driver.process.pid, signal.SIGTERM)
    driver.process.terminate()
    driver.ends_with(0)
    in_time(time.monotonic() - began_s, 12)  # of the 10 s that a stop may take, and the JVM
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


@pytest.mark.row("SP27")
def test_a_driver_without_its_jvm_leaves_and_says_why(route):
    driver = under_load(route)
    assert driver.strike(signal.SIGKILL, "jvm") == 1
    driver.ends_with(1)
    stopped = told_in_json(driver)[-1]
    assert stopped["event"] == "service_stopped"
    assert "JVM is gone" in str(stopped["reason"])
    driver.await_gone()
    driver.start()
    route.await_lag_0()
    assert Counter(values(route.outputs())) == Counter(b"%d" % number for number in range(20_000))
    assert driver.terminate() == 0


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
