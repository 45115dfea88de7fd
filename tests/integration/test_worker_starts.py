"""Starts: many at once, beside others, without brokers, on other versions of Kafka and Hapax."""

import json
import math
import re
import socket
import time
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hapax.commands.tree import app
from hapax.kafka.consume.source import WAITING_MAX
from hapax.sandbox import Sandbox
from tests.kit.at_work import refused
from tests.kit.claim_stores import redis_server
from tests.kit.managed_process import WorkerProcess
from tests.kit.parts import Parts
from tests.kit.pipeline_under_test import metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce
from tests.kit.waiting import await_

# -- A start: what waits in memory while the producer registers, and many partitions at once


RECORDS = 20_000


def test_while_the_producer_registers_only_a_first_batch_waits_and_none_is_lost_by_it(
    sandbox, unique
):
    topic, app = unique("source"), unique("app")
    sandbox.create_topic(topic, 3)
    produce(sandbox.bootstrap_servers, topic, *(b"%d" % number for number in range(RECORDS)))
    with Parts(sandbox.bootstrap_servers, topic, unique("target"), app) as parts:
        met, until_s = 0, time.monotonic() + 60
        batch = parts.source.take(1, 0.1)
        while not batch.records and time.monotonic() < until_s:  # places a group without offsets
            batch = parts.source.take(1, 0.1)
        while met < WAITING_MAX and time.monotonic() < until_s:
            parts.source.attend(0.05)
            met = len(parts.source._states.stash)
        for _ in range(2000):  # a client that is not paused hands out one with each call
            parts.source.attend(0.0)
        assert len(parts.source._states.stash) == WAITING_MAX
        places = {record.partition: [record.offset] for record in batch.records}
        while sum(map(len, places.values())) < RECORDS and time.monotonic() < until_s:
            for record in parts.source.take(3000, 0.1).records:
                places.setdefault(record.partition, []).append(record.offset)
    assert sum(map(len, places.values())) == RECORDS
    assert all(offsets == list(range(len(offsets))) for offsets in places.values())


PARTITIONS = 300


def test_a_first_start_on_many_partitions_places_all_of_them_with_the_first_takes(sandbox, unique):
    topic, app = unique("source"), unique("app")
    sandbox.create_topic(topic, PARTITIONS)
    one_each = (Given(b"x", partition=number) for number in range(PARTITIONS))
    produce(sandbox.bootstrap_servers, topic, *one_each)
    with Parts(sandbox.bootstrap_servers, topic, unique("target"), app) as parts:
        took_s, seen, until_s = [0.0], set[int](), time.monotonic() + 60
        while len(seen) < PARTITIONS and time.monotonic() < until_s:
            began_s = time.monotonic()
            seen |= {record.partition for record in parts.source.take(1000, 0.1).records}
            took_s.append(time.monotonic() - began_s)
    assert len(seen) == PARTITIONS
    assert max(took_s) < 6  # one by one it took 19 s, without a poll


# -- A worker that starts while Kafka and Redis are away says so, waits, and works later ---


@pytest.fixture(scope="module")
def mortal():
    """One broker that these tests may stop."""
    with Sandbox(redis=False) as sandbox:
        yield sandbox


route = a_route(servers="mortal")


def seconds(worker: WorkerProcess, event: str) -> float:
    first, line = worker.lines()[0], worker.lines(event)[0]
    began, came = (datetime.fromisoformat(str(each["timestamp"])) for each in (first, line))
    return (came - began).total_seconds()


def reasons(port: int, path: str) -> tuple[int, str]:
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
        # That its consumer alone is cut off may be seen first.
        away = "no broker has answered since "
        await_(lambda: away in reasons(port, "/readyz")[1], 10, worker.text)
        status, told = reasons(port, "/readyz")
        assert status == 503
        assert f"({mortal.bootstrap_servers}: connection refused)" in told
        assert metric(ask(port, "/metrics")[1], "hapax_brokers_awaited_total") > 0
        await_(lambda: time.monotonic() - killed_s > 12, 15, worker.text)
        told_status = json.loads(ask(port, "/status.json")[1])
        assert told_status["state"] == "stalled"
        (row,) = told_status["partitions"]
        assert row["seen_s_ago"] > 8
        assert told_status["lag_updated_s_ago"] > 8
        (page,) = (one["runbook"] for one in told_status["causes"] if away in one["reason"])
        assert page.endswith("alerts.md#hapaxbrokersaway")
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


# -- More workers than partitions: the one without any, in each protocol of the group ------

dynamic = a_route(GROUP__MEMBERSHIP="dynamic")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_worker_without_a_partition_is_ready_and_takes_over(dynamic, protocol):
    ports = [free_port(), free_port()]
    first = dynamic.worker("w-0", GROUP__PROTOCOL=protocol, TELEMETRY__PORT=str(ports[0]))
    await_(lambda: ready(ports[0])[0], 60, first.text)
    surplus = dynamic.worker("w-1", GROUP__PROTOCOL=protocol, TELEMETRY__PORT=str(ports[1]))
    await_(lambda: ready(ports[1])[0], 60, surplus.text)
    assert first.terminate() == 0
    dynamic.write(Given(b"after"))
    dynamic.await_outputs(1)
    assert ready(ports[1]) == (True, [])


# -- Other versions of Kafka in the sandbox ------------------------------------------------


@pytest.fixture(scope="module")
def former():
    page = (Path(__file__).parents[2] / "docs/versions.md").read_text()
    [fetch] = re.findall(r"(?m)^\$ hapax (sandbox fetch .+)$", page)
    done = CliRunner().invoke(app, fetch.split())
    assert "Kafka 3.9" in done.stdout, done.output
    with Sandbox(redis=False, kafka="3.9") as sandbox:
        yield sandbox


of_former = a_route(servers="former")


def test_the_oldest_supported_kafka_takes_records_through(former, of_former):
    assert "kafka-3.9.2" in Path(f"/proc/{former.kafka.brokers[0].pid}/cmdline").read_text()
    of_former.write(b"one", b"two")
    of_former.run_to_end()
    assert [record.value for record in of_former.outputs()] == [b"one", b"two"]
