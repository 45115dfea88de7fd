"""One event that comes several times: in a batch, later, elsewhere, around its owner's commit."""

import pytest

from tests.kit.at_work import QUICK, at_work, await_told, event, values
from tests.kit.faults import Rule
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, source
from tests.kit.proof import Proof
from tests.kit.proxy import ProxiedBroker
from tests.kit.routes import a_route
from tests.kit.waiting import await_

route = a_route(proxied=True, redis=True, partitions=2, **QUICK)


def place_of(worker: WorkerProcess) -> int:
    """Return the one partition that a worker was given last."""
    places = worker.lines("partitions_assigned")[-1]["partitions"]
    assert isinstance(places, list)
    (name,) = places
    return int(name.rsplit("/", 1)[1])


def shared(route: PipelineUnderTest) -> tuple[WorkerProcess, WorkerProcess, int]:
    """Return two workers with a partition each, and that of the first."""
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
def test_twins_of_one_batch_and_of_a_later_one_are_dropped_behind_the_commit_of_their_owner(
    route, proof
):
    route.write(event(1, b"owner", 0), event(1, b"same batch", 0), event(2, b"else", 1))
    worker = route.worker()
    route.await_lag_0()
    route.write(event(1, b"later", 0), event(1, b"elsewhere", 1), event(2, b"crossed", 0))
    route.await_lag_0()
    assert values(route) == [b"else", b"owner"]
    dropped = sum(int(str(one["duplicates"])) for one in worker.lines("transaction_committed"))
    assert dropped == 4
    proof.note(struck=dropped, note="twins dropped")


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


@pytest.mark.row("R7", "P20", "P21")
def test_every_event_on_both_partitions_has_one_effect_while_owners_are_killed(route, proof):
    count = 1500
    for partition in (0, 1):
        route.write(*(event(number, b"", partition) for number in range(count)))
    slow = {"TRANSFORM": "tests.kit.orders:slow", "TRANSACTION__RECORDS_MAX": "100"}
    workers = [route.worker("w-0", **slow), route.worker("w-1", **slow)]
    kills = 0
    for worker in (*workers, *workers):
        at_work(worker, 1)
        if route.lag():
            worker.kill()
            worker.start()
            kills += 1
    route.await_lag_0()
    assert values(route) == sorted(b"event-%d" % number for number in range(count))
    proof.note(struck=kills, note="owners killed between claim and commit, at random")


@pytest.mark.row("R10")
def test_control_without_claims_every_twin_has_an_effect(route):
    route.write(event(1, b"owner", 0), event(1, b"twin", 0), event(1, b"elsewhere", 1))
    route.run_to_end(DEDUP__REDIS_URL=None)
    assert values(route) == [b"elsewhere", b"owner", b"twin"]
