"""A Spark driver loses its parts one after another under load; each event has its effect once.

All tests share one flow and, where they leave it alive, one driver. Each strikes while events flow
in, then lets the flow come to its end and has all that ever happened on it judged anew.
"""

import os
import random
import signal
import time

import pytest

from tests.kit.at_work import at_work
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.spark_process import SparkProcess, ours
from tests.kit.topics import ends
from tests.kit.waiting import await_

TRANSACTION_S = 4.0
EVENTS_PER_S = 1200


@pytest.fixture(scope="module")
def flow(sandbox, tmp_path_factory):
    flow = Flow(
        sandbox,
        tmp_path_factory.mktemp("spark-faults"),
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT=f"{TRANSACTION_S:.0f}s",
    )
    yield flow
    flow.close()


@pytest.fixture(scope="module")
def only_driver(flow):
    return flow.start(SparkProcess, "s-0")


@pytest.fixture
def driver(flow, only_driver):
    """Return the driver, at work; what the test has done to it must not show in the topics."""
    if not only_driver.running:
        only_driver.start()
    flow.feed_beside(EVENTS_PER_S)
    at_work(only_driver, 4)
    yield only_driver
    flow.stop_feeding()


@pytest.fixture
def judged(flow, driver):
    """Return what brings the flow to its end and judges it."""

    def judge() -> None:
        flow.stop_feeding()
        flow.await_lag_0()
        assert flow.judge().anomalies == {}

    return judge


@pytest.mark.row("SP2")
def test_python_workers_killed_again_and_again_cost_only_their_ranges(driver, judged):
    rng = random.Random(1)
    deadline_s = time.monotonic() + 60
    # Most are killed between two ranges, which costs nothing: how many depends on the machine.
    while len(driver.lines("task_lost")) < 3 and time.monotonic() < deadline_s:
        at_work(driver, 2)
        driver.strike_one(signal.SIGKILL, rng)
    judged()
    assert len(driver.lines("task_lost")) >= 3
    assert driver.running


@pytest.mark.row("SP9", "SP10")
@pytest.mark.long
def test_a_python_worker_frozen_past_its_transaction_comes_back_and_doubles_nothing(driver, judged):
    settled = len(driver.lines("range_completed"))
    assert driver.strike_one(signal.SIGSTOP, random.Random(2)) is not None
    time.sleep(TRANSACTION_S + 2)  # the fault itself
    driver.thaw()
    judged()
    rounds = [float(str(line["round_ms"])) for line in driver.lines("range_completed")[settled:]]
    assert max(rounds) > TRANSACTION_S * 1000


@pytest.mark.long
def test_a_driver_frozen_past_its_session_finds_its_partitions_taken_and_doubles_nothing(
    flow, driver, judged
):
    lost = len(driver.lines("partitions_lost"))
    worker = flow.worker("w-0")
    at_work(worker, 4)
    assert driver.strike(signal.SIGSTOP, "driver") == 1  # its tasks go on: nobody tells them
    await_(lambda: ours(worker) == PARTITIONS, 30, worker.text)
    driver.thaw()
    await_(lambda: ours(driver) == PARTITIONS // 2, 30, driver.text)
    at_work(driver, 4)
    assert worker.terminate() == 0
    judged()
    assert len(driver.lines("partitions_lost")) == lost + 1


@pytest.mark.row("SP27")
def test_a_driver_without_its_jvm_leaves_and_says_why(flow, driver, judged):
    assert driver.strike(signal.SIGKILL, "jvm") == 1
    driver.ends_with(1)
    assert "JVM is gone" in str(driver.lines("service_stopped")[-1]["reason"])
    driver.await_gone()
    driver.start()
    at_work(driver, 4)
    judged()


@pytest.mark.row("SP5")
def test_a_worker_takes_over_at_once_from_a_killed_driver_and_a_driver_from_a_killed_worker(
    flow, driver, judged
):
    os.killpg(driver.process.pid, signal.SIGKILL)  # the Python workers have a group of their own
    driver.exit_code()
    worker = flow.worker(driver.instance)  # beside what is left of the driver
    at_work(worker, 4)
    driver.await_gone()
    worker.kill()
    driver.start()
    at_work(driver, 4)
    judged()


@pytest.mark.row("SP4")
def test_sigterm_to_all_and_once_more_under_load_leaves_with_0_within_seconds(
    flow, driver, judged, in_time
):
    began_s = time.monotonic()
    os.killpg(driver.process.pid, signal.SIGTERM)
    driver.process.terminate()
    driver.ends_with(0)
    in_time(time.monotonic() - began_s, 12)  # of the 10 s that a stop may take, and the JVM
    driver.await_gone()
    worker = flow.worker(driver.instance)
    at_work(worker, 4)
    judged()
    worker.terminate()


class NaiveProcess(SparkProcess):
    """The control: the Spark job that people write."""

    command = ("-m", "tests.kit.naive_spark")


@pytest.mark.long
def test_a_naive_spark_job_doubles_what_a_killed_python_worker_had_written(sandbox, tmp_path):
    route = PipelineUnderTest(sandbox, tmp_path)
    route.create()
    records = [b"%d" % number for number in range(300)]
    route.write(*records)
    try:
        job = route.start(NaiveProcess, "naive")
        await_(lambda: ends(route.bootstrap, route.target)[0] >= 20, 60, job.text)
        assert job.strike_one(signal.SIGKILL, random.Random(3)) is not None
        job.ends_with(0)
    finally:
        route.close()
    assert route.committed() == {0: 300}
    outputs = [record.value for record in route.outputs()]
    assert set(outputs) == set(records)
    assert 20 <= len(outputs) - len(records) < len(records)
