"""What a machine does to workers and brokers: clocks that jump, disks that are full."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hapax.sandbox import Sandbox, machine
from hapax.sandbox.servers import executor_properties
from tests.kit.at_work import QUICK, at_work, await_told, event, numbers, values
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.small_disk import fill, small_disk
from tests.kit.spark_process import SparkProcess, executors, send
from tests.kit.waiting import await_, reaches

# -- Clocks that jump by hours under a worker, and under its brokers -----------------------

MANY = numbers(range(3000))
HOUR_S = 3600
JUMPS_H = (1, -1, 0)


class Clock:
    """The wall clock of processes that run with ``environment``; monotonic ones stay right."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(file)}

    def jump_to(self, hours: int) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", hours * HOUR_S))


def _compiler() -> Path | None:
    found = shutil.which("cc")
    return None if found is None else Path(found)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = machine._find(_compiler, ("build-essential",))
    assert compiler is not None, "cc is missing. Run: sudo apt-get install build-essential"
    made = tmp_path_factory.mktemp("library") / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    options = ("-shared", "-fPIC", "-O1", "-o")
    subprocess.run([compiler, *options, made, source, "-ldl"], check=True, timeout=120)
    return made


@pytest.fixture
def clock(library, tmp_path):
    return Clock(library, tmp_path / "clock")


@pytest.fixture
def skewed(clock):

    class Skewed(WorkerProcess):
        def __init__(self, environment: dict[str, str], *names: Any) -> None:
            super().__init__(environment | clock.environment, *names)

    return Skewed


route = a_route(redis=True, **QUICK)


def away_h(worker: WorkerProcess) -> int:
    last = datetime.fromisoformat(str(worker.lines()[-1]["timestamp"]))
    return round((last - datetime.now(last.tzinfo)).total_seconds() / HOUR_S)


def await_away(worker: WorkerProcess, hours: int) -> None:
    """Wait for a line by the clock of the worker; transactions have one a second at most."""
    await_(lambda: away_h(worker) == hours, 10, worker.text)


@pytest.mark.row("C1")
def test_a_worker_whose_clock_jumps_back_and_forth_by_an_hour_goes_on_as_if_nothing_was(
    route, clock, skewed, proof
):
    route.write(*MANY)
    slow = {"TRANSFORM": "tests.kit.orders:slow", "TRANSACTION__RECORDS_MAX": "100"}
    worker = at_work(route.start(skewed, "w-0", **slow), 2)
    for hours in JUMPS_H:
        clock.jump_to(hours)
        at_work(worker, 3)
        await_away(worker, hours)
    route.end(worker)
    assert values(route) == sorted(MANY)
    for trouble in ("batch_aborted", "producer_died", "partitions_lost", "watchdog_fired"):
        assert worker.lines(trouble) == []
    proof.note(struck=len(JUMPS_H), note="+1 h, -1 h, back: no abort, no partition lost")


@pytest.mark.row("C1")
def test_an_idle_worker_whose_clock_is_set_back_goes_on_or_leaves_by_its_watchdog(
    route, clock, skewed, proof
):
    route.write(*MANY[:100])
    worker = route.start(skewed, "w-0", WATCHDOG__TIMEOUT="10s")
    route.await_lag_0()
    clock.jump_to(-1)
    time.sleep(2)  # nothing comes: the client waits until a moment that is an hour away
    route.write(*MANY[100:200])
    await_(lambda: not worker.running or route.lag() == 0, 60, worker.text)
    went_on = worker.running
    if not went_on:
        worker.ends_with(7)
        worker.start()
    route.end(worker)
    assert values(route) == sorted(MANY[:200])
    proof.note(struck=1, note="goes on" if went_on else "exit 7, goes on after its restart")


@pytest.mark.row("R8")
def test_claims_live_by_the_clock_of_redis_whatever_a_worker_takes_for_the_time(
    route, clock, skewed, proof
):
    events = [event(number) for number in range(100)]
    worker = route.start(skewed, "w-0")
    for hours in (0, 72, -72):
        clock.jump_to(hours)
        route.write(*events)
        route.await_lag_0()
        await_away(worker, hours)  # a line a second
    assert values(route) == sorted(record.value or b"" for record in events)
    proof.note(struck=2, note="three times the time to live forward, and back: all twins dropped")


