"""A trickle on Spark: tasks stay, so few are needed, and each event has its effect once.

The tests share one flow and one driver, whose ranges may last far longer than any test waits.
"""

import random
import signal
import time

import pytest

from tests.kit.at_work import await_told
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import await_

EVENTS_PER_S = 200
RECORDS, PER_RANGE = 2000, 100
"""A range for each round of a driver whose tasks do not stay would hold some 15."""
KILLS = 3
RANGE_S = 60
LEAVES_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def flow(sandbox, tmp_path_factory):
    flow = Flow(
        sandbox,
        tmp_path_factory.mktemp("spark-trickle"),
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="4s",
        SPARK__RANGE_INTERVAL=f"{RANGE_S}s",
    )
    yield flow
    flow.close()


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
