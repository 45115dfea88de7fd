"""Workers on the native record path, with claims, killed and joined by others under load."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from tests.kit.managed_process import WorkerProcess

pytest.importorskip("hapax_fast")
EACH, AGAIN = 400, 40
"""Events of one write; how many of them are sent again with the next."""


@pytest.fixture
def route(sandbox, tmp_path):
    route = PipelineUnderTest(
        sandbox,
        tmp_path,
        partitions=4,
        TRANSFORM=None,
        FAST="on",
        DEDUP__ID="header:id",
        DEDUP__REDIS_URL=sandbox.redis_url,
        GROUP__MEMBERSHIP="dynamic",
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="4s",
    )
    route.create()
    yield route
    route.close()


def event(number: int) -> Given:
    name = b"%d" % number
    headers = (("id", name), ("trace", None))
    return Given(b"value of " + name, name, headers, timestamp_ms=number + 1)


def feed(route: PipelineUnderTest, stop: threading.Event, written: list[int]) -> None:
    while not stop.is_set():
        first = written[0]
        again = range(max(0, first - AGAIN), first)
        route.write(*map(event, [*range(first, first + EACH), *again]))
        written[0] = first + EACH
        stop.wait(0.5)


def commits(worker: WorkerProcess) -> int:
    return len(worker.lines("transaction_committed"))


def await_commits(worker: WorkerProcess, more: int) -> None:
    before = commits(worker)
    await_(lambda: commits(worker) > before + more, 60, worker.text)


def left(worker: WorkerProcess) -> list[dict[str, Any]]:
    return worker.lines("native_path_left")


def test_native_workers_that_are_killed_and_joined_lose_and_double_nothing(route):
    stop, written = threading.Event(), [0]
    feeding = threading.Thread(target=feed, args=(route, stop, written), name="feeding")
    feeding.start()
    try:
        first, second = route.worker("w-0"), route.worker("w-1")
        for worker in (first, second):
            await_commits(worker, 3)
        for worker in (first, second, first):
            worker.kill()
            worker.start()
            await_commits(worker, 2)
        third = route.worker("w-2")  # a rebalance with native records in hand
        await_commits(third, 1)
        second.terminate()
    finally:
        stop.set()
        feeding.join()
    route.await_lag_0()
    outputs = route.outputs()
    values = sorted(output.value or b"" for output in outputs)
    expected = [event(number) for number in range(written[0])]
    assert values == sorted(given.value or b"" for given in expected)
    by_id = {dict(output.headers)["hapax-id"]: output for output in outputs}
    for given in expected:
        output = by_id[given.key]
        assert (output.key, output.timestamp_ms) == (given.key, given.timestamp_ms)
        assert output.headers[:2] == given.headers
    assert route.dead() == []
    for worker in route.workers:
        assert left(worker) == []
        (started, *_again) = worker.lines("service_started")
        assert str(started["record_path"]).startswith("native")
