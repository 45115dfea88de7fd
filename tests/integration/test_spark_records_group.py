"""Two drivers in one KIP-848 group: they share, and a twin is fenced, under load.

The tests share one flow and its drivers; each has all that ever happened judged anew.
"""

from typing import NamedTuple

import pytest

from tests.kit.at_work import at_work
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.proof import at_length
from tests.kit.spark_process import SparkProcess, ours
from tests.kit.waiting import await_

QUICK = {
    "GROUP__SESSION_TIMEOUT": "6s",
    "TRANSACTION__TIMEOUT": "4s",
    "GROUP__MEMBERSHIP": "dynamic",
    "GROUP__PROTOCOL": "consumer",
}
EVENTS_PER_S = 500


class Pair(NamedTuple):
    """Two drivers of one group."""

    flow: Flow
    first: SparkProcess
    second: SparkProcess


@pytest.fixture(scope="module")
def drivers(sandbox, tmp_path_factory):
    flow = Flow(sandbox, tmp_path_factory.mktemp("spark-group"), **QUICK)
    try:
        yield Pair(flow, flow.start(SparkProcess, "s-0"), flow.start(SparkProcess, "s-1"))
    finally:
        flow.close()


@pytest.fixture
def pair(drivers):
    """Return both at work, each with partitions of its own."""
    flow, *both = drivers
    for driver in both:
        if not driver.running:
            driver.start()
    flow.feed_beside(EVENTS_PER_S)
    for driver in both:
        at_work(driver, 4)
    yield drivers
    flow.stop_feeding()


@pytest.fixture
def judged(pair):
    """Return what brings the flow to its end and judges it."""

    def judge() -> None:
        pair.flow.stop_feeding()
        pair.flow.await_lag_0()
        assert pair.flow.judge().anomalies == {}

    return judge


def revocations(*drivers: SparkProcess) -> int:
    return sum(len(driver.lines("partitions_revoked")) for driver in drivers)


@pytest.mark.row("SP8")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_two_drivers_share_and_workers_that_come_and_go_take_their_part(pair, judged):
    flow, first, second = pair
    assert ours(first) + ours(second) == PARTITIONS
    before = revocations(first, second)
    worker = flow.worker("w-0")
    at_work(worker, 4)
    at_work(first, 2)
    at_work(second, 2)
    assert worker.terminate() == 0
    worker.start()  # sooner than the brokers' next heartbeat: it gets its share back
    at_work(worker, 4)
    assert worker.terminate() == 0
    await_(lambda: ours(first) + ours(second) == PARTITIONS, 30, first.text)
    at_work(first, 2)
    at_work(second, 2)
    judged()
    assert len(worker.lines("partitions_assigned")) >= 2
    assert revocations(first, second) > before
    assert first.running
    assert second.running


@pytest.mark.row("SP8", "SP10")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_one_of_two_twins_leaves_with_exit_4_and_the_other_goes_on(pair, judged):
    flow, first, second = pair
    twin = flow.start(SparkProcess, "s-0")
    await_(lambda: not (first.running and twin.running), 150, lambda: first.text() + twin.text())
    gone, alive = (first, twin) if twin.running else (twin, first)
    gone.ends_with(4)
    (stopped,) = gone.lines("service_stopped")
    assert "HAPAX_INSTANCE" in str(stopped["reason"])
    at_work(alive, 4)
    at_work(second, 4)
    twin.close()
    if not first.running:  # under the twin's name it gets its partitions at once
        first.start()
        at_work(first)
    judged()
