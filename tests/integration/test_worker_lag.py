"""Lag reaches 0 on transactional input, stays there, and costs nothing once it has."""

import time

import pytest

from tests.kit.claim_stores import redis_server
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce_aborted, produce_committed, produce_open
from tests.kit.waiting import await_

IDLE_S = 4.0

route = a_route(partitions=2, TELEMETRY__LOG_LEVEL="debug")


@pytest.fixture
def port():
    return free_port()


def both(value: bytes) -> list[Given]:
    return [Given(value, partition=0), Given(value, partition=1)]


def _lag_told(port: int) -> float | None:
    """Return the lag among the metrics; None before the brokers have told it for the first time."""
    exposition = ask(port, "/metrics")[1]
    name = "hapax_consumer_lag"
    return metric(exposition, name) if f"\n{name}{{" in exposition else None


@pytest.mark.row("KAFKA-6607")
def test_lag_reaches_0_behind_aborted_records_and_idling_commits_nothing(route, port):
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    produce_committed(route.bootstrap, route.source, *both(b"1"))
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    worker = route.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("transaction_committed")), 20, worker.text)
    route.await_lag_0()
    await_(lambda: _lag_told(port) == 0, 30, worker.text)
    ends = len(worker.lines("idle_offsets_committed"))
    assert ends > 0
    time.sleep(IDLE_S)  # what is asserted is that nothing happens
    assert len(worker.lines("idle_offsets_committed")) == ends
    assert route.lag() == 0
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    route.await_lag_0()
    assert [record.value for record in route.outputs()] == [b"1", b"1"]


def test_lag_reaches_0_after_a_restart_with_nothing_to_read(route):
    produce_committed(route.bootstrap, route.source, *both(b"1"))
    first = route.worker()
    await_(lambda: bool(first.lines("transaction_committed")), 20, first.text)
    route.await_lag_0()
    first.kill()
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    second = route.worker()
    route.await_lag_0()
    second.terminate()
    third = route.worker()
    await_(lambda: bool(third.lines("partitions_assigned")), 20, third.text)
    time.sleep(IDLE_S)
    assert third.lines("idle_offsets_committed") == []
    assert route.lag() == 0


def test_lag_reaches_0_before_an_open_transaction_and_again_when_it_is_over(route, port):
    route.write(*both(b"1"))
    with produce_open(route.bootstrap, route.source, *both(b"2")) as producer:
        worker = route.worker(TELEMETRY__PORT=str(port))
        route.await_lag_0(20)
        await_(lambda: _lag_told(port) == 0, 30, worker.text)
        assert [record.value for record in route.outputs()] == [b"1", b"1"]
        producer.commit_transaction(30)
    await_(lambda: len(route.outputs()) == 4, 10, worker.text)
    route.await_lag_0()


# -- the claim store is away --------------------------------------------------------------


def outputs(route: PipelineUnderTest, unchecked: bool) -> list[bytes | None]:  # noqa: FBT001 - reads as said
    return [
        record.value
        for record in route.outputs()
        if ("hapax-unchecked" in dict(record.headers)) == unchecked
    ]


def sent(event_id: bytes) -> Given:
    return Given(event_id, b"key", headers=(("message-id", event_id),))


@pytest.mark.row("R1")
def test_while_the_claim_store_is_away_a_paused_worker_is_not_ready_and_says_why(
    route, port, tmp_path
):
    with redis_server(tmp_path / "redis") as server:
        worker = route.worker(DEDUP__REDIS_URL=server.url, TELEMETRY__PORT=str(port))
        await_(lambda: ready(port) == (True, []), 20, worker.text)
        server.kill()
        route.write(sent(b"a"), sent(b"b"))
        await_(lambda: not ready(port)[0], 10, worker.text)
        assert any("claim store" in reason for reason in ready(port)[1])
        assert ask(port, "/livez")[0] == 200
        assert route.outputs() == []
        server.start()
        server.await_ready()
        await_(lambda: ready(port) == (True, []), 10, worker.text)
        route.await_lag_0()
    assert outputs(route, unchecked=False) == [b"a", b"b"]


@pytest.mark.row("R1")
def test_while_the_claim_store_is_away_pass_goes_on_and_marks_its_outputs(route, port, tmp_path):
    with redis_server(tmp_path / "redis") as server:
        worker = route.worker(
            DEDUP__REDIS_URL=server.url, DEDUP__ON_OUTAGE="pass", TELEMETRY__PORT=str(port)
        )
        route.write(sent(b"a"), sent(b"a"), b"no id")
        route.await_outputs(2)
        server.kill()
        route.write(sent(b"a"), sent(b"b"), sent(b"b"))
        route.await_outputs(5)
        assert ready(port) == (True, [])
        assert metric(ask(port, "/metrics")[1], "hapax_records_unchecked_total") == 3
        server.start()
        server.await_ready()
        route.write(sent(b"a"), sent(b"c"))
        route.await_lag_0()
        assert worker.terminate() == 0
    assert sorted(map(bytes, filter(None, outputs(route, unchecked=False)))) == sorted(
        [b"a", b"no id", b"c"]
    )
    assert outputs(route, unchecked=True) == [b"a", b"b", b"b"]


def test_pass_starts_without_the_claim_store(route, tmp_path):
    route.write(sent(b"a"), sent(b"b"))
    with redis_server(tmp_path / "redis") as server:
        server.kill()
        worker = route.worker(DEDUP__REDIS_URL=server.url, DEDUP__ON_OUTAGE="pass")
        route.await_outputs(2)
    assert worker.lines("claims_unavailable")
    assert outputs(route, unchecked=True) == [b"a", b"b"]


def test_pause_waits_for_the_claim_store_at_the_start_and_still_hears_sigterm(
    route, port, tmp_path, in_time
):
    route.write(sent(b"a"), sent(b"b"))
    with redis_server(tmp_path / "redis") as server:
        server.kill()
        settings = {"DEDUP__REDIS_URL": server.url, "TELEMETRY__PORT": str(port)}
        worker = route.worker(**settings)
        await_(lambda: bool(worker.lines("claims_unavailable")), 10, worker.text)
        assert not ready(port)[0]
        began_s = time.monotonic()
        assert worker.terminate() == 0
        in_time(time.monotonic() - began_s, 5)
        worker.start()
        await_(lambda: len(worker.lines("claims_unavailable")) > 1, 10, worker.text)
        assert route.outputs() == []
        server.start()
        server.await_ready()
        await_(lambda: ready(port) == (True, []), 10, worker.text)
        route.await_lag_0()
    assert outputs(route, unchecked=False) == [b"a", b"b"]
