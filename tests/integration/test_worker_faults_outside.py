"""What is around the workers fails: brokers, the claim store, and a twin with the same name."""

import random
import time

import pytest

from tests.fault.cluster import Cluster
from tests.kit.at_work import at_work, await_told
from tests.kit.flow import Flow
from tests.kit.proof import at_length
from tests.kit.waiting import await_

QUICK = {"GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s"}


@pytest.fixture
def flow(sandbox, unique, tmp_path):
    flow = Flow(sandbox, tmp_path, **QUICK)
    yield flow
    flow.close()


@pytest.fixture
def cluster_flow(cluster, unique, tmp_path):
    flow = Flow(cluster, tmp_path, **QUICK)
    yield flow
    flow.close()


@pytest.mark.row("D1", "H1")
@pytest.mark.parametrize("membership", ["static", "dynamic"])
def test_one_of_two_twins_leaves_with_exit_4_and_the_other_goes_on(flow, membership):
    flow.feed_beside(1000)
    first = flow.worker("twin", GROUP__MEMBERSHIP=membership)
    at_work(first, 4)
    began_s = time.monotonic()
    second = flow.worker("twin", GROUP__MEMBERSHIP=membership)
    await_(lambda: not (first.running and second.running), 30, lambda: first.text() + second.text())
    assert time.monotonic() - began_s < 30
    gone, alive = (first, second) if second.running else (second, first)
    gone.ends_with(4)
    (stopped,) = gone.lines("service_stopped")
    assert "HAPAX_INSTANCE" in str(stopped["reason"])
    at_work(alive, 4)
    assert flow.finish().anomalies == {}


@pytest.mark.row("R1")
def test_a_claim_store_that_dies_and_comes_back_with_its_data_costs_nothing(flow):
    flow.feed_beside(1000)
    worker = flow.worker("w-0")
    for outage in (1, 2):
        at_work(worker, 4)
        flow.sandbox.redis.kill()
        await_told(worker, "claims_unavailable", outage)
        flow.sandbox.redis.start()
        flow.sandbox.redis.await_ready()
        await_told(worker, "claims_recovered", outage)
    assert flow.finish().anomalies == {}


@pytest.mark.row("B1")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_brokers_killed_one_after_another_lose_and_double_nothing(cluster_flow):
    flow = cluster_flow
    flow.feed_beside(600)
    first, second = flow.worker("w-0"), flow.worker("w-1")
    at_work(first, 4)
    at_work(second, 4)
    brokers = list(flow.sandbox.kafka.brokers)
    random.Random(1).shuffle(brokers)
    replicas = Cluster(flow.sandbox)
    for broker in brokers:
        # A broker that is back need not be in sync yet: the next one killed could be the only one.
        assert replicas.await_in_step()
        broker.kill()
        at_work(first, 6)
        broker.start()
        broker.await_ready()
        at_work(second, 6)
    judgement = flow.finish(120)
    assert judgement.anomalies == {}


@pytest.mark.row("B2")
@pytest.mark.long
def test_a_frozen_broker_and_killed_workers_together(cluster_flow):
    flow = cluster_flow
    flow.feed_beside(600)
    first, second = flow.worker("w-0"), flow.worker("w-1")
    for broker, victim in zip(flow.sandbox.kafka.brokers, (first, second, first), strict=True):
        at_work(first, 4)
        at_work(second, 4)
        broker.pause()
        victim.kill()
        victim.start()
        time.sleep(3)  # shorter than the brokers' session: a grey failure, nobody is declared dead
        broker.resume()
    judgement = flow.finish(120)
    assert judgement.anomalies == {}