@pytest.mark.row("C1")
def test_a_coordinator_whose_clock_jumps_by_an_hour_ends_transactions_and_doubles_nothing(
    clock, tmp_path, monkeypatch, proof
):
    with monkeypatch.context() as brokers:
        for name, value in clock.environment.items():
            brokers.setenv(name, value)
        sandbox = Sandbox(redis=False)
        sandbox.start()
    with ExitStack() as stack:
        stack.callback(sandbox.stop)
        route = PipelineUnderTest(sandbox, tmp_path, TRANSFORM="tests.kit.orders:slow", **QUICK)
        stack.callback(route.close)
        route.create(target={"message.timestamp.type": "LogAppendTime"})
        route.write(*MANY)
        worker = route.worker(TRANSACTION__RECORDS_MAX="100")
        for hours in JUMPS_H:
            at_work(worker, 3)
            clock.jump_to(hours)
        at_work(worker, 1)
        route.end(worker)
        assert values(route) == sorted(MANY)
        now_s = time.time()
        written_h = {round((one.timestamp_ms / 1000 - now_s) / HOUR_S) for one in route.outputs()}
        assert written_h == set(JUMPS_H), "the broker's clock has not jumped"
    proof.note(struck=len(JUMPS_H), note="the broker's clock: +1 h, -1 h, back")


# -- A disk that is full: that of a broker, and what a worker writes to --------------------

MANY_LINES = numbers(range(2500))
DISK_BYTES = 160 << 20
"""What a broker with its few topics needs is less than half of it."""


@pytest.mark.row("F1")
def test_a_broker_whose_disk_is_full_ends_itself_and_the_others_go_on(tmp_path, proof):
    """One of three. Alone it would keep offsets of its last transaction pending for ever."""
    with (
        small_disk(tmp_path / "sandbox" / "broker-1", DISK_BYTES) as disk,
        Sandbox(nodes=3, redis=False, data_dir=tmp_path / "sandbox") as sandbox,
        ExitStack() as stack,
    ):
        route = PipelineUnderTest(
            sandbox, tmp_path, partitions=3, TRANSFORM="tests.kit.orders:slow", **QUICK
        )
        route.create()
        route.write(*MANY_LINES)
        worker = route.worker()
        stack.callback(route.close)
        at_work(worker, 2)
        victim = sandbox.kafka.brokers[0]
        ballast = fill(disk)
        await_(lambda: not victim.running, 60, victim.last_words)
        began_s = time.monotonic()
        route.await_lag_0()
        recovered_s = time.monotonic() - began_s
        ballast.unlink()
        victim.start()
        sandbox.kafka.await_ready()
        assert worker.terminate() == 0
        assert values(route) == sorted(MANY_LINES)
    proof.note(struck=1, note=f"the broker ended itself; all done {recovered_s:.0f} s later")


CONFINED = """
import resource, runpy, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.argv = ["hapax", "run"]
runpy.run_module("hapax", run_name="__main__")
"""


class Confined(WorkerProcess):
    """A worker that can write no file beyond 30 kB: its log is full after some lines."""

    command = ("-c", CONFINED)


@pytest.mark.row("F2")
def test_a_worker_whose_log_can_take_no_more_goes_on_or_leaves_and_nothing_is_lost(
    sandbox, tmp_path, proof, request
):
    settings = {"TRANSFORM": "tests.kit.orders:slow", "TRANSACTION__RECORDS_MAX": "20"}
    settings["TELEMETRY__LOG_LEVEL"] = "debug"  # a line for each transaction, at any speed
    route = PipelineUnderTest(sandbox, tmp_path, **(QUICK | settings))
    request.addfinalizer(route.close)
    route.create()
    route.write(*MANY_LINES)
    worker = route.start(Confined, "w-0")
    await_(lambda: len(worker.text()) > 29_000 or not worker.running, 60, worker.text)
    struck = len(worker.lines("transaction_committed"))
    await_(lambda: route.lag() == 0 or not worker.running, 60, worker.text)
    code = worker.terminate() if worker.running else worker.exit_code()
    route.run_to_end(TRANSFORM="tests.kit.orders:obey")
    assert values(route) == sorted(MANY_LINES)
    proof.note(struck=len(MANY_LINES) // 20 - struck, note=f"lines lost; exit {code}")


SPARK_DISK_BYTES = 64 << 20
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
        small_disk(home / "spark" / "worker-2" / "work", SPARK_DISK_BYTES) as disk,
        Sandbox(data_dir=home, spark_workers=2) as sandbox,
    ):
        route = PipelineUnderTest(
            sandbox,
            tmp_path,
            partitions=4,
            kind=SparkProcess,
            SPARK__MASTER=sandbox.spark.url,
            SPARK__PROPERTIES=json.dumps(executor_properties()),
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
