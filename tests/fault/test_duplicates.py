"""One event that comes several times, and one name that two processes have."""

import time

import pytest
from confluent_kafka import Producer

from tests.kit.at_work import QUICK, at_work, await_exit, await_told, event, numbers, values
from tests.kit.faults import Rule
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, source
from tests.kit.proof import Proof
from tests.kit.proxy import ProxiedBroker
from tests.kit.routes import a_route
from tests.kit.waiting import await_

# -- One event that comes several times: in a batch, later, elsewhere, around its owner's commit.


route = a_route(proxied=True, redis=True, partitions=2, **QUICK)


def place_of(worker: WorkerProcess) -> int:
    """Return the one partition that a worker was given last."""
    places = worker.lines("partitions_assigned")[-1]["partitions"]
    assert isinstance(places, list)
    (name,) = places
    return int(name.rsplit("/", 1)[1])


def shared(route: PipelineUnderTest) -> tuple[WorkerProcess, WorkerProcess, int]:
    first = route.worker("w-0")
    await_told(first, "partitions_assigned")
    second = route.worker("w-1")
    await_(lambda: _ours(first) == _ours(second) == 1, 60, lambda: first.text() + second.text())
    return first, second, 1 - place_of(second)


def _ours(worker: WorkerProcess) -> int | None:
    told = [line["ours"] for line in worker.lines() if "ours" in line]
    return int(str(told[-1])) if told else None


@pytest.mark.row("R10", "R7")
@pytest.mark.parametrize("where", ["same partition", "other partition"])
@pytest.mark.parametrize("end", ["owner commits", "owner is killed"])
def test_a_twin_that_comes_before_its_owner_has_committed_is_dropped_and_the_owner_is_not_lost(
    route, proxied_broker, proof, where, end
):
    owner, other, place = shared(route)
    # Not its TxnOffsetCommit: a mark (suspicion.py) and ends have one too, without any claim.
    fault = proxied_broker.proxy.add(
        Rule("Produce", "mute_after", times=1000, client_id=f"{route.app}-w-0")
    )
    route.write(event(1, b"owner", place))
    await_(lambda: fault.hits > 0, 60, owner.text)
    assert fault.wait_answered() == 0  # its output is on the topic, and open
    twin = place if where == "same partition" else 1 - place
    route.write(event(1, b"twin", twin), event(2, b"behind", twin))
    if where == "other partition":
        await_(lambda: route.committed()[twin] == 2, 30, other.text)
        assert values(route) == [b"behind"]
    if end == "owner is killed":
        owner.kill()
        owner.start()
    proxied_broker.proxy.clear()
    route.await_lag_0()
    assert values(route) == [b"behind", b"owner"]
    proof.note(struck=fault.hits, note=f"twin in the {where}, {end}")


@pytest.mark.row("R10")
def test_a_twin_of_a_dead_letter_is_dropped_whether_its_owner_has_committed_or_not(
    route: PipelineUnderTest, proxied_broker: ProxiedBroker, proof: Proof
) -> None:
    # Not its TxnOffsetCommit: a mark (suspicion.py) and ends have one too, without any claim.
    fault = proxied_broker.proxy.add(
        Rule("Produce", "mute_after", times=1000, client_id=f"{route.app}-w-0")
    )
    ill = event(1, b"ill", 0)
    route.write(ill._replace(headers=(*ill.headers, ("raise", b""))))
    worker = route.worker()
    await_(lambda: fault.hits > 0, 60, worker.text)
    assert fault.wait_answered() == 0  # its dead letter is on the topic, and open
    route.write(event(1, b"twin before", 1))
    worker.kill()
    proxied_broker.proxy.clear()
    worker.start()
    route.await_lag_0()
    route.write(event(1, b"twin after", 1))
    route.await_lag_0()
    assert values(route) == []
    (dead,) = route.dead()
    assert (dead.value, source(dead)) == (b"ill", 0)
    proof.note(struck=fault.hits)


@pytest.mark.row("R10")
def test_control_without_claims_every_twin_has_an_effect(route):
    route.write(event(1, b"owner", 0), event(1, b"twin", 0), event(1, b"elsewhere", 1))
    route.run_to_end(DEDUP__REDIS_URL=None)
    assert values(route) == [b"elsewhere", b"owner", b"twin"]


# -- Two processes of one name -------------------------------------------------------------

MANY = numbers(range(3000))
slow = a_route(TRANSFORM="tests.kit.orders:slow", TRANSACTION__RECORDS_MAX="100", **QUICK)


def hijack(route: PipelineUnderTest) -> None:
    """Take the worker's transactional id, as a second process under its name would."""
    Producer(
        {
            "bootstrap.servers": route.bootstrap,
            "transactional.id": f"{route.app}:w-0",
            "log_level": 0,
        }
    ).init_transactions(30)


@pytest.mark.row("D1")
def test_a_worker_whose_name_is_taken_again_and_again_leaves_with_4_instead_of_fighting(
    slow, proof
):
    slow.write(*MANY)
    worker = at_work(slow.worker())
    hijacks = 0
    deadline_s = time.monotonic() + 60
    while worker.running and time.monotonic() < deadline_s:
        hijack(slow)
        hijacks += 1
    await_exit(worker, 4, "HAPAX_INSTANCE", within_s=1)
    died = len(worker.lines("producer_died"))
    assert died <= hijacks
    (done,) = slow.committed().values()
    assert len(slow.outputs()) == done
    slow.run_to_end(TRANSFORM="tests.kit.orders:obey")
    assert values(slow) == sorted(MANY)
    proof.note(struck=hijacks, note=f"producers died {died} times before exit 4")


@pytest.mark.row("D1")
def test_a_name_that_is_taken_now_and_then_costs_a_rebuild_each_and_nothing_else(slow, proof):
    slow.write(*MANY[::4])
    worker = slow.worker()
    for hijacks in (1, 2, 3):
        at_work(worker, 2)
        hijack(slow)
        slow.write(*MANY[hijacks::4])  # or it might have nothing left to notice it by
        await_told(worker, "producer_died", hijacks)
        await_told(worker, "producer_rebuilt", hijacks)  # taken before that, it costs none
    slow.await_lag_0()
    assert len(worker.lines("producer_died")) == 3
    assert worker.terminate() == 0
    assert values(slow) == sorted(MANY)
    proof.note(struck=3, note="progress in between: the process stays")
