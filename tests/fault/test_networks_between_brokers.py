"""Brokers that cannot hear each other, while clients and controllers hear all of them."""

import pytest
from confluent_kafka import Producer

from hapax.sandbox import Sandbox
from tests.fault.cluster import Cluster
from tests.kit.at_work import QUICK, at_work, numbers, partitions_known, values
from tests.kit.faults import ALWAYS, Rule
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import await_

BETWEEN_BROKERS = {
    # Replication and markers go through the proxy; clients and controllers do not.
    "inter.broker.listener.name": "PROXIED",
    "replica.lag.time.max.ms": "2000",
}
MANY = numbers(range(2000))
PARTITIONS = 3


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Three brokers with a proxy between them."""
    with (
        Sandbox(nodes=3, redis=False, proxied=True, properties=BETWEEN_BROKERS) as sandbox,
        FaultProxy.before(sandbox) as proxy,
    ):
        yield sandbox, proxy


@pytest.fixture
def route(apart, route_of):
    settings = {"TRANSFORM": "tests.kit.orders:slow", "TRANSACTION__RECORDS_MAX": "50"}
    route = route_of(PARTITIONS, servers=apart[0], **(QUICK | settings))
    route.write(*MANY)
    return route


def in_sync(route: PipelineUnderTest, *topics: str) -> dict[tuple[str, int], int]:
    return {
        (topic, number): len(each.isrs)
        for topic in topics
        for number, each in partitions_known(route, topic).items()
    }


def write_to_leaders(route: PipelineUnderTest) -> list[bytes]:
    """Write a record to each input partition that its leader alone acknowledges.

    A follower that has all there is counts as in sync, however long it is silent.
    """
    producer = Producer({"bootstrap.servers": route.bootstrap, "acks": 1, "log_level": 0})
    written = [b"late %d" % number for number in range(PARTITIONS)]
    for number, value in enumerate(written):
        producer.produce(route.source, value, partition=number)
    assert producer.flush(30) == 0
    return written


@pytest.mark.row("N1")
@pytest.mark.rounds
@pytest.mark.parametrize("deaf", [pytest.param("one", marks=at_length), "all"])
def test_while_brokers_cannot_hear_each_other_nothing_is_lost_and_afterwards_all_goes_on(
    apart, route, proof, deaf
):
    sandbox, proxy = apart
    worker = at_work(route.worker())
    first = (route.source, 0)
    leader = Cluster(sandbox).leader(*first)
    alone: list[int] = []

    def stands_alone() -> bool:
        """Look once: the next answer may be that of a broker which has not heard of it yet."""
        seen = in_sync(route, route.source, route.target)
        alone.append(list(seen.values()).count(1))
        return seen[first] == 1

    with proxy.offline(leader.proxy_target_port if deaf == "one" else None):
        late = write_to_leaders(route)
        # A leader that its followers cannot reach stands alone: below the two that writes need.
        await_(stands_alone, 60, worker.text)
    topics = (route.source, route.target)
    await_(lambda: min(in_sync(route, *topics).values()) == 3, 60, worker.text)
    route.end(worker)
    assert values(route) == sorted([*MANY, *late])
    proof.note(struck=alone[-1], note=f"partitions whose leader stood alone ({deaf} deaf)")


@pytest.mark.row("N1")
@pytest.mark.rounds
@pytest.mark.parametrize("action", ["delay", pytest.param("reset_after", marks=at_length)])
def test_markers_that_come_late_or_twice_delay_readers_and_nothing_else(
    apart, route, proof, action
):
    """The answer to EndTxn comes before the markers: the next transaction must wait for them."""
    _sandbox, proxy = apart
    worker = at_work(route.worker())
    rule = proxy.add(Rule("WriteTxnMarkers", action, times=ALWAYS, delay_ms=300))
    await_(lambda: rule.hits >= 20, 60, worker.text)
    proxy.remove(rule)
    route.end(worker)
    assert values(route) == sorted(MANY)
    proof.note(struck=rule.hits, note=f"requests for markers: {action}")


@pytest.mark.row("B3")
def test_outputs_that_are_reassigned_to_one_replica_and_back_to_three_are_written_all_the_time(
    apart, route, proof
):
    """Brokers ask for no more in-sync replicas than a partition has."""
    cluster = Cluster(apart[0])
    worker = at_work(route.worker())
    places = cluster.places([route.target])
    for replicas in ([1], [3, 1, 2]):
        cluster.reassign(dict.fromkeys(places, replicas))
        await_(lambda: cluster.replicas([route.target]) == {len(replicas)}, 60, worker.text)  # noqa: B023 - asked within this turn
        route.write(*MANY)
        at_work(worker)
    route.end(worker)
    assert values(route) == sorted(3 * MANY)
    proof.note(struck=2 * len(places), note="outputs reassigned, 3 to 1 to 3 replicas")
