"""Two processes of one name, and a supervisor that asks whether a waiting worker lives."""

import time

import pytest
from confluent_kafka import Producer

from tests.kit.at_work import (
    QUICK,
    at_work,
    await_exit,
    await_told,
    numbers,
    values,
)
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.waiting import await_

MANY = numbers(range(3000))

route = a_route(TRANSFORM="tests.kit.orders:slow", TRANSACTION__RECORDS_MAX="100", **QUICK)


def hijack(route: PipelineUnderTest) -> None:
    """Take the worker's transactional id, as a second process under its name would."""
    thief = Producer(
        {
            "bootstrap.servers": route.bootstrap,
            "transactional.id": f"{route.app}:w-0",
            "log_level": 0,
        }
    )
    thief.init_transactions(30)


@pytest.mark.row("D1")
def test_a_worker_whose_name_is_taken_again_and_again_leaves_with_4_instead_of_fighting(
    route, proof
):
    route.write(*MANY)
    worker = route.worker()
    at_work(worker)
    hijacks = 0
    deadline_s = time.monotonic() + 60
    while worker.running and time.monotonic() < deadline_s:
        hijack(route)
        hijacks += 1
    await_exit(worker, 4, "HAPAX_INSTANCE", within_s=1)
    died = len(worker.lines("producer_died"))
    assert died <= hijacks
    (done,) = route.committed().values()
    assert len(route.outputs()) == done
    route.run_to_end(TRANSFORM="tests.kit.orders:obey")
    assert values(route) == sorted(MANY)
    proof.note(struck=hijacks, note=f"producers died {died} times before exit 4")


@pytest.mark.row("D1")
def test_a_name_that_is_taken_now_and_then_costs_a_rebuild_each_and_nothing_else(route, proof):
    route.write(*MANY)
    worker = route.worker()
    for hijacks in (1, 2, 3):
        at_work(worker, 2)
        hijack(route)
        await_told(worker, "producer_died", hijacks)
    route.await_lag_0()
    assert len(worker.lines("producer_died")) == 3
    assert worker.terminate() == 0
    assert values(route) == sorted(MANY)
    proof.note(struck=3, note="progress in between: the process stays")


@pytest.mark.row("H1", "B5")
def test_a_worker_that_waits_for_its_brokers_lives_and_goes_on_when_they_are_back(
    sandbox, route, proof
):
    port = free_port()
    (broker,) = sandbox.kafka.brokers
    route.write(*MANY[:1500])
    worker = route.worker(TELEMETRY__PORT=str(port))
    at_work(worker, 2)
    broker.kill()
    try:
        # Longer than the transaction's and the group's timeout, and than a message may wait.
        until_s = time.monotonic() + 8
        alive = []
        while time.monotonic() < until_s:
            alive.append(ask(port, "/livez")[0])
            time.sleep(0.5)
        lines = len(worker.lines())
    finally:
        broker.start()
        broker.await_ready()
    assert set(alive) == {200}
    assert lines < 2000, "it must not spin"
    await_(lambda: ready(port)[0], 60, worker.text)
    route.await_lag_0()
    assert worker.terminate() == 0
    assert values(route) == sorted(MANY[:1500])
    proof.note(struck=1, note=f"all brokers away for 8 s; asked {len(alive)} times, always alive")
