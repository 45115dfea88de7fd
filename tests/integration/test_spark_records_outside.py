"""What is around a Spark driver fails: brokers and the claim store."""

from collections.abc import Callable

import pytest

from tests.kit.at_work import at_work
from tests.kit.claim_stores import redis_server
from tests.kit.flow import PARTITIONS, Flow
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, values
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

EVENTS_PER_S = 300


@pytest.fixture(scope="module")
def flow(cluster, tmp_path_factory):
    flow = Flow(
        cluster,
        tmp_path_factory.mktemp("spark-outside"),
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="4s",
    )
    yield flow
    flow.close()


@pytest.fixture(scope="module")
def only_driver(flow):
    return flow.start(SparkProcess, "s-0")


@pytest.fixture
def driver(flow, only_driver):
    """Return the driver, at work; it must live through all of it."""
    flow.feed_beside(EVENTS_PER_S)
    at_work(only_driver, 4)
    yield only_driver
    flow.stop_feeding()
    assert only_driver.running


@pytest.fixture
def judged(flow, driver):
    """Return what brings the flow to its end and judges it."""

    def judge() -> None:
        flow.stop_feeding()
        flow.await_lag_0()
        assert flow.judge().anomalies == {}

    return judge


@pytest.mark.row("SP21")
def test_a_claim_store_that_dies_and_comes_back_with_its_data_costs_nothing(flow, driver, judged):
    for outage in (1, 2):
        flow.sandbox.redis.kill()
        await_(lambda n=outage: len(driver.lines("claims_unavailable")) >= n, 30, driver.text)  # type: ignore[misc]
        flow.sandbox.redis.start()
        flow.sandbox.redis.await_ready()
        await_(lambda n=outage: len(driver.lines("claims_recovered")) >= n, 30, driver.text)  # type: ignore[misc]
        at_work(driver, 4)
    judged()


@pytest.mark.row("SP11")
@pytest.mark.long
def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    flow: Flow, driver: SparkProcess, judged: Callable[[], None]
) -> None:
    # One after another of all three is for the fault suite: it takes a minute.
    broker = flow.sandbox.kafka.brokers[0]
    broker.kill()
    at_work(driver, 2 * PARTITIONS + 1)  # of its partitions, too: nothing may wait for it
    broker.start()
    broker.await_ready()
    at_work(driver, PARTITIONS + 1)
    judged()


@pytest.mark.row("SP21")
@pytest.mark.long
def test_without_a_claim_store_a_driver_that_may_pass_goes_on_and_says_so(cluster, tmp_path):
    with redis_server(tmp_path / "redis") as server:
        route = PipelineUnderTest(
            cluster,
            tmp_path,
            partitions=2,
            kind=SparkProcess,
            DEDUP__REDIS_URL=server.url,
            DEDUP__ON_OUTAGE="pass",
        )
        route.create()
        try:
            driver = route.worker()
            route.write(*(identified(number) for number in range(100)))
            route.await_outputs(100)  # as at_work: Spark starts first
            server.kill()
            route.write(*(identified(number) for number in range(100, 200)))
            route.await_lag_0()
            assert sorted(int(each or 0) for each in values(route.outputs())) == list(range(200))
            await_(lambda: Done(route, driver).sum("unchecked") == 100, 10, driver.text)
        finally:
            route.close()


def identified(number: int) -> Given:
    return Given(b"%d" % number, partition=number % 2, headers=(("message-id", b"id-%d" % number),))
