"""The controls: faults that are real, shown on loops that do not withstand them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hapax.sandbox import SandboxTopic
from tests.kit.faults import Rule
from tests.kit.naive import (
    LOOPS,
    AtLeastOnce,
    PlainTransactions,
    Route,
    SetNxThenProcess,
    WithoutRewind,
)
from tests.kit.topics import committed, produce, read_back

INVALID_PRODUCER_EPOCH = 47
TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def route(sandbox, unique):
    """Ten records, waiting."""
    source, target = unique("source"), unique("target")
    sandbox.create_topics(SandboxTopic(source), SandboxTopic(target))
    produce(sandbox.bootstrap_servers, source, *TEN)
    return Route(sandbox.bootstrap_servers, source, target, unique("app"))


def outputs(route: Route) -> list[bytes | None]:
    """Return what a read_committed reader sees."""
    return [record.value for record in read_back(route.bootstrap, route.target)]


def progress(route: Route) -> int | None:
    return committed(route.bootstrap, route.app, route.source)[0]


def crash_after(step: str, loop: AtLeastOnce) -> None:
    records = loop.take(10)
    assert len(records) == 10
    assert any(done == step for done in loop.batch(records))
    loop.close()


def test_plain_transactions_are_right_as_long_as_nothing_is_late(route):
    loop = PlainTransactions(route)
    records = loop.take(10)
    loop.abort(records)
    loop.process(loop.take(10))
    loop.close()
    assert outputs(route) == TEN
    assert progress(route) == 10


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("renewed", [False, True])
def test_a_late_abort_makes_plain_transactions_lose_records_silently_unless_the_epoch_is_new(
    route, proxied_broker, *, renewed
):
    loop = PlainTransactions(route._replace(bootstrap=proxied_broker.proxied))
    late = proxied_broker.proxy.add(Rule("EndTxn", "hold"))
    loop.abort(loop.take(10))  # the client sends a second EndTxn by itself and is content
    assert late.hit.is_set()
    if renewed:
        loop.renew()

    steps = loop.batch(loop.take(10))
    assert next(steps) == "sent"
    late.release()
    assert late.wait_answered() == (INVALID_PRODUCER_EPOCH if renewed else 0)
    assert list(steps) == ["progressed", "committed"]  # every call says ok
    loop.close()

    assert progress(route) == 10
    assert outputs(route) == (TEN if renewed else [])


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("renewed", [False, True])
def test_late_offsets_move_the_progress_of_plain_transactions_back_unless_the_epoch_is_new(
    route, proxied_broker, *, renewed
):
    loop = PlainTransactions(route._replace(bootstrap=proxied_broker.proxied))
    late = proxied_broker.proxy.add(Rule("TxnOffsetCommit", "hold"))
    loop.process(loop.take(5))
    assert late.hit.is_set()
    if renewed:
        loop.renew()

    steps = loop.batch(loop.take(4))
    assert [next(steps), next(steps)] == ["sent", "progressed"]
    late.release()
    assert late.wait_answered() == (INVALID_PRODUCER_EPOCH if renewed else 0)
    assert list(steps) == ["committed"]
    loop.close()

    assert outputs(route) == TEN[:9]
    assert progress(route) == (9 if renewed else 5)


def test_transactions_without_rewind_lose_an_aborted_batch(route):
    loop = WithoutRewind(route)
    loop.abort(loop.take(4))
    loop.process(loop.take(6))
    loop.close()
    assert outputs(route) == TEN[4:]
    assert progress(route) == 10


def test_at_least_once_doubles_what_a_crash_leaves_uncommitted(route):
    crash_after("sent", AtLeastOnce(route))
    successor = AtLeastOnce(route)
    successor.process(successor.take(10))
    successor.close()
    assert outputs(route) == TEN + TEN


def test_set_nx_then_process_loses_what_a_crash_leaves_claimed(route, redis_url):
    crash_after("claimed", SetNxThenProcess(route, redis_url))
    successor = SetNxThenProcess(route, redis_url)
    successor.process(successor.take(10))
    successor.close()
    assert progress(route) == 10
    assert outputs(route) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_runs_as_a_process_that_may_be_killed(route, redis_url, loop):
    words = [f"--{name}={value}" for name, value in route._asdict().items()]
    command = [sys.executable, "-m", "tests.kit.naive", loop, *words, f"--redis-url={redis_url}"]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        deadline_s = time.monotonic() + 60
        while len(outputs(route)) < 10 and time.monotonic() < deadline_s:
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert outputs(route) == TEN
