"""Redis begins to evict while the service runs: it is named, waited for, and over by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hapax.sandbox.redis_server import Redis
from tests.kit.claim_stores import admin, redis_server
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import free_port, ready
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

route = a_route()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Redis]:
    with redis_server(tmp_path / "redis") as server:
        yield server


def event(name: str) -> Given:
    return Given(name.encode(), None, (("message-id", name.encode()),))


def ready_and_why(port: int) -> tuple[bool, str]:
    answers, reasons = ready(port)
    return answers, "; ".join(map(str, reasons))


def await_held(port: int, worker: WorkerProcess) -> None:
    """Wait until the worker says why it holds: the policy and what to set."""

    def held() -> bool:
        answers, why = ready_and_why(port)
        words = ("the claim store deletes claims", "maxmemory-policy allkeys-lru", "noeviction")
        return not answers and all(word in why for word in words)

    await_(held, 60, lambda: f"{ready_and_why(port)} {worker.text()[-3000:]}")


@pytest.mark.parametrize("kind", [WorkerProcess, SparkProcess])
def test_a_store_that_begins_to_evict_is_named_and_held_for_until_it_keeps_claims_again(
    route: PipelineUnderTest, store: Redis, kind: type[WorkerProcess]
):
    """By an idle process first; then records come, of which one is a duplicate."""
    port = free_port()
    worker = route.start(
        kind,
        "w-0",
        TRANSFORM="tests.kit.looking:obey",
        DEDUP__REDIS_URL=store.url,
        TELEMETRY__PORT=str(port),
    )
    route.write(event("one"))
    route.await_outputs(1)
    route.await_lag_0()
    admin(store).config_set("maxmemory-policy", "allkeys-lru")
    await_held(port, worker)
    route.write(event("one"), event("two"))
    [line] = worker.lines("claims_evicted")
    assert (line["level"], line["keys"]) == ("error", 0)
    await_held(port, worker)
    assert len(route.outputs()) == 1
    admin(store).config_set("maxmemory-policy", "noeviction")
    route.await_outputs(2)
    route.await_lag_0()
    assert [record.value for record in route.outputs()] == [b"one", b"two"]
    await_(lambda: ready(port)[0], 60, worker.text)
    assert worker.terminate() == 0


def test_a_redis_that_comes_back_with_another_policy_is_not_trusted(
    route: PipelineUnderTest, store: Redis
):
    port = free_port()
    worker = route.worker(DEDUP__REDIS_URL=store.url, TELEMETRY__PORT=str(port))
    route.write(event("one"))
    route.await_outputs(1)
    store.kill()
    route.write(event("one"), event("two"))
    await_(lambda: bool(worker.lines("claims_unavailable")), 60, worker.text)
    store._command = [*store._command, "--maxmemory-policy", "allkeys-lru"]
    store.start()
    await_held(port, worker)
    assert len(route.outputs()) == 1
    admin(store).config_set("maxmemory-policy", "noeviction")
    route.await_outputs(2)
    assert [record.value for record in route.outputs()] == [b"one", b"two"]


def test_under_pass_records_go_on_and_are_marked(route: PipelineUnderTest, store: Redis):
    admin(store).config_set("maxmemory-policy", "noeviction")
    worker = route.worker(
        TRANSFORM="tests.kit.looking:obey", DEDUP__REDIS_URL=store.url, DEDUP__ON_OUTAGE="pass"
    )
    route.write(event("one"))
    route.await_outputs(1)
    admin(store).config_set("maxmemory-policy", "volatile-lru")
    await_(lambda: bool(worker.lines("claims_evicted")), 60, worker.text)
    route.write(event("one"))
    route.await_outputs(2)
    unchecked = [
        any(name == "hapax-unchecked" for name, _ in record.headers) for record in route.outputs()
    ]
    assert unchecked == [False, True]
    admin(store).config_set("maxmemory-policy", "noeviction")
    await_(lambda: bool(worker.lines("claims_recovered")), 60, worker.text)
    route.write(event("two"), event("one"))
    route.await_outputs(3)
    route.await_lag_0()
    assert [record.value for record in route.outputs()] == [b"one", b"one", b"two"]
