"""A Spark cluster with an executor whose disk is full."""

from __future__ import annotations

import json
import os
import signal

import pytest

from hapax.sandbox import Sandbox
from hapax.sandbox.spark_cluster import driver_properties
from tests.kit.at_work import QUICK, await_told, numbers, values
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.small_disk import fill, small_disk
from tests.kit.spark_process import SparkProcess, executors, send
from tests.kit.waiting import await_, reaches

DISK_BYTES = 64 << 20
"""What executors of one application need for logs and shipped code is a fraction of it."""
COMES_S, DONE_S = 240.0, 240.0


@pytest.mark.timeout(900)
@pytest.mark.row("SP35")
@pytest.mark.long
def test_an_executor_whose_disk_is_full_leaves_its_ranges_to_the_other(tmp_path, proof):
    """It cannot even start: no place for its logs, and none for the code that is shipped to it."""
    assert os.geteuid() == 0, "a small disk is a mount, which only root may make: run as root"
    first, second = numbers(range(600)), numbers(range(600, 1200))
    home = tmp_path / "sandbox"
    with (
        small_disk(home / "spark" / "worker-2" / "work", DISK_BYTES) as disk,
        Sandbox(data_dir=home, spark_workers=2) as sandbox,
    ):
        route = PipelineUnderTest(
            sandbox,
            tmp_path,
            partitions=4,
            kind=SparkProcess,
            SPARK__MASTER=sandbox.spark.url,
            SPARK__PROPERTIES=json.dumps(driver_properties()),
            SPARK__EXECUTOR_TIMEOUT="240s",
            TRANSFORM="tests.kit.orders:slow",
            **QUICK,
        )
        try:
            route.create()
            route.write(*first)
            driver = route.worker()
            await_told(driver, "transaction_committed", 2, COMES_S)
            _, full = sandbox.spark.workers
            ballast = fill(disk)
            await_(lambda: executors([full.pid]), COMES_S, lambda: "executors do not come back")
            assert send(executors([full.pid])[0], signal.SIGKILL)
            route.write(*second)
            route.await_lag_0(DONE_S)
            failed = full.log.read_text(errors="replace").count("No space left on device")
            lost = len(driver.lines("task_lost"))
            ballast.unlink()
            healed = reaches(lambda: executors([full.pid]), COMES_S)
            assert driver.terminate() == 0, driver.text()
            assert values(route) == sorted([*first, *second])
        finally:
            route.close()
    proof.note(
        struck=failed,
        note=f"{lost} tasks lost; with room again it {'comes back' if healed else 'stays away'}",
    )
