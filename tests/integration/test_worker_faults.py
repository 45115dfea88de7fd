"""Workers under load while they and what is around them fail; each event has its effect once."""

import time
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec

import pytest

from hapax.kafka.consume.client import LOOK_S
from hapax.publish import Publisher
from tests.kit.at_work import QUICK, at_work
from tests.kit.faults import ALWAYS, Rule
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port
from tests.kit.routes import a_flow, a_route
from tests.kit.sink_parts import sink_settings
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, read_back
from tests.kit.waiting import await_

# -- Workers are killed, frozen and stopped under load; each event still has its effect once


flow = a_flow(**QUICK)


@pytest.mark.row("P23", "H1")
def test_workers_killed_under_load_lose_and_double_nothing(flow):
    flow.feed_beside(1500)
    first, second = flow.worker("w-0"), flow.worker("w-1")
    kills = 0
    for _round in range(3):
        for worker in (first, second):
            at_work(worker, 4)
            worker.kill()
            kills += 1
            worker.start()
    at_work(first, 2)
    at_work(flow.worker("w-2"))  # a rebalance with native records in hand
    assert flow.finish().anomalies == {}
    assert kills == 6
    for worker in flow.workers:
        assert worker.lines("native_path_left") == []
        (started, *_again) = worker.lines("service_started")
        is_native = str(started["record_path"]).startswith("native")
        assert is_native == (find_spec("hapax_fast") is not None)


# -- A twin with the same name.


@pytest.mark.row("D1", "H1")
@pytest.mark.parametrize("membership", ["static", "dynamic"])
def test_one_of_two_twins_leaves_with_exit_4_and_the_other_goes_on(flow, membership):
    flow.feed_beside(1000)
    first = at_work(flow.worker("twin", GROUP__MEMBERSHIP=membership), 4)
    began_s = time.monotonic()
    second = flow.worker("twin", GROUP__MEMBERSHIP=membership)
    await_(lambda: not (first.running and second.running), 30, lambda: first.text() + second.text())
    assert time.monotonic() - began_s < 30
    gone, alive = (first, second) if second.running else (second, first)
    gone.ends_with(4)
    (stopped,) = gone.lines("service_stopped")
    assert "HAPAX_INSTANCE" in str(stopped["reason"])
    at_work(alive, 4)
    assert flow.finish().anomalies == {}


# -- The three guarantees, each at the moment where it differs from the others, and leaving well.


TWENTY = [b"%d" % number for number in range(20)]
GUARANTEES = ["exactly_once", "at_least_once", "at_most_once"]
plain = a_route()


def values(route: PipelineUnderTest) -> list[bytes | None]:
    return [record.value for record in route.outputs()]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_without_failures_every_guarantee_delivers_everything_once(plain, guarantee):
    plain.write(*TWENTY)
    plain.run_to_end(GUARANTEE=guarantee)
    plain.write(*TWENTY)
    plain.run_to_end(GUARANTEE=guarantee)
    assert values(plain) == TWENTY * 2
    assert plain.committed() == {0: 40}
    assert plain.dead() == []


@pytest.mark.row("P7", "P13", "P16")
@pytest.mark.parametrize(
    ("guarantee", "lost_request", "effects"),
    [
        ("at_least_once", "OffsetCommit", 2),  # outputs are there, their offsets are not
        ("at_most_once", "Produce", 0),  # offsets are there, their outputs are not
        ("exactly_once", "EndTxn", 1),
        ("exactly_once", "Produce", 1),
        ("exactly_once", "TxnOffsetCommit", 1),
    ],
)
def test_a_kill_between_outputs_and_offsets_shows_the_nature_of_a_guarantee(
    plain, proxied_broker, guarantee, lost_request, effects
):
    plain.write(*TWENTY)
    # The first offsets of an assignment are the mark that a process works on them (suspicion.py).
    nth = 1 if lost_request == "Produce" else 2
    fault = proxied_broker.proxy.add(
        Rule(lost_request, "drop", nth=nth, times=1000, client_id=f"{plain.app}-w-0")
    )
    worker = plain.worker(
        GUARANTEE=guarantee,
        KAFKA__BOOTSTRAP_SERVERS=proxied_broker.proxied,
        TRANSACTION__TIMEOUT="4s",
    )
    fault.wait_hit()
    worker.kill()
    expected = {20} if guarantee == "at_most_once" else {0, None}
    assert set(plain.committed().values()) <= expected
    plain.write(b"after")
    plain.run_to_end(GUARANTEE=guarantee)
    assert sorted(values(plain)) == sorted([*TWENTY * effects, b"after"])  # type: ignore[type-var]


