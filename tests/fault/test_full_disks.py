"""A disk that is full: that of a broker, and what a worker writes to."""

import time
from contextlib import ExitStack

import pytest

from hapax.sandbox import Sandbox
from tests.kit.at_work import QUICK, at_work, numbers, values
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.small_disk import fill, small_disk
from tests.kit.waiting import await_

MANY = numbers(range(2500))
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
        route.write(*MANY)
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
        assert values(route) == sorted(MANY)
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
    route = PipelineUnderTest(sandbox, tmp_path, **(QUICK | settings))
    request.addfinalizer(route.close)
    route.create()
    route.write(*MANY)
    worker = route.start(Confined, "w-0")
    await_(lambda: len(worker.text()) > 29_000 or not worker.running, 60, worker.text)
    struck = len(worker.lines("transaction_committed"))
    await_(lambda: route.lag() == 0 or not worker.running, 60, worker.text)
    code = worker.terminate() if worker.running else worker.exit_code()
    route.run_to_end(TRANSFORM="tests.kit.orders:obey")
    assert values(route) == sorted(MANY)
    proof.note(struck=len(MANY) // 20 - struck, note=f"lines lost; exit {code}")
