"""Bugs that other clients and services had: each as a scenario on a real broker."""

import time

import pytest

from hapax.core.record_path import Outputs
from tests.kit.at_work import QUICK, at_work, await_told, numbers, values
from tests.kit.faults import Rule
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import routes_of
from tests.kit.topics import Given, produce_aborted, produce_committed, read_back
from tests.kit.waiting import await_
from tests.kit.worlds import KafkaWorld, joined, message, take

TWENTY = numbers(range(10, 30))

route_of = routes_of(proxied=True, **QUICK)


@pytest.fixture
def world(sandbox):
    world = KafkaWorld(sandbox)
    yield world
    world.close()


def client_of(route: PipelineUnderTest) -> str:
    return f"{route.app}-w-0"


@pytest.mark.row("KAFKA-9079")
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_an_aborted_first_transaction_of_a_group_without_offsets_is_taken_again(
    route_of, proxied_broker, proof, start
):
    route = route_of()
    if start == "latest":
        route.write(*numbers(range(10)))
    fault = proxied_broker.proxy.add(
        Rule("TxnOffsetCommit", "drop", times=1000, client_id=client_of(route))
    )
    worker = route.worker(INPUT__START=start)
    await_told(worker, "partitions_assigned")
    began = None
    if start == "latest":  # its beginning is committed outside of transactions (beginning.py)
        await_(lambda: route.committed() != {0: None}, 60, worker.text)
        began = 10
    route.write(*TWENTY)
    await_told(worker, "producer_rebuilt")
    fault.wait_hit()
    assert route.committed() == {0: began}
    proxied_broker.proxy.clear()
    route.await_lag_0()
    assert values(route) == sorted(TWENTY)
    proof.note(struck=fault.hits, note="offsets lost before any progress was committed")


@pytest.mark.row("KAFKA-6607")
def test_logs_that_begin_with_a_control_record_or_hold_nothing_else_are_read_to_their_end(
    sandbox, route_of, proof
):
    route = route_of(4)
    for partition in range(4):
        batch = [Given(value, partition=partition) for value in TWENTY[:5]]
        produce_committed(route.bootstrap, route.source, *batch)
        if partition < 3:
            produce_committed(route.bootstrap, route.source, *batch)
        produce_aborted(route.bootstrap, route.source, *batch)
    # Offsets: 0-4, marker 5, 6-10, marker 11, aborted 12-16, marker 17.
    begins = {0: 5, 1: 11, 2: 17, 3: 6}
    for partition, offset in begins.items():
        sandbox.delete_records(route.source, partition, offset)
    route.run_to_end()
    assert route.committed() == {0: 18, 1: 18, 2: 18, 3: 12}
    assert values(route) == sorted(TWENTY[:5])
    proof.note(struck=len(begins), note="first offset: a marker, aborted data, the last marker")


@pytest.mark.row("G4", "aiokafka-844")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_joins_between_outputs_and_offsets_makes_no_double(
    route_of, proxied_broker, proof, protocol
):
    route = route_of(2)
    route.write(*(Given(value, partition=place % 2) for place, value in enumerate(TWENTY)))
    group = {"GROUP__PROTOCOL": protocol, "GROUP__MEMBERSHIP": "dynamic"}
    late = proxied_broker.proxy.add(Rule("AddOffsetsToTxn", "hold", client_id=client_of(route)))
    first = route.worker("w-0", **group)
    late.wait_hit()
    api = "JoinGroup" if protocol == "classic" else "ConsumerGroupHeartbeat"
    joins = proxied_broker.proxy.seen(api)
    second = route.worker("w-1", **group)
    await_(lambda: proxied_broker.proxy.seen(api) > joins + 1, 30, second.text)
    late.release()
    route.await_lag_0()
    await_(lambda: bool(second.lines("partitions_assigned")), 60, second.text)
    assert {first.terminate(), second.terminate()} == {0}
    assert values(route) == sorted(TWENTY)
    proof.note(struck=late.hits, note=protocol)


@pytest.mark.row("librdkafka-4849")
def test_aborts_right_behind_the_first_produce_never_kill_the_producer(sandbox, world, proof):
    world.write(b"in")
    joined(world)
    transaction = world.twin()
    transaction.open()
    batch = take(world, 1)[-1]
    aborts = 200
    for number in range(aborts):
        transaction.begin()
        transaction.send(Outputs([message(world, b"never %d" % number)]))
        transaction.abort()
        assert transaction.doubts == []
    transaction.begin()
    transaction.send(Outputs([message(world, b"out")]))
    transaction.send_offsets(batch.next)
    transaction.commit()
    assert [record.value for record in world.outputs()] == [b"out"]
    everything = read_back(sandbox.bootstrap_servers, world.target, "read_uncommitted")
    proof.note(struck=aborts, note=f"{len(everything) - 1} of the aborted records had arrived")


@pytest.mark.row("KAFKA-6906")
def test_outputs_without_offsets_are_committed(world, proof):
    world.transaction.open()
    world.transaction.begin()
    world.transaction.send(Outputs([message(world, b"out")]))
    world.transaction.commit()
    assert [record.value for record in world.outputs()] == [b"out"]
    proof.note(struck=1)


@pytest.mark.row("librdkafka-3297")
def test_a_commit_that_is_held_up_until_the_broker_has_given_up_is_done_anew(
    route_of, proxied_broker, proof
):
    route = route_of()
    route.write(*TWENTY)
    fault = proxied_broker.proxy.add(Rule("EndTxn", "drop", times=1000, client_id=client_of(route)))
    worker = route.worker()
    fault.wait_hit()
    await_told(worker, "producer_died")
    proxied_broker.proxy.clear()
    route.end(worker)
    assert values(route) == sorted(TWENTY)
    proof.note(struck=fault.hits)


@pytest.mark.row("P16", "librdkafka-3265")
def test_a_new_owner_waits_for_what_a_killed_one_left_between_offsets_and_commit(
    route_of, proxied_broker, proof, in_time
):
    route = route_of()
    route.write(*TWENTY)
    fault = proxied_broker.proxy.add(Rule("EndTxn", "drop", times=1000, client_id=client_of(route)))
    dead = route.worker("w-0", GROUP__MEMBERSHIP="dynamic")
    fault.wait_hit()
    dead.kill()
    began_s = time.monotonic()
    at_work(route.worker("w-1", GROUP__MEMBERSHIP="dynamic"))
    waited_s = time.monotonic() - began_s
    route.await_lag_0()
    assert values(route) == sorted(TWENTY)
    # The session is 6 s, the transaction 4 s, and brokers look once a second.
    in_time(waited_s, 6 + 4 + 1 + 4)
    proof.note(struck=fault.hits, note=f"another instance commits {waited_s:.1f} s after the kill")


@pytest.mark.row("P1", "KAFKA-13412")
def test_a_start_whose_first_requests_to_the_coordinator_are_lost_comes_to_work(
    route_of, proxied_broker, proof
):
    route = route_of()
    route.write(*TWENTY)
    lost = proxied_broker.proxy.add(
        Rule("InitProducerId", "drop", times=2, client_id=client_of(route))
    )
    route.run_to_end()
    assert values(route) == sorted(TWENTY)
    proof.note(struck=lost.hits)
