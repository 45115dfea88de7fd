"""Signals to everything that a terminal or a supervisor takes for ours: the process group.

Whatever dies, both streams hold nothing but JSON lines of the service.
"""

import json
import os
import signal
from pathlib import Path

import pytest

from hapax.sandbox import Sandbox, SandboxTopic
from tests.kit import topics
from tests.kit.at_work import at_work
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import await_

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_leaves_with_0_and_no_jvm_behind(route, number):
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.part("jvm")), 60, driver.text)
    os.killpg(driver.process.pid, number)
    left_in_peace(driver)
    assert not driver.lines("service_ready")
    assert not driver.lines("preflight_refused")


def test_a_driver_whose_group_is_told_to_stop_finishes_its_ranges_without_a_trace(route):
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
    route.write(*(b"%d" % number for number in range(20_000)))
    at_work(driver, 2)
    os.killpg(driver.process.pid, signal.SIGTERM)
    left_in_peace(driver)
    assert not driver.lines("batch_abandoned")
    assert not driver.lines("task_lost")


def test_what_business_code_prints_in_a_task_is_an_event_of_its_own(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    # One process, one stream: where several print at once, Spark cuts lines into pieces.
    route = PipelineUnderTest(sandbox, tmp_path, kind=SparkProcess, SPARK__LANES="1")
    route.create()
    route.write(*(b"%d" % number for number in range(1_500)))
    aloud = {"TRANSFORM": "tests.kit.spark_business:spell_aloud", "STOP_AFTER__AT_END": "true"}
    driver = route.start(SparkProcess, "s-0", **aloud)
    try:
        left_in_peace(driver, traces=2)
    finally:
        route.close()
    said = [(line["level"], line["logger"], line["text"]) for line in driver.lines("spark_logged")]
    assert [each for each in said if each[1] == "output"] == [
        ("info", "output", f"read {number}") for number in range(1_500)
    ]
    traces = [each for each in said if each[1] == "python"]
    assert [each[0] for each in traces] == ["error"] * 2
    assert all(str(each[2]).endswith("base 10: 'printed'") for each in traces)


def test_a_python_worker_that_is_killed_under_load_prints_nothing_but_events(route):
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
    route.write(*(b"%d" % number for number in range(20_000)))
    at_work(driver, 2)
    assert driver.strike(signal.SIGKILL, "worker") > 0
    route.await_lag_0()
    os.killpg(driver.process.pid, signal.SIGTERM)
    left_in_peace(driver)


def test_a_jvm_that_is_killed_under_load_ends_the_driver_with_events_only(route):
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
    route.write(*(b"%d" % number for number in range(20_000)))
    at_work(driver, 2)
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
