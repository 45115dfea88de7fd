"""A Spark cluster: an executor whose disk is full, and a pipeline with state under kills."""

from __future__ import annotations

import json
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from hapax.sandbox import Sandbox
from hapax.sandbox.spark_cluster import SparkDaemon, driver_properties
from tests.kit.at_work import QUICK, await_told, numbers, values
from tests.kit.pipeline_chaos import run
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.small_disk import fill, small_disk
from tests.kit.spark_process import SparkProcess, executors, send
from tests.kit.waiting import await_, reaches

if TYPE_CHECKING:
    from tests.kit.pipeline_chaos import Harm

DISK_BYTES = 64 << 20
"""What executors of one application need for logs and shipped code is a fraction of it."""
COMES_S, DONE_S = 240.0, 240.0


def killed(*daemons: SparkDaemon, most: int) -> int:
    """Kill so many executors of these workers, once they have tasks; return how many."""
    pids = [daemon.pid for daemon in daemons]
    await_(lambda: len(executors(pids)) >= most, COMES_S, lambda: "executors do not come back")
    return sum(send(each, signal.SIGKILL) for each in executors(pids)[:most])


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
            killed(full, most=1)
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


@pytest.mark.timeout(1500)
@pytest.mark.row("SP28", "SP29", "SP30", "SP31")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_windows_without_doubles_come_out_once_through_kills_of_a_cluster(unique, tmp_path, proof):
    struck: list[int] = []
    with Sandbox(spark_workers=2) as sandbox:
        spark = sandbox.spark
        one, other = spark.workers

        def executor() -> None:
            struck.append(killed(one, other, most=1))

        def both() -> None:
            struck.append(killed(one, other, most=2))

        def daemon() -> None:
            one.kill()
            struck.append(1)
            one.start()

        def master() -> None:
            spark.master.kill()
            struck.append(1)
            spark.master.start()
            spark.await_ready()

        strikes: list[Harm] = [executor, daemon, both, "all", master]
        outcome = run(
            sandbox,
            unique("windows"),
            tmp_path,
            records=8000,
            strikes=strikes,
            rng=random.Random(7),
            batch_max=1000,
            properties=driver_properties(),
            master=spark.url,
        )
    assert outcome.lost == []
    assert outcome.doubled == []
    proof.note(struck=sum(struck), note=f"{outcome.batches} micro-batches")
