"""Who was once told that there are no brokers comes back when there are."""

import threading
import time
from collections.abc import Callable

import pytest

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.ports import Message
from hapax.kafka.consume.client import LOOK_S
from hapax.publish import Publisher
from hapax.spark import open_publisher
from tests.kit.faults import ALWAYS
from tests.kit.probes import ask, free_port
from tests.kit.proxy import Rule
from tests.kit.routes import a_route
from tests.kit.sink_parts import batch, sink_settings
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, read_back
from tests.kit.waiting import await_

TOLD_S = 3.0
BACK_S = 6.0

route = a_route(partitions=2, proxied=True)


@pytest.mark.parametrize("moment", ["idle", "at work"])
def test_a_worker_that_was_told_of_no_brokers_is_at_work_again_soon_and_says_so(
    route, proxied_broker, moment
):
    """The proxy says so for some seconds, and cuts all connections before and after."""
    port = free_port()
    route.write(Given(b"before", partition=0))
    worker = route.worker(TELEMETRY__PORT=str(port))
    await_(lambda: len(route.outputs()) == 1, 30, worker.text)
    proxy = proxied_broker.proxy
    none = proxy.add(Rule("Metadata", "refuse", times=ALWAYS))
    proxy.cut()
    if moment == "at work":
        route.write(Given(b"while", partition=1))
    await_(lambda: none.hits > 0, 30, worker.text)
    told_s = time.monotonic() + TOLD_S
    await_(lambda: time.monotonic() > told_s or not worker.running, 30)
    await_(lambda: " answer" in ask(port, "/readyz")[1], 10, worker.text)
    await_(lambda: bool(worker.lines("consumer_unanswered")), 10, worker.text)
    proxy.remove(none)
    proxy.cut()
    back_s = time.monotonic()
    route.write(Given(b"after", partition=0))
    wanted = 2 + (moment == "at work")
    await_(lambda: len(route.outputs()) == wanted, 30, worker.text)
    assert time.monotonic() - back_s < BACK_S, worker.text()
    await_(lambda: bool(worker.lines("consumer_answered")), 10, worker.text)
    await_(lambda: ask(port, "/readyz")[0] == 200, 10, worker.text)
    assert worker.terminate() == 0


def back_after(broker, meanwhile: Callable[[], object]) -> float:
    """Say for some seconds that there are no brokers; return since when there are again.

    ``meanwhile`` gives the clients something to do.
    """
    none = broker.proxy.add(Rule("Metadata", "refuse", times=ALWAYS))
    broker.proxy.cut()
    meanwhile()
    await_(lambda: none.hits > 0, 30)
    told_s = time.monotonic() + TOLD_S
    await_(lambda: time.monotonic() > told_s, 30)
    broker.proxy.remove(none)
    broker.proxy.cut()
    return time.monotonic()


def test_a_publisher_that_heard_of_no_brokers_publishes_again_soon(
    sandbox, proxied_broker, unique, tmp_path
):
    topic = unique("spool")
    sandbox.create_topic(topic)
    with Publisher(tmp_path / "spool", sink_settings(proxied_broker.proxied, topic)) as publisher:
        publisher.publish(topic, b"before")
        assert publisher.flush(30)
        back_s = back_after(proxied_broker, lambda: publisher.publish(topic, b"while"))
        publisher.publish(topic, b"after")
        assert publisher.flush(30)
        assert time.monotonic() - back_s < BACK_S
    values = [record.value for record in read_back(sandbox.bootstrap_servers, topic)]
    assert values == [b"before", b"while", b"after"]


def test_a_sink_that_heard_of_no_brokers_publishes_its_micro_batch_soon(
    sandbox, proxied_broker, unique
):
    topic = unique("sink")
    sandbox.create_topic(topic)

    def publish(number: int) -> None:
        chunks = [[Message(topic, b"%d" % number, None, -1, 0, [])]]
        while True:
            try:
                publisher.publish(batch(number), lambda: chunks)
            except (BatchAbortedError, ProducerDeadError):
                continue
            return

    with open_publisher(sink_settings(proxied_broker.proxied, topic)) as publisher:
        publish(0)
        second = threading.Thread(target=publish, args=[1])
        back_s = back_after(proxied_broker, second.start)
        second.join(30)
        assert time.monotonic() - back_s < BACK_S
    values = [record.value for record in read_back(sandbox.bootstrap_servers, topic)]
    assert values == [b"0", b"1"]


def test_a_spark_driver_that_heard_of_no_brokers_is_at_work_again_soon(route, proxied_broker):
    route.write(Given(b"before", partition=0))
    driver = route.start(SparkProcess, "s-0")
    await_(lambda: len(route.outputs()) == 1, 120, driver.text)
    back_s = back_after(
        proxied_broker, lambda: await_(lambda: driver.lines("consumer_unanswered"), 30, driver.text)
    )
    route.write(Given(b"after", partition=0))
    await_(lambda: len(route.outputs()) == 2, 60, driver.text)
    assert time.monotonic() - back_s < BACK_S, driver.text()
    assert driver.terminate() == 0


def test_an_idle_worker_whose_fetches_wait_long_is_not_taken_for_one_that_is_cut_off(route):
    """A broker answers one connection in order: what is asked waits behind the fetch."""
    worker = route.worker(KAFKA__PROPERTIES='{"fetch.wait.max.ms": 3000}')
    await_(lambda: bool(worker.lines("service_ready")), what=worker.text)
    idle_s = time.monotonic() + 5 * LOOK_S
    await_(lambda: time.monotonic() > idle_s or bool(worker.lines("consumer_unanswered")))
    assert worker.lines("consumer_unanswered") == worker.lines("producer_rebuilt") == []
    route.write(Given(b"behind"))
    route.await_outputs(1)
    assert worker.terminate() == 0