@pytest.mark.row("T4", "H1")
def test_sigterm_under_load_leaves_with_0_within_5_s_and_nothing_is_torn(plain, in_time):
    plain.write(*(b"%d" % number for number in range(20_000)))
    worker = plain.worker(TRANSFORM="tests.kit.orders:slow", TRANSACTION__INTERVAL="2s")
    await_(lambda: bool(worker.lines("transaction_committed")), 20, worker.text)
    began_s = time.monotonic()
    assert worker.terminate() == 0
    in_time(time.monotonic() - began_s, 5)
    (done,) = plain.committed().values()
    assert done is not None
    assert 0 < done < 20_000
    assert values(plain) == [b"%d" % number for number in range(done)]


@pytest.mark.row("H1")
def test_a_killed_worker_commits_again_within_5_s_of_its_start(plain, in_time):
    plain.write(*TWENTY)
    worker = plain.worker()
    await_(lambda: bool(worker.lines("transaction_committed")), 20, worker.text)
    worker.kill()
    plain.write(b"after")
    began_s = time.time()
    worker.start()
    await_(lambda: len(worker.lines("transaction_committed")) > 1, 20, worker.text)
    settled = str(worker.lines("transaction_committed")[-1]["timestamp"])
    in_time(datetime.fromisoformat(settled).timestamp() - began_s, 5)
    assert values(plain) == [*TWENTY, b"after"]


# -- Who was once told that there are no brokers comes back when there are -----------------

TOLD_S = 3.0
BACK_S = 6.0
proxied = a_route(partitions=2, proxied=True)


@pytest.mark.parametrize("moment", ["idle", "at work"])
def test_a_worker_that_was_told_of_no_brokers_is_at_work_again_soon_and_says_so(
    proxied, proxied_broker, moment
):
    """The proxy says so for some seconds, and cuts all connections before and after."""
    port = free_port()
    proxied.write(Given(b"before", partition=0))
    worker = proxied.worker(TELEMETRY__PORT=str(port))
    await_(lambda: len(proxied.outputs()) == 1, 30, worker.text)
    proxy = proxied_broker.proxy
    none = proxy.add(Rule("Metadata", "refuse", times=ALWAYS))
    proxy.cut()
    if moment == "at work":
        proxied.write(Given(b"while", partition=1))
    await_(lambda: none.hits > 0, 30, worker.text)
    told_s = time.monotonic() + TOLD_S
    await_(lambda: time.monotonic() > told_s or not worker.running, 30)
    await_(lambda: " answer" in ask(port, "/readyz")[1], 10, worker.text)
    await_(lambda: bool(worker.lines("consumer_unanswered")), 10, worker.text)
    proxy.remove(none)
    proxy.cut()
    back_s = time.monotonic()
    proxied.write(Given(b"after", partition=0))
    wanted = 2 + (moment == "at work")
    await_(lambda: len(proxied.outputs()) == wanted, 30, worker.text)
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


def test_a_spark_driver_that_heard_of_no_brokers_is_at_work_again_soon(proxied, proxied_broker):
    proxied.write(Given(b"before", partition=0))
    driver = proxied.start(SparkProcess, "s-0")
    await_(lambda: len(proxied.outputs()) == 1, 120, driver.text)
    back_s = back_after(
        proxied_broker, lambda: await_(lambda: driver.lines("consumer_unanswered"), 30, driver.text)
    )
    proxied.write(Given(b"after", partition=0))
    await_(lambda: len(proxied.outputs()) == 2, 60, driver.text)
    assert time.monotonic() - back_s < BACK_S, driver.text()
    assert driver.terminate() == 0


def test_an_idle_worker_whose_fetches_wait_long_is_not_taken_for_one_that_is_cut_off(proxied):
    """A broker answers one connection in order: what is asked waits behind the fetch."""
    worker = proxied.worker(KAFKA__PROPERTIES='{"fetch.wait.max.ms": 3000}')
    await_(lambda: bool(worker.lines("service_ready")), what=worker.text)
    idle_s = time.monotonic() + 5 * LOOK_S
    await_(lambda: time.monotonic() > idle_s or bool(worker.lines("consumer_unanswered")))
    assert worker.lines("consumer_unanswered") == worker.lines("producer_rebuilt") == []
    proxied.write(Given(b"behind"))
    proxied.await_outputs(1)
    assert worker.terminate() == 0
