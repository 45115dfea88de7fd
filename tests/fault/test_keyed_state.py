"""Keyed state under faults: what it must be is counted from the input alone.

Outputs, changelog and the stores of the workers are compared with that.
"""

import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

import msgspec
import pytest

from hapax.kafka.read.changelog import Changelog
from hapax.processing.state import content_of, entry_of, prefix_of
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.settings import load_settings
from hapax.state_store import LmdbStore
from tests.fault.cluster import Cluster
from tests.kit.at_work import QUICK
from tests.kit.keeping import FORMS, gaps
from tests.kit.managed_process import ManagedProcess, WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import rounds
from tests.kit.topics import Given, lag, read_back
from tests.kit.waiting import await_, reaches

PARTITIONS, KEYS, WORKERS = 6, 600, 4
EACH = 2_000
"""Records that are written with each strike."""


class Scene:
    """Workers with folders of their own, and brokers, which a strike harms; it heals the harm.

    Each worker calls the function in another form.
    """

    def __init__(self, route: PipelineUnderTest, cluster: Cluster, folder: Path) -> None:
        self.route, self.cluster, self.folder = route, cluster, folder
        self.workers = [self._started(number) for number in range(WORKERS)]
        self.written: Counter[bytes] = Counter()
        self._next = cycle(range(KEYS))

    def store(self, number: int) -> Path:
        return self.folder / f"state-{number}"

    def write(self, count: int) -> None:
        keys = [next(self._next) for _ in range(count)]
        records = [Given(b"x", b"key-%d" % key, partition=key % PARTITIONS) for key in keys]
        self.route.write(*records)
        self.written.update(b"key-%d" % key for key in keys)

    def _started(self, number: int) -> WorkerProcess:
        form = FORMS[list(FORMS)[number]]
        return self.route.worker(f"w-{number}", STATE__DIR=str(self.store(number)), **form)

    # -- strikes ------------------------------------------------------------------------------

    def kill(self, chance: random.Random) -> None:
        worker = chance.choice(self.workers)
        worker.kill()
        worker.start()

    def lose_disk(self, chance: random.Random) -> None:
        number = chance.randrange(WORKERS)
        self.workers[number].kill()
        shutil.rmtree(self.store(number), ignore_errors=True)
        self.workers[number].start()

    def freeze(self, chance: random.Random) -> None:
        """Longer than the session, so that another member has its partitions when it thaws."""
        worker = chance.choice(self.workers)
        worker.freeze()
        time.sleep(8.0)
        worker.thaw()

    def scale(self, chance: random.Random) -> None:
        worker = chance.choice(self.workers)
        worker.process.send_signal(signal.SIGTERM)
        await_(lambda: not worker.running, what=worker.text)
        self.write(EACH // 4)
        worker.start()

    def kill_broker(self, chance: random.Random) -> None:
        broker = chance.choice(self.cluster.brokers)
        broker.kill()
        time.sleep(chance.uniform(0.5, 4.0))
        broker.start()
        assert self.cluster.await_in_step()

    def freeze_broker(self, chance: random.Random) -> None:
        broker = chance.choice(self.cluster.brokers)
        broker.pause()
        time.sleep(chance.uniform(1.0, 5.0))
        broker.resume()
        assert self.cluster.await_in_step()


STRIKES: list[Callable[[Scene, random.Random], None]] = [
    Scene.kill,
    Scene.lose_disk,
    Scene.freeze,
    Scene.scale,
    Scene.kill_broker,
    Scene.freeze_broker,
]


@pytest.fixture
def scene(cluster: Sandbox, tmp_path: Path) -> Iterator[Scene]:
    settings = {"TRANSACTION__RECORDS_MAX": "500", **QUICK}
    route = PipelineUnderTest(cluster, tmp_path, partitions=PARTITIONS, **settings)
    route.create()
    compact = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0"}
    cluster.create_topics(SandboxTopic(f"{route.app}-state", PARTITIONS, compact))
    yield Scene(route, Cluster(cluster), tmp_path)
    route.close()


def kept(route: PipelineUnderTest) -> dict[bytes, bytes]:
    """Return the changelog as its last records of each entry have it."""
    found: dict[bytes, bytes | None] = {}
    for one in read_back(route.bootstrap, f"{route.app}-state"):
        found[entry_of(one.partition, one.key or b"")] = one.value
    return {entry: value for entry, value in found.items() if value is not None}


@pytest.mark.rounds
@pytest.mark.long
def test_state_is_what_the_input_says_after_faults_of_workers_disks_and_brokers(scene, proof):
    chance, strikes = random.Random(11), rounds(6, 30)
    for number in range(strikes):
        scene.write(EACH)
        time.sleep(chance.uniform(0.0, 1.0))
        STRIKES[number % len(STRIKES)](scene, chance)
        for worker in scene.workers:
            if not worker.running:  # what ended by itself comes back, as its supervisor would do
                worker.start()
    scene.write(EACH)
    scene.route.await_lag_0(300)
    for worker in scene.workers:
        worker.terminate(60)
    outputs = scene.route.outputs()
    assert gaps(outputs) == []
    assert Counter(one.key for one in outputs) == scene.written
    expected = {
        prefix_of(int(key.split(b"-")[1]) % PARTITIONS, key) + b"count": count
        for key, count in scene.written.items()
    }
    state = kept(scene.route)
    assert {at: msgspec.msgpack.decode(content_of(one)) for at, one in state.items()} == expected
    assert held_wrongly(scene, state) == []
    proof.note(struck=strikes, note=f"{sum(scene.written.values())} records, counts without a gap")


def held_wrongly(scene: Scene, state: dict[bytes, bytes]) -> list[str]:
    """Return what a store says of a partition where it claims to be at the group's offset."""
    wrong: list[str] = []
    committed, environment = scene.route.committed(), scene.route.environment(INSTANCE="judge")
    for number in range(WORKERS):
        ids = Changelog(load_settings(environment)).ids()
        store = LmdbStore(scene.store(number), 1 << 30, ids)
        for partition in range(PARTITIONS):
            if store.position((scene.route.source, partition)) != committed[partition]:
                continue
            head = partition.to_bytes(4, "big")
            theirs = {at: value for at, value in state.items() if at.startswith(head)}
            wrong += [f"{number}: {at!r}" for at, value in theirs.items() if store.get(at) != value]
        store.close()
    return wrong


def more(route: PipelineUnderTest, count: int) -> bool:
    return len(route.outputs()) > count


@pytest.mark.long
def test_control_a_loop_that_keeps_its_counts_apart_from_its_offsets_counts_twice(
    sandbox, tmp_path, proof
):
    route = PipelineUnderTest(sandbox, tmp_path, partitions=1)
    route.create()
    words = [sys.executable, "-m", "tests.kit.naive_keeping", route.bootstrap, route.source]
    loop = ManagedProcess([*words, route.target, str(tmp_path)], tmp_path / "naive.log")
    chance, kills = random.Random(3), 8
    loop.start()
    for number in range(kills):
        route.write(*[Given(b"x", b"key-%d" % (at % 20)) for at in range(4_000)])
        reaches(partial(more, route, len(route.outputs())), 60.0)
        time.sleep(chance.uniform(0.0, 0.3))
        loop.kill()
        if number + 1 < kills:
            loop.start()
    loop.start()
    reaches(lambda: lag(route.bootstrap, f"{route.target}-naive", route.source) == 0, 120.0)
    loop.close()
    assert gaps(route.outputs())
    proof.note(struck=kills, note="as it must: the loop counts twice")
