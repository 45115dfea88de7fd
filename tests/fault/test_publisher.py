"""A publisher with a spool before a pipeline, without Redis: all are killed, its disk is full."""

import csv
import io
import json
import sys
import threading
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
from tests.kit.waiting import await_

DISK_BYTES = 8 << 20
KEYS = 40
PER_S = 800
ROTATE_EVERY = 5000


class EventFile(threading.Thread):
    """Appends events to a CSV file, all that the rules of the fault suite ask for; rotates it."""

    def __init__(self, path: Path, run: str) -> None:
        super().__init__()
        self._path = path
        self._run = run
        self._ending = threading.Event()
        self.written = 0
        self._begin()

    def _begin(self) -> None:
        self._file = self._path.open("ab", buffering=0)
        self._file.write(b"id,key,value\n")

    def run(self) -> None:
        began_s = time.monotonic()
        while not self._ending.wait(0.01):
            while self.written < (time.monotonic() - began_s) * PER_S:
                self._write(self.written)
                self.written += 1
        self._file.close()

    def _write(self, number: int) -> None:
        if number % ROTATE_EVERY == ROTATE_EVERY - 1:
            self._path.rename(self._path.with_name(f"{self._path.name}.{number // ROTATE_EVERY}"))
            self._file.close()
            self._begin()
        key, kseq = number % KEYS, number // KEYS
        content = rules.Content(number, key, kseq, time.time_ns() // 1_000_000)
        row = io.StringIO()
        value = rules.encode(content).decode()
        csv.writer(row, lineterminator="\n").writerow(
            [f"{self._run}-{number}", f"key-{key}", value]
        )
        self._file.write(row.getvalue().encode())

    def end(self) -> Ledger:
        """Write nothing more; return that everything written has to be there."""
        self._ending.set()
        self.join()
        fates = np.full((self.written, COPIES), Fate.NEVER, np.uint8)
        fates[:, 0] = Fate.OK
        return Ledger(self._run, fates)


class Front:
    """The publisher, its file and its spool on a small disk."""

    def __init__(self, flow: Flow, folder: Path, disk: Path) -> None:
        self.disk = disk
        self.receipts = folder / "receipts"
        words = ["publish", str(folder / "events.csv"), "--format", "csv", "--topic", flow.source]
        words += ["--id-pointer", "/id", "--key-pointer", "/key", "--value-pointer", "/value"]
        words += ["--header", "dup=0", "--spool", str(disk / "spool")]
        command = [sys.executable, "-m", "hapax", *words]
        self._follow = [*command, "--follow", "--receipts", str(self.receipts)]
        environment = flow.environment(SHUTDOWN__TIMEOUT="5s")
        self.process = ManagedProcess(command, folder / "publish.log", environment)

    def start(self) -> None:
        self.process.start(self._follow)

    def published(self) -> int:
        """Return up to which sequence records are known to be in Kafka."""
        said = self.receipts.read_bytes() if self.receipts.exists() else b""
        for line in reversed(said.splitlines()):
            if b'"published"' in line and line.endswith(b"}"):
                return int(json.loads(line)["sequence"])
        return 0

    def await_published(self, more: int) -> None:
        """Wait until so many more are known to be in Kafka."""
        wanted = self.published() + more
        await_(
            lambda: not self.process.running or self.published() >= wanted, 60, self.process.text
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
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        front = Front(flow, tmp_path, disk)
        events = EventFile(tmp_path / "events.csv", flow.app)
        try:
            worker = flow.worker()
            events.start()
            front.start()
            front.await_published(500)
            for number in range(times):
                strike(front, brokers, number % len(brokers.brokers), worker)
            ledger = events.end()
            assert front.process.terminate() == 0, front.process.text()
            front.process.start()
            front.process.finish(60)
            flow.await_lag_0()
            assert worker.terminate() == 0
            found = judge(flow.topics, ledger, None)
        finally:
            events.end()
            brokers.restore()
            front.process.close()
            flow.close()
    assert not any(found.violations.values()), (found.violations, found.examples)
    assert found.counts.distinct == found.counts.records == events.written
    assert "Traceback" not in front.process.text()
    proof.note(struck=6 * times, note=f"{events.written:,} lines, none lost or doubled")
