"""Settings do what their table says: starts, bounds, memberships."""

from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from hapax.core.records import Record
from tests.kit.at_work import await_told
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given
from tests.kit.waiting import await_

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture(scope="module", autouse=True)
def consumer_protocol(sandbox, tmp_path_factory):
    """Two members of a KIP-848 group, one of them killed and started again.

    The broker misses the dead one for its session timeout of 45 s: all other tests run meanwhile.
    """
    route = PipelineUnderTest(
        sandbox,
        tmp_path_factory.mktemp("consumer"),
        partitions=2,
        GROUP__PROTOCOL="consumer",
        GROUP__MEMBERSHIP="dynamic",
        TRANSFORM="tests.kit.orders:slow",
    )
    route.create()
    workers = [route.worker("w-0"), route.worker("w-1")]
    try:
        for worker in workers:  # the second has none until the first gives one up
            found = partial(worker.lines, "partitions_assigned")
            await_(lambda f=found: any(line["ours"] for line in f()), 40, worker.text)  # type: ignore[misc]
        route.write(*(Given(b"%d" % number, partition=number % 2) for number in range(3000)))
        for worker in workers:
            await_(lambda w=worker: bool(w.lines("transaction_committed")), 40, worker.text)  # type: ignore[misc]
        workers[0].kill()
        workers[0].start()
        yield route, workers
    finally:
        route.close()


def values(records: list[Record]) -> list[bytes]:
    return sorted(record.value or b"" for record in records)


def test_a_worker_runs_by_flags_and_the_variable_that_other_programs_take(
    sandbox, route_of, monkeypatch
):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", sandbox.bootstrap_servers)
    route = route_of(1)
    route.write(*TEN)
    flags = {"app": route.app, "dead-letter": route.dead_letters}
    flags |= {"input": route.source, "output": route.target}
    words = [word for name, text in flags.items() for word in (f"--{name}", text)]
    command = [*WorkerProcess.command, "builtins:repr", *words]  # a function that returns text
    unset = dict.fromkeys(("APP", "INPUT__TOPICS", "OUTPUT__TOPIC", "DEAD_LETTER__TOPIC"))
    unset["KAFKA__BOOTSTRAP_SERVERS"] = None
    kind = type("ByFlags", (WorkerProcess,), {"command": command})
    route.start(kind, "w-0", STOP_AFTER__AT_END="true", **unset).ends_with(0)
    outputs = values(route.outputs())
    assert len(outputs) == len(TEN)
    assert all(b"value=%r" % value in b"".join(outputs) for value in TEN)
    assert route.lag() == 0


# -- where a group starts -----------------------------------------------------------------


@pytest.mark.row("M2")
@pytest.mark.parametrize("membership", ["static", "dynamic"])
def test_a_partition_added_while_a_member_was_away_is_read_from_its_beginning(
    sandbox, route_of, membership
):
    route = route_of(1, INPUT__START="latest", GROUP__MEMBERSHIP=membership)
    route.write(b"old")
    route.run_to_end()
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    for done in admin.create_partitions([NewPartitions(route.source, 2)]).values():
        done.result(30)
    await_(lambda: len(route.committed()) == 2, 30, lambda: "no second partition")
    route.write(Given(b"new", partition=1), Given(b"new", partition=0))
    route.run_to_end()
    assert values(route.outputs()) == [b"new", b"new"]


def test_latest_keeps_its_place_when_it_is_stopped_at_once(route_of):
    routes = [route_of(1, INPUT__START="latest") for _ in range(4)]
    for route in routes:
        route.write(b"old")
        worker = route.worker()
        await_told(worker, "partitions_assigned")
        assert worker.terminate() == 0
        route.write(b"while away")
        route.worker()
    for route in routes:
        await_(lambda r=route: None not in r.committed().values(), 10, lambda: "no offset")  # type: ignore[misc]
        route.await_lag_0()
        assert values(route.outputs()) == [b"while away"]


# -- bounded runs -------------------------------------------------------------------------


# -- memberships --------------------------------------------------------------------------


def test_the_consumer_protocol_survives_a_kill_and_shares_with_a_second_member(consumer_protocol):
    route, workers = consumer_protocol
    route.await_lag_0()
    assert {worker.terminate() for worker in workers} == {0}
    assert values(route.outputs()) == sorted(b"%d" % number for number in range(3000))
