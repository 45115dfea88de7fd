"""Two clusters, both struck: a mirror stays exact when workers and brokers of either side die."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from hapax.kafka.produce.target import target_names
from hapax.sandbox import Broker
from tests.fault.cluster import Cluster
from tests.kit.at_work import QUICK, at_work
from tests.kit.managed_process import WorkerProcess
from tests.kit.mirror_frozen import FREEZE_AT
from tests.kit.mirrors import Mirror, a_mirror, an_other_cluster, given
from tests.kit.proof import rounds
from tests.kit.waiting import await_

pytestmark = pytest.mark.long


class Frozen(WorkerProcess):
    """A worker that may have stopped itself."""

    def stopped(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] == "T"


other = an_other_cluster()
mirror = a_mirror(**QUICK)


def zombie(mirror: Mirror, folder: Path, transform: str) -> None:
    """Freeze a worker over a batch until another has done its partitions, then thaw it."""
    mark = folder / "frozen"
    settings = {**QUICK, "TRANSFORM": transform}
    environment = mirror.environment(**settings) | {FREEZE_AT: str(mark)}
    mirror.write(*given(60))
    first = Frozen(environment, "w-0", folder / "w-0.log")
    first.start()
    mirror.workers.append(first)
    await_(lambda: mark.exists() and first.stopped(), 60, first.text)
    mirror.worker("w-1", **settings)
    mirror.await_all(60)
    first.thaw()
    await_(lambda: first.lines("producer_died") or first.lines("transaction_committed"), 60)
    mirror.write(*given(60, 60))
    mirror.await_all(60)


def test_a_worker_that_thaws_over_a_batch_is_fenced_when_another_has_its_partition(
    mirror, tmp_path
):
    zombie(mirror, tmp_path, "tests.kit.mirror_frozen:pass_on")
    assert mirror.anomalies() == []
    assert [line["fenced"] for line in mirror.workers[0].lines("producer_died")] == [True]


def test_control_with_an_id_of_the_process_the_batch_is_doubled(mirror, tmp_path):
    zombie(mirror, tmp_path, "tests.kit.mirror_unfenced:pass_on")
    assert any("doubled" in text for text in mirror.anomalies())


class Writing(threading.Thread):
    """Writes to the input until it is told to stop; brokers may be away meanwhile."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(daemon=True)
        self._topic = mirror.source
        self._producer = Producer(
            {
                "bootstrap.servers": mirror.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._done = threading.Event()

    def run(self) -> None:
        first = 0
        while not self._done.wait(0.1):
            for one in given(30, first):
                self._producer.produce(
                    self._topic,
                    one.value,
                    one.key,
                    one.partition,
                    timestamp=one.timestamp_ms,
                    headers=list(one.headers),
                )
            first += 30
            self._producer.poll(0)

    def finish(self) -> None:
        self._done.set()
        self.join()
        assert self._producer.flush(60) == 0


def kill(broker: Broker) -> None:
    broker.kill()
    broker.start()
    broker.await_ready()


@pytest.mark.rounds
def test_a_mirror_is_exact_after_kills_of_workers_and_brokers_of_both_clusters_and_a_long_freeze(
    sandbox, cluster, tmp_path, proof
):
    """The outputs have three brokers, of which one dies: a cluster that dies whole drops markers.

    The input has one. Nothing transactional is on it.
    """
    mirror = Mirror(sandbox, cluster, tmp_path, partitions=3, **QUICK)
    mirror.create()
    try:
        strikes = struck(mirror, Cluster(cluster), sandbox.kafka.brokers[0])
        inputs = len(mirror.inputs())
        assert mirror.anomalies() == []
        proof.note(struck=strikes, note=f"{inputs} records mirrored, equal to the byte")
    finally:
        mirror.close()


def struck(mirror: Mirror, there: Cluster, here: Broker) -> int:
    first, second = mirror.worker("w-0"), mirror.worker("w-1")
    writing = Writing(mirror)
    writing.start()
    at_work(first)
    at_work(second)
    strikes = 0
    for turn in range(rounds(1, 8)):
        first.kill()
        first.start()
        at_work(first, 2)
        lane = target_names(mirror.app, (mirror.source, turn % 3))
        roles = {"transactions": lane.transactional_id, "offsets": lane.group}
        role = [*roles][turn % 2]
        kill(there.coordinator(role, roles[role]))
        at_work(second, 2)
        kill(here)
        at_work(second, 2)
        assert there.await_in_step()
        done = len(first.lines("transaction_committed"))
        second.freeze()
        await_(lambda: len(assigned(first)) == 3, 60, first.text)
        at_work(first, 2)
        second.thaw()
        at_work(second, 2)
        assert len(first.lines("transaction_committed")) > done
        strikes += 4
    writing.finish()
    mirror.await_all(120)
    return strikes


def assigned(worker: WorkerProcess) -> list[object]:
    told = worker.lines("partitions_assigned")[-1:]
    return [None] * int(str(told[0]["ours"])) if told else []
