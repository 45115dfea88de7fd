"""Topics that change under a worker: made again, widened, offline in part, truncated."""

import time

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.kit.at_work import (
    QUICK,
    TEN,
    admin,
    at_work,
    await_exit,
    await_told,
    delete_topic,
    numbers,
    partitions_known,
    refused,
    values,
)
from tests.kit.kept_clients import close_all
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk
from tests.kit.orders import told
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import Proof
from tests.kit.routes import a_route
from tests.kit.topics import Given, delete_group, produce, unmarked
from tests.kit.waiting import await_

# -- made again ---------------------------------------------------------------------------


def await_idle(route: PipelineUnderTest, worker: WorkerProcess) -> None:
    """Wait until a worker has done all there is, and has nothing left to commit.

    What it commits for a topic that was deleted a moment before, the brokers keep.
    """
    at_work(worker)
    route.await_lag_0()
    await_(lambda: unmarked(route.bootstrap, route.app, route.source), 30, worker.text)


@pytest.mark.row("M1")
@pytest.mark.parametrize("records", [2, 20], ids=["shorter", "longer than the offset"])
def test_an_input_that_is_made_again_is_never_read_from_a_stale_offset(
    sandbox, route, proof, records
):
    worker = route.worker()
    await_idle(route, worker)
    delete_topic(route.bootstrap, route.source)
    sandbox.create_topic(route.source)
    again = numbers(range(100, 100 + records))
    route.write(*again)
    await_exit(worker, 6, f"{route.source}/0", "next record is 10", "deleted and recreated")
    assert values(route) == sorted(TEN)
    # The brokers have forgotten the group's offsets with the topic: a new start is a new beginning.
    route.run_to_end()
    assert values(route) == sorted([*TEN, *again])
    proof.note(struck=1, note="input deleted and made again: exit 6, then from the beginning")


@pytest.mark.row("M1")
def test_an_output_that_is_deleted_stops_the_worker_and_nothing_is_skipped_once_it_is_back(
    sandbox, route, proof
):
    worker = at_work(route.worker())
    route.await_lag_0()
    delete_topic(route.bootstrap, route.target)
    later = numbers(range(10, 20))
    route.write(*later)
    await_exit(worker, 1, "output topic", "no longer exists")
    assert route.committed() == {0: 10}
    sandbox.create_topic(route.target)
    route.run_to_end()
    assert values(route) == sorted(later)
    assert route.dead() == []
    proof.note(struck=1, note="output deleted: exit 1, offsets unmoved")


# -- widened ------------------------------------------------------------------------------


@pytest.mark.row("M2")
def test_partitions_that_are_added_under_a_worker_are_read_from_their_beginning(
    route: PipelineUnderTest, proof: Proof
) -> None:
    # The client looks for new partitions when it refreshes what it knows of its topics.
    refresh = '{"topic.metadata.refresh.interval.ms": 1000}'
    worker = route.worker(INPUT__START="latest", KAFKA__PROPERTIES=refresh)
    await_(lambda: None not in route.committed().values(), 30, worker.text)
    client = admin(route)
    for topic in (route.source, route.target):
        client.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    await_(lambda: len(route.committed()) == 3, 30, lambda: "no new partitions")
    route.write(*(Given(b"%d" % number, b"key", partition=number % 3) for number in range(30)))
    await_told(worker, "partitions_assigned", 2)
    route.await_lag_0()
    assert values(route) == sorted(numbers(range(30)))
    assert worker.terminate() == 0
    proof.note(struck=2, note="partitions added to input and output")


# -- three brokers ------------------------------------------------------------------------


wide = a_route(servers="cluster", created=False, **QUICK)


def create_at(
    route: PipelineUnderTest, topic: str, replicas: list[list[int]], **config: str
) -> None:
    """Create a topic with these replicas for each partition, the first of them the leader."""
    client = admin(route)
    new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=config)
    client.create_topics([new], operation_timeout=30)[topic].result(30)


def leader(route: PipelineUnderTest, topic: str, partition: int = 0) -> int:
    known = partitions_known(route, topic)
    return int(known[partition].leader) if partition in known else -1


