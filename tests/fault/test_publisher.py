"""A publisher with a spool before a pipeline, without Redis: all are killed, its disk is full."""

import csv
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fault import rules
from tests.fault.checking.judge import judge
from tests.fault.cluster import Cluster
from tests.fault.feeding.ledger import COPIES, Fate, Ledger
from tests.kit.flow import Flow
from tests.kit.managed_process import ManagedProcess, WorkerProcess
from tests.kit.proof import rounds
from tests.kit.small_disk import fill, small_disk
from tests.kit.topics import ends
from tests.kit.waiting import await_

DISK_BYTES = 8 << 20
VALUE_BYTES = 800
"""The spool's disk holds a third of what is published in a round."""
KEYS = 40
LINES = 24_000
SLOW, FAST = {"HAPAX_TRANSACTION__RECORDS_MAX": "20"}, {"HAPAX_TRANSACTION__RECORDS_MAX": "5000"}


def event_file(path: Path, run: str, count: int) -> Ledger:
    """Write events to a CSV file, all that the rules of the fault suite ask for.

    Returns that each of them has to be there.
    """
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "key", "value"])
        for number in range(count):
            key, kseq = number % KEYS, number // KEYS
            content = rules.Content(number, key, kseq, time.time_ns() // 1_000_000)
            value = rules.encode(content, VALUE_BYTES).decode()
            rows.writerow([f"{run}-{number}", f"key-{key}", value])
    fates = np.full((count, COPIES), Fate.NEVER, np.uint8)
    fates[:, 0] = Fate.OK
    return Ledger(run, fates)


class Front:
    """The publisher of the file, and its spool on a small disk."""

    def __init__(self, flow: Flow, folder: Path, disk: Path) -> None:
        self.disk = disk
        self._flow = flow
        words = ["publish", str(folder / "events.csv"), "--format", "csv", "--topic", flow.source]
        words += ["--id-pointer", "/id", "--key-pointer", "/key", "--value-pointer", "/value"]
        words += ["--header", "dup=0", "--spool", str(disk / "spool")]
        words += ["--disk-max", str(DISK_BYTES)]  # which is more than the disk has for it
        command = [sys.executable, "-m", "hapax", *words]
        environment = flow.environment(SHUTDOWN__TIMEOUT="5s")
        self.process = ManagedProcess(command, folder / "publish.log", environment)

    def start(self) -> None:
        self.process.start(settings=SLOW)

    def _published(self) -> int:
        return sum(ends(self._flow.bootstrap, self._flow.source).values())

    def await_published(self, more: int) -> None:
        """Wait until so many more are known to be in Kafka; it must not have come to the end."""
        wanted = self._published() + more
        await_(
            lambda: not self.process.running or self._published() >= wanted, 60, self.process.text
        )
        assert self.process.running, self.process.text()


def strike(front: Front, cluster: Cluster, victim: int, worker: WorkerProcess) -> None:
    """Kill publisher and worker; fill the disk while a broker is gone, and kill both once more."""
    assert cluster.await_in_step()
    front.process.kill()
    worker.kill()
    worker.start()
    front.start()
    front.await_published(500)
    broker = cluster.brokers[victim]
    broker.kill()
    ballast = fill(front.disk)
    full = front.process.text().count("the spool is full")
    await_(lambda: front.process.text().count("the spool is full") > full, 60, front.process.text)
    front.process.kill()
    worker.kill()
    ballast.unlink()
    front.start()
    broker.start()
    worker.start()
    front.await_published(500)


@pytest.mark.row("F3")
@pytest.mark.rounds
def test_each_line_has_its_effect_once_when_publisher_worker_and_brokers_are_killed(
    cluster, tmp_path, proof
):
    flow = Flow(cluster, tmp_path, DEDUP__REDIS_URL=None)
    brokers = Cluster(cluster)
    times = rounds(1, 10)
    ledger = event_file(tmp_path / "events.csv", flow.app, times * LINES)
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        front = Front(flow, tmp_path, disk)
        try:
            worker = flow.worker()
            front.start()
            front.await_published(500)
            for number in range(times):
                strike(front, brokers, number % len(brokers.brokers), worker)
            assert front.process.terminate() == 0, front.process.text()
            front.process.start(settings=FAST)
            front.process.finish(120)
            flow.await_lag_0()
            assert worker.terminate() == 0
            found = judge(flow.topics, ledger, None)
        finally:
            brokers.restore()
            front.process.close()
            flow.close()
    assert not any(found.violations.values()), (found.violations, found.examples)
    assert found.counts.distinct == found.counts.records == times * LINES
    assert "Traceback" not in front.process.text()
    proof.note(struck=6 * times, note=f"{times * LINES:,} lines, none lost or doubled")
