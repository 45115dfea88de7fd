"""Signals to everything that a terminal or a supervisor takes for ours: the process group."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.kit import topics
from tests.kit.at_work import at_work
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hapax.sandbox import Sandbox

GONE_S = 5.0
"""How long a process may live on after the driver has left."""


@pytest.fixture
def route(sandbox: Sandbox, tmp_path: Path) -> Iterator[PipelineUnderTest]:
    made = PipelineUnderTest(sandbox, tmp_path, partitions=2, kind=SparkProcess)
    made.create()
    yield made
    made.close()


def left_in_peace(driver: SparkProcess) -> None:
    """Check that it leaves with 0, that nothing it started stays, and that no trace is printed."""
    assert driver.process.wait(60) == 0, driver.text()
    driver.await_gone(GONE_S)
    said = [line for line in driver.text().splitlines() if not line.startswith("{")]
    traces = [line for line in said if "Traceback" in line or line.startswith("\tat ")]
    assert traces == [], driver.text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_leaves_with_0_and_no_jvm_behind(
    route: PipelineUnderTest, number: signal.Signals
) -> None:
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.part("jvm")), 60, driver.text)
    os.killpg(driver.process.pid, number)
    left_in_peace(driver)
    assert not driver.lines("service_ready")
    assert not driver.lines("preflight_refused")


def test_a_driver_whose_group_is_told_to_stop_finishes_its_ranges_without_a_trace(
    route: PipelineUnderTest,
) -> None:
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
    route.write(*(b"%d" % number for number in range(20_000)))
    at_work(driver, 2)
    os.killpg(driver.process.pid, signal.SIGTERM)
    left_in_peace(driver)
    assert not driver.lines("batch_abandoned")
    assert not driver.lines("task_lost")


@pytest.mark.row("SP4")
@pytest.mark.long
def test_a_pipeline_whose_group_is_told_to_stop_finishes_its_micro_batch_without_a_trace(
    sandbox: Sandbox, unique: Callable[[str], str], tmp_path: Path
) -> None:
    given, out = unique("in"), unique("out")
    sandbox.create_topic(given, partitions=2)
    sandbox.create_topic(out)
    driver = pipeline_process(tmp_path, environment(sandbox, out, given, out, tmp_path / "c"))
    driver.start()
    try:
        await_(lambda: bool(driver.lines("service_ready")), 90, driver.text)
        topics.produce(sandbox.bootstrap_servers, given, *(b"%d" % n for n in range(20_000)))
        await_(lambda: bool(driver.lines("micro_batch_completed")), 90, driver.text)
        os.killpg(driver.process.pid, signal.SIGTERM)
        left_in_peace(driver)
    finally:
        driver.close()
