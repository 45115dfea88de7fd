"""A worker that starts while Kafka and Redis are away says so, waits, and works later."""

import json
import math
import socket
import time
from datetime import datetime

import pytest

from hapax.sandbox import Sandbox
from tests.kit.at_work import refused
from tests.kit.claim_stores import redis_server
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.topics import Given
from tests.kit.waiting import await_


@pytest.fixture(scope="module")
def mortal():
    """One broker that these tests may stop."""
    with Sandbox(redis=False) as sandbox:
        yield sandbox


@pytest.fixture
def route(mortal, tmp_path):
    route = PipelineUnderTest(mortal, tmp_path)
    route.create()
    yield route
    route.close()


def seconds(worker: WorkerProcess, event: str) -> float:
    """Return how long after its first line a worker logged an event for the first time."""
    first, line = worker.lines()[0], worker.lines(event)[0]
    began, came = (datetime.fromisoformat(str(each["timestamp"])) for each in (first, line))
    return (came - began).total_seconds()


def reasons(port: int, path: str) -> tuple[int, str]:
    """Return a probe's status and all its reasons in one text."""
    status, body = ask(port, path)
    return status, "; ".join(json.loads(body)["reasons"])


def test_a_start_in_an_outage_of_kafka_and_redis_names_both_waits_and_then_works(
    mortal, route, tmp_path, in_time
):
    (broker,), port = mortal.kafka.brokers, free_port()
    route.write(Given(b"a", b"key", headers=(("message-id", b"a"),)))
    with redis_server(tmp_path / "redis") as server:
        broker.kill()
        server.kill()
        try:
            worker = route.worker(DEDUP__REDIS_URL=server.url, TELEMETRY__PORT=str(port))
            await_(lambda: bool(worker.lines("claims_unavailable")), 30, worker.text)
            in_time(seconds(worker, "brokers_unreachable"), 1.5)
            in_time(seconds(worker, "claims_unavailable"), 1.5)
            (away,) = worker.lines("brokers_unreachable")
            assert f"{mortal.bootstrap_servers}: connection refused" in str(away["reason"])
            redis = server.url.removeprefix("redis://").partition("/")[0]
            for path in ("/startupz", "/readyz"):
                status, told = reasons(port, path)
                assert status == 503
                assert mortal.bootstrap_servers in told
                assert redis in told
            assert ask(port, "/livez")[0] == 200
            assert json.loads(ask(port, "/status.json")[1])["state"] == "starting"
            name = "hapax_brokers_awaited_total"
            before = metric(ask(port, "/metrics")[1], name)
            await_(lambda: metric(ask(port, "/metrics")[1], name) > before, 10, worker.text)
            assert worker.running
            server.start()
            server.await_ready()
        finally:
            broker.start()
            mortal.kafka.await_ready()
        await_(lambda: ready(port) == (True, []), 60, worker.text)
        route.await_outputs(1)
        assert reasons(port, "/startupz") == (200, "")
        assert worker.terminate() == 0


def test_an_idle_worker_without_brokers_is_soon_not_ready_and_its_figures_grow_old(mortal, route):
    (broker,), port = mortal.kafka.brokers, free_port()
    route.write(b"1")
    worker = route.worker(TELEMETRY__PORT=str(port), TELEMETRY__LAG_INTERVAL="1s")
    route.await_outputs(1)
    route.await_lag_0()
    await_(lambda: seen(port) == ("running", [0]), 60, worker.text)
    broker.kill()
    killed_s = time.monotonic()
    try:
        await_(lambda: not ready(port)[0], 10, worker.text)
        status, told = reasons(port, "/readyz")
        assert status == 503
        assert "no broker has answered since " in told
        assert f"({mortal.bootstrap_servers}: connection refused)" in told
        assert metric(ask(port, "/metrics")[1], "hapax_brokers_awaited_total") > 0
        await_(lambda: time.monotonic() - killed_s > 12, 15, worker.text)
        told_status = json.loads(ask(port, "/status.json")[1])
        assert told_status["state"] == "stalled"
        (row,) = told_status["partitions"]
        assert row["seen_s_ago"] > 8
        assert told_status["lag_updated_s_ago"] > 8
        page = ask(port, "/")[1]
        assert "no broker has answered since " in page
        assert "alerts.md#hapaxbrokersaway" in page
    finally:
        broker.start()
        mortal.kafka.await_ready()
    await_(lambda: ready(port) == (True, []), 30, worker.text)
    await_(lambda: ages(port) < [8], 30, worker.text)


def ages(port: int) -> list[float]:
    """Return the ages of the rows of the input; endless for one that was not seen yet."""
    rows = json.loads(ask(port, "/status.json")[1])["partitions"]
    return [row.get("seen_s_ago", math.inf) for row in rows]


def seen(port: int) -> tuple[str, list[int | None]]:
    """Return the state of a worker and the lag of its partitions, as its page has them."""
    try:
        status = json.loads(ask(port, "/status.json")[1])
    except OSError:
        return "not started", []
    return status["state"], [row["lag"] for row in status["partitions"]]


@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_sigterm_ends_a_start_that_waits_for_brokers_with_0(route, engine, in_time):
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{kept.getsockname()[1]}"
        worker = route.worker(KAFKA__BOOTSTRAP_SERVERS=address, ENGINE=engine)
        await_(lambda: bool(worker.lines("brokers_unreachable")), 30, worker.text)
        began_s = time.monotonic()
        assert worker.terminate() == 0
        in_time(time.monotonic() - began_s, 6)
        (line,) = worker.lines("service_stopped")
        assert line["exit_code"] == 0


def test_brokers_that_accept_and_never_answer_are_waited_for_and_named(route):
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        worker = route.worker(KAFKA__BOOTSTRAP_SERVERS=address, TELEMETRY__PORT=str(port))
        await_(lambda: bool(worker.lines("brokers_unreachable")), 30, worker.text)
        (line,) = worker.lines("brokers_unreachable")
        assert f"{address}: open, but no broker answers" in str(line["reason"])
        await_(lambda: address in reasons(port, "/readyz")[1], 10, worker.text)
        time.sleep(3.0)  # what is asserted is that it does not end
        assert worker.running


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"KAFKA__BOOTSTRAP_SERVERS": "nowhere.invalid:9092"}, ["cannot be resolved"]),
        (
            {"KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "STOP_AFTER__AT_END": "true"},
            ["no broker answered", "127.0.0.1:1: connection refused"],
        ),
        ({"INPUT__TOPICS": "no-such-topic"}, ["HAPAX_INPUT__TOPICS: topic no-such-topic"]),
    ],
    ids=["an unknown host", "a bounded run", "an unknown topic"],
)
def test_what_waiting_does_not_cure_and_errands_exit_with_3_within_seconds(
    route, settings, words, in_time
):
    began_s = time.monotonic()
    refused(route, 3, *words, **settings)
    in_time(time.monotonic() - began_s, 8)