@pytest.mark.row("M3")
def test_while_one_output_partition_is_offline_nothing_of_a_batch_is_visible(cluster, wide, proof):
    route, broker = wide, cluster.kafka.brokers[2]
    create_at(route, route.source, [[1, 2]])
    create_at(route, route.dead_letters, [[1, 2]])
    create_at(route, route.target, [[1], [broker.node_id]], **{"min.insync.replicas": "1"})
    both = told({"value": "a", "partition": 0}, {"value": "b", "partition": 1})
    route.write(*(Given(value, headers=(both,)) for value in TEN))
    worker = route.worker()
    route.await_lag_0()
    broker.kill()
    try:
        await_(lambda: leader(route, route.target, 1) == -1, 60, worker.text)
        route.write(*(Given(value, headers=(both,)) for value in TEN))
        await_told(worker, "batch_aborted", 2)
        assert route.committed() == {0: 10}
        assert worker.running
    finally:
        broker.start()
        broker.await_ready()
    route.end(worker)
    assert values(route) == sorted([b"a", b"b"] * 20)
    aborted = len(worker.lines("batch_aborted"))
    proof.note(struck=aborted, note="batches aborted while one of two partitions was offline")


@pytest.mark.row("M6")
def test_an_unclean_election_that_cuts_off_what_was_read_makes_the_worker_leave_with_6(
    cluster, wide, proof
):
    route = wide
    _one, behind, ahead = cluster.kafka.brokers
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    create_at(route, route.source, [[ahead.node_id, behind.node_id]], **unclean)
    for topic in (route.target, route.dead_letters):
        create_at(route, topic, [[1, 2, 3]])
    route.write(*TEN)
    worker = route.worker()
    route.await_lag_0()
    behind.kill()
    try:
        # What is written now is on one broker only, which is then lost for good.
        known = partitions_known
        await_(lambda: [*known(route, route.source)[0].isrs] == [ahead.node_id], 60, worker.text)
        produce(route.bootstrap, route.source, *numbers(range(10, 20)))
        route.await_lag_0()
        ahead.kill()
    finally:
        behind.start()
        behind.await_ready()
    try:
        await_(lambda: leader(route, route.source) == behind.node_id, 60, worker.text)
        # A new writer at once grows the log beyond the position again.
        close_all()
        produce(route.bootstrap, route.source, *numbers(range(20, 45)))
        await_exit(worker, 6, f"{route.source}/0", "next record is 20", within_s=60)
        assert values(route) == sorted(numbers(range(20)))
        proof.note(struck=10, note="records that were read and are gone from the log")
    finally:
        ahead.start()
        ahead.await_ready()


# -- Positions that are lost: by retention, with the group's offsets, with the topic itself


@pytest.mark.row("M4")
def test_retention_that_overtakes_a_frozen_worker_makes_it_leave_with_6_and_skip_nothing(
    sandbox, route, proof
):
    worker = at_work(route.worker())
    worker.freeze()
    time.sleep(0.5)  # the fetch that is under way brings nothing: brokers hold it for 100 ms
    route.write(*TEN)
    sandbox.delete_records(route.source, 0, 15)
    worker.thaw()
    await_exit(worker, 6, f"{route.source}/0", "next record is 10", "15 to 20")
    assert route.committed() == {0: 10}
    assert values(route) == sorted(TEN)
    proof.note(struck=5, note="records deleted before they were read")


@pytest.mark.row("M5")
def test_a_group_whose_offsets_were_deleted_does_not_start_over_where_that_is_refused(route, proof):
    route.run_to_end(GROUP__MEMBERSHIP="dynamic")
    assert route.committed() == {0: 10}
    delete_group(route.bootstrap, route.app)
    assert route.committed() == {0: None}
    refused(route, 6, f"{route.source}/0", "HAPAX_INPUT__START=refuse", INPUT__START="refuse")
    refused(route, 6, f"{route.source}/0/10", "hapax offsets set")
    assert values(route) == sorted(TEN)
    # The control: where starting over is asked for it does.
    Desk(route).ask("offsets", "set", route.source, "earliest", "--yes")
    route.run_to_end()
    assert values(route) == sorted(TEN * 2)
    proof.note(struck=1, note="begun from the start on purpose, the same deletion doubles")
