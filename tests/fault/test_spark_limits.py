"""Rows of the Spark engine that no other test shows: one driver through all of them."""

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kit.at_work import QUICK, numbers, values
from tests.kit.orders import told
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given

IDLE_S = 4.0
REQUESTS_PER_S_MAX = 60
"""Two clients that hold a fetch or a heartbeat each, and a question for ends now and then."""


@pytest.fixture
def route(sandbox, proxied_broker, tmp_path):
    route = PipelineUnderTest(
        sandbox,
        tmp_path,
        partitions=2,
        kind=SparkProcess,
        KAFKA__BOOTSTRAP_SERVERS=proxied_broker.proxied,
        # The client looks for new partitions when it refreshes what it knows of its topics.
        KAFKA__PROPERTIES='{"topic.metadata.refresh.interval.ms": 1000}',
        **QUICK,
    )
    route.create()
    yield route
    route.close()


def spread(values: list[bytes], partitions: int) -> list[Given]:
    return [Given(value, partition=place % partitions) for place, value in enumerate(values)]


@pytest.mark.row("SP15", "SP17", "SP18", "SP24")
def test_a_driver_filters_everything_idles_gets_partitions_and_comes_back_with_other_limits(
    route, proxied_broker, proof
):
    route.write(*(Given(b"no", headers=(told(),), partition=number % 2) for number in range(40)))
    driver = route.worker("s-0")
    route.await_lag_0()
    assert route.committed() == {0: 20, 1: 20}
    assert route.outputs() == []

    before = sum(proxied_broker.proxy._seen.values())
    time.sleep(IDLE_S)  # what is asserted is how little happens
    per_s = (sum(proxied_broker.proxy._seen.values()) - before) / IDLE_S
    assert per_s < REQUESTS_PER_S_MAX

    client = AdminClient({"bootstrap.servers": route.bootstrap})
    client.create_partitions([NewPartitions(route.source, 4)])[route.source].result(30)
    route.write(*spread(numbers(range(400)), 4))
    route.await_outputs(400)  # as its start: Spark on a loaded machine takes a minute

    driver.kill()
    route.write(*spread(numbers(range(400, 800)), 4))
    route.start(SparkProcess, "s-0", SPARK__LANES="1", TRANSACTION__RECORDS_MAX="50")
    route.await_lag_0()
    assert values(route) == sorted(numbers(range(800)))
    proof.note(struck=4, note=f"idle: {per_s:.0f} requests a second; 2 partitions to 4; 1 lane")
