"""Workers of two versions in one group: a rolling upgrade and the way back, under load."""

import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kit.commands import output_of, run_captured
from tests.kit.managed_process import WorkerProcess, clean_environment
from tests.kit.pipeline_under_test import PipelineUnderTest, header
from tests.kit.routes import a_route
from tests.kit.topics import Given
from tests.kit.waiting import await_

ROOT = Path(__file__).parents[2]

FORMER = "ba96372fcd2dcc66c781bd3747f8c8fd5da1bc26"
"""The first commit with today's format of claims, whose worker stands beside this one's."""
FORMER_SETTINGS = {"HAPAX_FAST": "off"}
"""The native path here belongs to this version, and that one does not look."""
PARTITIONS = 4
BATCH = 40
TWIN_EVERY = 10
TWIN = b" twin"
PAUSE_S = 0.05
PROGRESS_S = 60.0
STOP_S = 40.0


class Feed:
    """Writes numbered records, every tenth with a twin of its id, until it is told to stop."""

    def __init__(self, route: PipelineUnderTest) -> None:
        self._route = route
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written: list[tuple[int, bytes]] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(PAUSE_S):
            first = len(self.written)
            new = [(number % PARTITIONS, b"%d" % number) for number in range(first, first + BATCH)]
            twins = [(at, value) for at, value in new if int(value) % TWIN_EVERY == 0]
            self._route.write(
                *(sent(at, value) for at, value in new),
                *(sent(at, value, TWIN) for at, value in twins),
            )
            self.written += new


def sent(partition: int, event_id: bytes, more: bytes = b"") -> Given:
    key = b"%d" % partition  # outputs with one key stand in one partition, in order
    return Given(event_id + more, key, headers=(("message-id", event_id),), partition=partition)


def sources(commit: str, folder: Path) -> Path:
    """Unpack the service as of a commit; return what PYTHONPATH needs."""
    done = subprocess.run(
        ["/usr/bin/env", "git", "-C", ROOT, "archive", commit, "service"],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        missing = (
            f"commit {commit[:12]} is not in this clone, and its worker cannot be started: "
            f"git fetch --unshallow ({done.stderr.decode().strip()})"
        )
        looked = run_captured(
            ["/usr/bin/env", "git", "-C", ROOT, "rev-parse", "--is-shallow-repository"]
        )
        if looked.stdout.strip() != "false":  # nothing here is wrong: history was left out
            pytest.skip(missing)
        pytest.fail(missing)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    place = folder / "service"
    ask = [sys.executable, "-c", "import hapax; print(hapax.__file__)"]
    found = output_of(ask, env=clean_environment() | {"PYTHONPATH": str(place)})
    assert Path(found.strip()).is_relative_to(place)  # not this checkout's
    return place


route = a_route(
    redis=True,
    partitions=PARTITIONS,
    DEDUP__ID="header:message-id",
    GROUP__SESSION_TIMEOUT="6s",
    TRANSACTION__TIMEOUT="4s",
    TRANSACTION__RECORDS_MAX="50",
)


class Fleet:
    """Two instances of one app, each of either version."""

    def __init__(self, route: PipelineUnderTest, folder: Path, former: Mapping[str, str]) -> None:
        self._route = route
        self._folder = folder
        self._more: dict[str, Mapping[str, str]] = {"now": {}, "before": former}
        self._running: dict[str, WorkerProcess] = {}

    def start(self, instance: str, version: str) -> None:
        log = self._folder / f"{len(self._route.workers)}-{instance}-{version}.log"
        worker = WorkerProcess({**self._route.environment(), **self._more[version]}, instance, log)
        self._route.workers.append(worker)
        worker.start()
        self._running[instance] = worker

    def replace(self, instance: str, version: str, *, kill: bool = False) -> None:
        if kill:
            self._running[instance].kill()
        else:
            assert self._running[instance].terminate(STOP_S) == 0, self._words()
        self.start(instance, version)
        self.await_progress()

    def await_progress(self) -> None:
        before = {name: self._commits(name) for name in self._running}
        await_(
            lambda: all(self._commits(name) > count for name, count in before.items()),
            PROGRESS_S,
            self._words,
        )

    def end(self) -> None:
        self._route.await_lag_0(PROGRESS_S)
        for worker in self._running.values():
            assert worker.terminate(STOP_S) == 0, self._words()

    def _commits(self, instance: str) -> int:
        return len(self._running[instance].lines("transaction_committed"))

    def _words(self) -> str:
        return "\n".join(worker.text()[-1500:] for worker in self._running.values())


@pytest.mark.long
def test_an_upgrade_and_the_way_back_lose_and_double_nothing(route, tmp_path):
    place = sources(FORMER, tmp_path / "former")
    fleet = Fleet(route, tmp_path, FORMER_SETTINGS | {"PYTHONPATH": str(place)})
    feed = Feed(route)
    feed.start()
    try:
        fleet.start("w-0", "before")
        fleet.start("w-1", "before")
        fleet.await_progress()
        fleet.replace("w-0", "now")
        fleet.replace("w-1", "now", kill=True)
        fleet.replace("w-0", "before", kill=True)
        fleet.replace("w-1", "before")
    finally:
        feed.stop()
    fleet.end()
    judge(route, feed.written)


def judge(route: PipelineUnderTest, written: list[tuple[int, bytes]]) -> None:
    """Each id has had its effect once, outputs are in the order of the input, none is dead.

    Either of two records with one id may be the one that has the effect: in the former versions
    the claim of the second could come first.
    """
    found: dict[int, list[tuple[int, bytes]]] = {at: [] for at in range(PARTITIONS)}
    for record in route.outputs():
        _, place, offset = header(record, "hapax-source").split("/")
        found[int(place)].append((int(offset), (record.value or b"").removesuffix(TWIN)))
    for at, outputs in found.items():
        assert sorted(event_id for _, event_id in outputs) == sorted(
            event_id for place, event_id in written if place == at
        )
        assert outputs == sorted(outputs)
    assert route.dead() == []
