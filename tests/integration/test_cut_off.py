"""Who was once told that there are no brokers comes back when there are."""

import time

import pytest

from hapax.kafka.consume.silence import LOOK_S
from tests.kit.faults import ALWAYS
from tests.kit.probes import ask, free_port
from tests.kit.proxy import Rule
from tests.kit.routes import a_route
from tests.kit.topics import Given
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
    proxy.remove(none)
    proxy.cut()
    back_s = time.monotonic()
    route.write(Given(b"after", partition=0))
    wanted = 2 + (moment == "at work")
    await_(lambda: len(route.outputs()) == wanted, 30, worker.text)
    assert time.monotonic() - back_s < BACK_S, worker.text()
    assert worker.lines("consumer_unanswered")
    await_(lambda: bool(worker.lines("consumer_answered")), 10, worker.text)
    await_(lambda: ask(port, "/readyz")[0] == 200, 10, worker.text)
    assert worker.terminate() == 0


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
