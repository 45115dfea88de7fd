"""Batches beside the limits that time sets them, and rows of the Spark engine."""

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kit.at_work import QUICK, TEN, await_told, numbers, values
from tests.kit.managed_process import WorkerProcess
from tests.kit.orders import told
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

# -- Batches that take longer than a timeout allows ----------------------------------------

route = a_route(**QUICK)
STUCK = Given(b"stuck", headers=(("sleep-s", b"10"),))


def overrun(route: PipelineUnderTest, transform: str) -> tuple[WorkerProcess, WorkerProcess]:
    """Return a worker that gets stuck in its batch, and the next owner, which has done it."""
    route.write(*TEN, STUCK)
    slow = route.worker(
        "w-0",
        TRANSFORM=transform,
        GROUP__MEMBERSHIP="dynamic",
        GROUP__MAX_POLL_INTERVAL="7s",
        WATCHDOG__TIMEOUT="5s",
    )
    await_told(slow, "partitions_assigned")
    heir = route.worker("w-1", GROUP__MEMBERSHIP="dynamic")
    await_told(heir, "transaction_committed")
    route.await_lag_0()
    assert values(route) == sorted([*TEN, b"stuck"])
    return slow, heir


@pytest.mark.row("G2")
def test_a_batch_that_overruns_the_poll_interval_is_given_up_and_done_by_the_next_owner(
    route, proof
):
    """C code that keeps the interpreter lock: the limit of a call cannot end the process first."""
    slow, heir = overrun(route, "tests.fault.business:hold")
    await_told(slow, "partitions_lost")
    route.write(b"after")
    route.await_lag_0()
    assert {slow.terminate(), heir.terminate()} == {0}
    assert values(route) == sorted([*TEN, b"stuck", b"after"])
    assert slow.lines("call_hung") == []
    aborted = len(slow.lines("batch_aborted"))
    proof.note(struck=aborted, note="batches given up by the one that overran")


@pytest.mark.row("G2")
def test_a_call_that_would_overrun_the_poll_interval_ends_with_8_before_and_the_next_owner_does_it(
    route, proof, in_time
):
    slow, heir = overrun(route, "tests.fault.business:sleep")
    await_(lambda: not slow.running, 30, slow.text)
    slow.ends_with(8)
    (hung,) = slow.lines("call_hung")
    assert hung["record"] == f"{route.source}/0/10"
    in_time(float(str(hung["seconds"])), 7)
    assert slow.lines("transaction_committed") == slow.lines("partitions_lost") == []
    route.write(b"after")
    route.end(heir)
    assert values(route) == sorted([*TEN, b"stuck", b"after"])
    assert route.dead() == []
    proof.note(struck=1, note="calls cut at 0.9 of the poll interval")


@pytest.mark.row("T1")
def test_a_transform_that_is_slower_than_the_transaction_timeout_aborts_nothing(route, proof):
    route.write(*(Given(b"%d" % number, headers=(("sleep-s", b"0.5"),)) for number in range(16)))
    worker = route.run_to_end(TRANSFORM="tests.fault.business:sleep", TRANSACTION__TIMEOUT="2s")
    assert values(route) == sorted(numbers(range(16)))
    assert worker.lines("batch_aborted") == worker.lines("producer_died") == []
    settled = worker.lines("transaction_committed")
    count = sum(int(str(line["transactions"])) for line in settled)
    proof.note(struck=16 // 4, note=f"8 s of work, {count} transactions of 2 s at most")


# -- Rows of the Spark engine that no other test shows: one driver through all of them -----

IDLE_S = 4.0
REQUESTS_PER_S_MAX = 60
"""Two clients that hold a fetch or a heartbeat each, and a question for ends now and then."""

spread_route = a_route(
    proxied=True,
    partitions=2,
    kind=SparkProcess,
    # The client looks for new partitions when it refreshes what it knows of its topics.
    KAFKA__PROPERTIES='{"topic.metadata.refresh.interval.ms": 1000}',
    **QUICK,
)


def spread(values: list[bytes], partitions: int) -> list[Given]:
    return [Given(value, partition=place % partitions) for place, value in enumerate(values)]


@pytest.mark.row("SP15", "SP17", "SP18", "SP24")
def test_a_driver_filters_everything_idles_gets_partitions_and_comes_back_with_other_limits(
    spread_route, proxied_broker, proof
):
    spread_route.write(
        *(Given(b"no", headers=(told(),), partition=number % 2) for number in range(40))
    )
    driver = spread_route.worker("s-0")
    spread_route.await_lag_0()
    assert spread_route.committed() == {0: 20, 1: 20}
    assert spread_route.outputs() == []

    before = sum(proxied_broker.proxy._seen.values())
    time.sleep(IDLE_S)  # what is asserted is how little happens
    per_s = (sum(proxied_broker.proxy._seen.values()) - before) / IDLE_S
    assert per_s < REQUESTS_PER_S_MAX

    client = AdminClient({"bootstrap.servers": spread_route.bootstrap})
    client.create_partitions([NewPartitions(spread_route.source, 4)])[spread_route.source].result(
        30
    )
    spread_route.write(*spread(numbers(range(400)), 4))
    spread_route.await_outputs(400)  # as its start: Spark on a loaded machine takes a minute

    driver.kill()
    spread_route.write(*spread(numbers(range(400, 800)), 4))
    spread_route.start(SparkProcess, "s-0", SPARK__LANES="1", TRANSACTION__RECORDS_MAX="50")
    spread_route.await_lag_0()
    assert values(spread_route) == sorted(numbers(range(800)))
    proof.note(struck=4, note=f"idle: {per_s:.0f} requests a second; 2 partitions to 4; 1 lane")
